#!/bin/sh
# Runs the benchmarks of a build folder (default build): make bench. More arguments go to bench/run.py.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
[ $# -gt 0 ] && shift
exec python3 bench/run.py "$build" "$@"
