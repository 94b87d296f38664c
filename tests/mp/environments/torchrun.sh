#!/bin/sh
# PyTorch's torchrun starts the ranks of a program that is no Python: PROGRAM PYTHON. Skipped (77) where there is no torchrun that works.
set -u
unset CFABRIC_ON_ERROR # the messages are looked at
program=$1 python=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "failed: $*"; cat "$folder"/*; exit 1; }
run() { timeout 100 "$python" -m torch.distributed.run --no-python --standalone "$@"; }

"$python" -c 'import torch.distributed.run' 2>/dev/null || { echo "skipped: $python has no torchrun"; exit 77; }
run --nproc-per-node 2 true > "$folder/true" 2>&1 || { echo "skipped: this torchrun cannot even start 'true'"; exit 77; }

run --nproc-per-node 2 "$program" plain > "$folder/two" 2>&1 || fail "two ranks did not run"
for rank in 0 1; do grep -q "rank $rank of 2: total 3" "$folder/two" || fail "rank $rank is missing"; done

run --nproc-per-node 1 "$program" plain > "$folder/one" 2>&1 && fail "one rank passed for two devices"
grep -q "does not match the world size (1)" "$folder/one" || fail "the mismatch is not explained"
echo "torchrun: two ranks met, a wrong number was explained"
