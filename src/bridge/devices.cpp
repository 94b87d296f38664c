// bridge/devices.cpp: which devices this libtorch can see.
#include "bridge/compat.hpp"
#include "bridge/guard.hpp"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#if BRIDGE_TORCH_AT_LEAST(2, 9)
#include <ATen/DeviceAccelerator.h>
#endif
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <string>

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

th_status th__set_current_device(th_device device)
{
    BRIDGE_STATUS({
        at::Device d = bridge::device_from(device);
        c10::impl::getDeviceGuardImpl(d.type())->setDevice(d.has_index() ? d : at::Device(d.type(), 0));
    });
}

th_status th__empty_device_cache(th_device_type type)
{
#if BRIDGE_TORCH_AT_LEAST(2, 9)
    try {
        at::DeviceType d = bridge::device_from(th_device{type, 0}).type();
        auto current = at::getAccelerator(false);
        if (current.has_value() && *current == d && c10::impl::hasDeviceGuardImpl(d)) at::accelerator::emptyCache();
    } catch (...) {
        return bridge::translate(__func__);
    }
#else
    (void)type;
#endif
    return th__pending();
}

bool th__float32_matmul_is_highest(void)
{
    try {
        return at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST;
    } catch (...) {
        return false;
    }
}

th_status th_set_float32_matmul_precision(const char *precision)
{
    TH__CHECK_PENDING();
    std::string name(precision != nullptr ? precision : "");
    if (name != "highest" && name != "high" && name != "medium")
        return TH__FAIL(TH_ERR_VALUE, "float32 matmul precision '%s' is not known; expected highest, high or medium", name.c_str());
    BRIDGE_STATUS({ at::globalContext().setFloat32MatmulPrecision(name); });
}

} // extern "C"
