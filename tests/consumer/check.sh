#!/bin/sh
# check.sh <build folder> <project> <cc> <libdir>
set -eu
build=$1 project=$2 cc=$3 libdir=$4
work=$build/consumer
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/prefix" >/dev/null
cmake -S "$project" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_C_COMPILER="$cc" >/dev/null
cmake --build "$work/cmake" >/dev/null
"$work/cmake/consumer"
export PKG_CONFIG_PATH="$work/prefix/$libdir/pkgconfig"
"$cc" -std=c17 "$project/main.c" -o "$work/by_pkgconfig" $(pkg-config --cflags --libs cfabric) -Wl,-rpath,"$work/prefix/$libdir"
"$work/by_pkgconfig"
rm -rf "$work"
