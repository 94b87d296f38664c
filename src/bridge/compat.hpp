// bridge/compat.hpp: what differs between libtorch versions, in one place. The table is in docs/libtorch-versions.md.
#pragma once

#include <torch/version.h>

#define BRIDGE_TORCH_AT_LEAST(major, minor) \
    (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))
