#!/bin/sh
# The shared library exports fabric_* and th_* and nothing else.
set -eu
others=$(nm -D --defined-only "$1" | awk '{print $NF}' | sed 's/@.*//' | grep -vE '^(fabric_|th_)' || true)
if [ -n "$others" ]; then
    printf 'exported, but neither fabric_* nor th_*:\n%s\n' "$others"
    exit 1
fi
# th__ is internal, except for generated operators whose own name begins with an underscore (aten::_softmax is th__softmax).
internal=$(nm -D --defined-only "$1" | awk '{print $NF}' | grep -E '^(th__|fabric__)' | grep -vE '_call$' || true)
if [ -n "$internal" ]; then
    printf 'internal names are exported:\n%s\n' "$internal"
    exit 1
fi
