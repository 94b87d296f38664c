#!/bin/sh
# Builds the fuzz targets with clang and runs each for SECONDS_EACH seconds (60) from its corpus, new inputs kept in build-fuzz/corpus only.
# A crash leaves its input in build-fuzz and ends with a failure.
set -eu
cd "$(dirname "$0")/.."
seconds=${SECONDS_EACH:-60}
mkdir -p build-fuzz
cmake --preset fuzz >build-fuzz/configure.log 2>&1 || { cat build-fuzz/configure.log; exit 1; }
targets=$(for file in fuzz/fuzz_*.c; do basename "$file" .c; done)
# shellcheck disable=SC2086
cmake --build build-fuzz --target $targets
for target in ${*:-$targets}; do
    topic=${target#fuzz_}
    mkdir -p "build-fuzz/corpus/$topic"
    echo "== $target"
    "build-fuzz/bin/$target" "build-fuzz/corpus/$topic" "fuzz/corpus/$topic" -max_total_time="$seconds" -max_len=4096 -timeout=10 \
        -rss_limit_mb=2048 -artifact_prefix="build-fuzz/$topic-" -print_final_stats=1 2>&1 | grep -E 'stat::number_of_executed|ERROR|SUMMARY|cov:.*DONE|DONE' || true
    for crash in "build-fuzz/$topic-crash"* "build-fuzz/$topic-timeout"* "build-fuzz/$topic-oom"* "build-fuzz/$topic-leak"*; do
        [ -e "$crash" ] && { echo "found: $crash"; exit 1; }
    done
done
