#!/bin/sh
# run.sh EXPECTED_CODE STDERR_LINES PROGRAM [ARGUMENTS]: runs a program in an empty folder and checks its exit code and, unless -1, how many
# lines it printed on stderr.
expected=$1 lines=$2
shift 2
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
"$@" 2>stderr.txt
code=$?
cat stderr.txt >&2
if [ "$code" -ne "$expected" ]; then
    echo "exit code $code, expected $expected"
    exit 1
fi
found=$(wc -l <stderr.txt)
if [ "$lines" -ge 0 ] && [ "$found" -ne "$lines" ]; then
    echo "$found lines on stderr, expected $lines"
    exit 1
fi
