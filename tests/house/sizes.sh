#!/bin/sh
# No source file above 500 lines: a crowded room is split.
set -u
cd "$1" || exit 1
status=0
for file in $(find src include examples tests bench fuzz -name '*.c' -o -name '*.h' -o -name '*.cpp' -o -name '*.hpp'); do
    lines=$(wc -l <"$file")
    [ "$lines" -le 500 ] || { echo "$file has $lines lines, expected 500 at most"; status=1; }
done
exit $status
