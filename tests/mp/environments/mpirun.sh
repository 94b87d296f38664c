#!/bin/sh
# MPI's launcher starts the ranks of the program: PROGRAM. No MPI library is linked. Skipped (77) where there is no mpirun.
set -u
unset CFABRIC_ON_ERROR # the messages are looked at
program=$1
command -v mpirun >/dev/null || { echo "skipped: no mpirun"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun --version 2>/dev/null | grep -q "Open MPI" && more="--oversubscribe" || more=
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "failed: $*"; cat "$folder"/*; exit 1; }
met() { for rank in 0 1; do grep -q "rank $rank of 2: total 3" "$1" || fail "rank $rank is missing"; done; }

timeout 60 mpirun $more -n 2 "$program" plain > "$folder/plain" 2>&1 || fail "two ranks did not run"
met "$folder/plain"

# Through a script in between, and two jobs at the same time: each finds its own peers.
timeout 60 mpirun $more -n 2 sh -c '"$0" plain; exit $?' "$program" > "$folder/one" 2>&1 &
one=$!
timeout 60 mpirun $more -n 2 sh -c '"$0" plain; exit $?' "$program" > "$folder/two" 2>&1 || fail "the second job failed"
wait $one || fail "the first job failed"
met "$folder/one"
met "$folder/two"

timeout 60 mpirun $more -n 3 "$program" plain > "$folder/three" 2>&1 && fail "three ranks passed for two devices"
grep -q "devices=2.*does not match the MPI world size" "$folder/three" || fail "the mismatch is not explained"

# A single rank is no MPI job: the program starts its second rank itself.
timeout 60 mpirun $more -n 1 "$program" plain > "$folder/single" 2>&1 || fail "a single rank did not start the other"
met "$folder/single"
echo "mpirun: ranks met in four jobs, a wrong number was explained"
