// bridge/devices.cpp: which devices this libtorch can see.
#include "bridge/compat.hpp"
#include "bridge/guard.hpp"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>

extern "C" {

int th__cuda_device_count(void)
{
    try {
        return at::hasCUDA() ? static_cast<int>(at::detail::getCUDAHooks().getNumGPUs()) : 0;
    } catch (...) {
        return 0; /* a driver that does not answer means no device */
    }
}

bool th__mps_is_available(void)
{
    try {
        return at::hasMPS();
    } catch (...) {
        return false;
    }
}

} // extern "C"
