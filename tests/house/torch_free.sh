#!/bin/sh
# The launcher must stay light: it links no libtorch and no C++ runtime.
set -eu
if ldd "$1" | grep -E 'libtorch|libc10|libstdc\+\+'; then
    echo "$1 links the libraries above, expected none of them"
    exit 1
fi
