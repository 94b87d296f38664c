#!/bin/sh
# The completion scripts know every option and every choice that `fabric run --help` shows. Arguments: the program, tools/completion.
set -eu
status=0
options=$("$1" run --help | grep -oE '^  --[a-z-]+' | tr -d ' ')
choices=$("$1" run --help | tr '\n' ' ' | tr -s ' ' | grep -oE 'One of: [^.]*' | sed 's/One of: //' | tr -d ',')
commands=$("$1" --help | sed -n '/^Commands:/,$s/^  \([a-z]*\).*/\1/p')
for file in "$2/fabric.bash" "$2/_fabric"; do
    for word in $options $choices $commands; do
        grep -qE "(^|[^a-z0-9_-])$word($|[^a-z0-9_-])" "$file" || { echo "$file does not know $word"; status=1; }
    done
done
[ "$(echo $options | wc -w)" -ge 12 ] && [ "$(echo $choices | wc -w)" -ge 26 ] || { echo "the help was not understood"; status=1; }
bash -n "$2/fabric.bash"
words() { # what bash offers for a line
    bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _fabric; echo "${COMPREPLY[@]}"' - "$@"
}
expect() { [ "$1" = "$2" ] || { echo "completion offered '$1', expected '$2'"; status=1; }; }
expect "$(words "$2/fabric.bash" fabric r)" "run"
expect "$(words "$2/fabric.bash" fabric run --strategy ds)" ""
expect "$(words "$2/fabric.bash" fabric run --strategy fs)" "fsdp"
expect "$(words "$2/fabric.bash" fabric run --max)" "--max-restarts"
expect "$(words "$2/fabric.bash" fabric run --precision bf16-m)" "bf16-mixed"
exit $status
