#!/bin/sh
# What the generator made and left out, with reasons, is pinned per libtorch version.
set -u
report=$1 expected=$2
if [ ! -f "$expected" ]; then
    echo "no pinned report for this libtorch ($expected); the generator says:"
    head -n 3 "$report"
    exit 0
fi
diff -u "$expected" "$report"
