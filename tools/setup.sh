#!/bin/sh
# Installs what this machine lacks: Debian packages for building and testing, and a libtorch. A second run finds everything there.
#   ENGINE=wheel    the PyTorch wheel in the project's .venv (it is only the carrier of libtorch)
#   ENGINE=debian   Debian's libtorch-dev
#   ENGINE=auto     the wheel; Debian's if no Python registry answers
# A libtorch given by CMAKE_ARGS (-DTorch_DIR=..., -DCMAKE_PREFIX_PATH=...) or by an active environment is taken as it is.
set -eu
cd "$(dirname "$0")/.."
ENGINE=${ENGINE:-auto}
TORCH_VERSION=2.13.0

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null 2>&1; then sudo "$@"
    else fail "cannot run '$*': not root and there is no sudo"; fi
}

install_packages() {
    missing=
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null 2>&1 || fail "please install these packages (or their like):$missing"
    say "installing$missing"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

wheel_is_there() {
    [ -x .venv/bin/python3 ] && .venv/bin/python3 -c "import importlib.metadata as m; assert m.version('torch').split('+')[0] == '$TORCH_VERSION'" 2>/dev/null
}

pip_install() { .venv/bin/python3 -m pip install -q --disable-pip-version-check --retries 2 --timeout 30 "$@"; }

install_wheel() {
    wheel_is_there && return 0
    say "installing the PyTorch $TORCH_VERSION wheel into .venv"
    [ -x .venv/bin/python3 ] || python3 -m venv .venv || return 1
    pip_install numpy "torch==$TORCH_VERSION" || return 1
    # The peers of the golden tests and benchmarks; the tests say so when they are missing.
    pip_install "torch==$TORCH_VERSION" lightning-fabric safetensors || say "lightning-fabric or safetensors not available: some comparisons will be skipped"
}

case $ENGINE in auto | wheel | debian) ;; *) fail "ENGINE is '$ENGINE', expected auto, wheel or debian" ;; esac

install_packages gcc g++ make cmake ninja-build pkg-config libc6-dev zlib1g-dev libcjson-dev libcmocka-dev dataset-fashion-mnist

given=no
case "${CMAKE_ARGS:-}" in *Torch_DIR* | *CMAKE_PREFIX_PATH*) given=yes ;; esac
if [ -n "${VIRTUAL_ENV:-}" ] && "$VIRTUAL_ENV/bin/python3" -c 'import torch' 2>/dev/null; then given=yes; fi

if [ "$given" = yes ]; then
    say "using the libtorch that was given"
elif [ "$ENGINE" = debian ]; then
    install_packages libtorch-dev libopenblas0-pthread
else
    install_packages python3 python3-venv
    if ! install_wheel; then
        [ "$ENGINE" = auto ] || fail "the PyTorch wheel cannot be installed"
        rm -rf .venv
        say "no Python registry answers: falling back to Debian's libtorch"
        install_packages libtorch-dev libopenblas0-pthread
    fi
fi
