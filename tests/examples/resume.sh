#!/bin/sh
# resume.sh <fabric> <resume program> <data> <ranks> <workers>: a run that crashes and is restarted ends with the weights of one that does not.
set -u
fabric=$1 program=$2 data=$3 ranks=$4 workers=$5
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
args="--data $data --samples 640 --batch-size 16 --epochs 2 --save-every 7 --num-workers $workers"
run="$fabric run --accelerator=cpu --devices=$ranks --strategy=ddp"
$run "$program" $args >"$folder/whole" 2>"$folder/whole.err" || { cat "$folder/whole.err"; exit 1; }
# the crash comes after the second epoch has begun, between two checkpoints
steps=$((640 / 16 / ranks + 10))
$run --max-restarts 1 "$program" $args --resume "$folder/run.pt" --fail-at $steps >"$folder/pieces" 2>"$folder/pieces.err" ||
    { cat "$folder/pieces.err"; exit 1; }
grep -q '^resumed at step' "$folder/pieces" || { echo "the restarted run did not resume"; cat "$folder/pieces"; exit 1; }
whole=$(grep '^weights' "$folder/whole") pieces=$(grep '^weights' "$folder/pieces")
echo "$whole (uninterrupted)"
echo "$pieces (restarted: $(grep '^resumed' "$folder/pieces"))"
[ -n "$whole" ] && [ "$whole" = "$pieces" ]
