#!/bin/sh
# check.sh <cc> <c++> <include folder> <generated folder> <headers...>
set -u
cc=$1 cxx=$2 include=$3 generated=$4
shift 4
status=0
for header in "$@"; do
    printf '#include <%s>\n#include <%s>\n' "$header" "$header" |
        "$cc" -std=c17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$include" -I"$generated" -x c - || { echo "$header: not clean as C17"; status=1; }
    printf '#include <%s>\n#include <%s>\n' "$header" "$header" |
        "$cxx" -std=c++17 -Wall -Wextra -Werror -fsyntax-only -I"$include" -I"$generated" -x c++ - || { echo "$header: not clean as C++17"; status=1; }
done
exit $status
