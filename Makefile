# The front door. `make demo` and `make test` do all the set-up themselves; everything else is a short cut to CMake.
#   PRESET=release|dev|asan|tsan     which build (default release, in build/)
#   ENGINE=auto|wheel|debian         which libtorch `make setup` provides (default auto)
PRESET ?= release
ENGINE ?= auto
ifeq ($(PRESET),release)
BUILD ?= build
else
BUILD ?= build-$(PRESET)
endif
JOBS ?= $(shell nproc)
DATA ?= /usr/share/datasets/fashion-mnist
DEMO_ARGS ?= --epochs=1 --data=$(DATA)
CMAKE_ARGS ?=

.PHONY: help setup configure build demo test bench fuzz format install clean

help:
	@echo "make demo    set up, build, train the image classifier on two processes, show its accuracy"
	@echo "make test    set up, build, run every test"
	@echo "make setup | build | bench | fuzz | format | install | clean"

setup:
	@ENGINE=$(ENGINE) CMAKE_ARGS="$(CMAKE_ARGS)" tools/setup.sh

configure: setup
	@test -f $(BUILD)/build.ninja || cmake --preset $(PRESET) -B $(BUILD) $(CMAKE_ARGS)

build: configure
	@cmake --build $(BUILD) -j $(JOBS)

demo: configure
	@cmake --build $(BUILD) -j $(JOBS) --target fabric image_classifier
	$(BUILD)/bin/fabric run --devices=2 --strategy=ddp $(BUILD)/bin/image_classifier $(DEMO_ARGS)

test: build
	@tools/run_tests.sh $(BUILD)

bench: build
	@tools/run_bench.sh $(BUILD)

fuzz: setup
	@tools/run_fuzz.sh

format:
	@git ls-files '*.c' '*.h' '*.cpp' '*.hpp' | xargs clang-format -i

install: build
	@cmake --install $(BUILD)

clean:
	rm -rf build build-dev build-asan build-tsan build-fuzz build-debian
