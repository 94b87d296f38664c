#!/bin/sh
# One-way arrows between the rooms of src/: an include of a room that is not below is an error. ARCHITECTURE.md draws the same table.
set -u
cd "$1" || exit 1
below() {
    torch_side="tensor bridge base"
    middle="$torch_side nn optim data"
    parts="$middle dist accelerators precision environments"
    case $1 in
    base) echo "" ;;
    environments | launch) echo "base" ;;
    cli) echo "base environments launch checkpoint" ;; # checkpoint: its torch-free files, for consolidate
    bridge) echo "base tensor" ;; # the bridge hangs handles into scopes: tensor/internal.h only
    ops) echo "base bridge" ;;
    tensor) echo "base bridge" ;;
    nn | optim | data) echo "$torch_side" ;;
    dist) echo "$middle" ;;
    accelerators) echo "$torch_side" ;;
    precision) echo "$middle dist" ;;
    checkpoint | loggers) echo "$parts" ;;
    strategies) echo "$parts launch checkpoint" ;;
    fabric) echo "$parts launch strategies checkpoint loggers" ;;
    *) echo "UNKNOWN" ;;
    esac
}
status=0
for room in */; do
    room=${room%/}
    allowed=" $room $(below "$room") "
    case $allowed in *UNKNOWN*) echo "src/$room is not a room of the house"; status=1; continue ;; esac
    for file in $(find "$room" -name '*.c' -o -name '*.h' -o -name '*.cpp' -o -name '*.hpp'); do
        for include in $(sed -n 's/^#include "\([a-z_0-9]*\)\/.*/\1/p' "$file"); do
            [ -d "$include" ] || continue
            case $allowed in
            *" $include "*) ;;
            *) echo "src/$file includes $include/, which is not below $room/"; status=1 ;;
            esac
        done
        case $file in
        bridge/*) ;;
        *) grep -nE '#include <(ATen|c10|torch|caffe2)/' "$file" /dev/null && { echo "src/$file includes C++ headers of libtorch"; status=1; } ;;
        esac
        case $file in bridge/*) ;; *.cpp | *.hpp) echo "src/$file: C++ lives in src/bridge only"; status=1 ;; esac
    done
done
exit $status
