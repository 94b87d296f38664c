// bridge/autocast.cpp: autocast through the old API (up to 2.3: one set of functions per device) and the new one (2.4 and later).
#include "bridge/autocast.h"
#include "bridge/compat.hpp"
#include "bridge/guard.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

namespace {

at::DeviceType kind(th_device_type type) { return bridge::device_from(th_device{type, -1}).type(); }

#if BRIDGE_TORCH_AT_LEAST(2, 4)
bool enabled(at::DeviceType type) { return at::autocast::is_autocast_enabled(type); }
void set_enabled(at::DeviceType type, bool on) { at::autocast::set_autocast_enabled(type, on); }
at::ScalarType dtype_of(at::DeviceType type) { return at::autocast::get_autocast_dtype(type); }
void set_dtype(at::DeviceType type, at::ScalarType dtype) { at::autocast::set_autocast_dtype(type, dtype); }
#else
bool on_cpu(at::DeviceType type)
{
    TORCH_CHECK(type == at::kCPU || type == at::kCUDA, "autocast on '", type, "' needs libtorch 2.4 or later");
    return type == at::kCPU;
}
bool enabled(at::DeviceType type) { return on_cpu(type) ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled(); }
void set_enabled(at::DeviceType type, bool on)
{
    if (on_cpu(type))
        at::autocast::set_cpu_enabled(on);
    else
        at::autocast::set_enabled(on);
}
at::ScalarType dtype_of(at::DeviceType type)
{
    return on_cpu(type) ? at::autocast::get_autocast_cpu_dtype() : at::autocast::get_autocast_gpu_dtype();
}
void set_dtype(at::DeviceType type, at::ScalarType dtype)
{
    if (on_cpu(type))
        at::autocast::set_autocast_cpu_dtype(dtype);
    else
        at::autocast::set_autocast_gpu_dtype(dtype);
}
#endif

} // namespace

extern "C" {

bool th__autocast_is_enabled(th_device_type type)
{
    try {
        return enabled(kind(type));
    } catch (...) {
        return false;
    }
}

th_status th__autocast_enter(th_device_type type, th_dtype dtype, bool on, th__autocast_state *old)
{
    BRIDGE_STATUS({
        at::DeviceType device = kind(type);
        at::ScalarType to = bridge::scalar_type(dtype);
        th__autocast_state before{type, bridge::dtype_from(dtype_of(device)), enabled(device), true};
        set_dtype(device, to);
        set_enabled(device, on);
        at::autocast::increment_nesting();
        *old = before;
    });
}

void th__autocast_exit(const th__autocast_state *old)
{
    if (!old->entered) return;
    try {
        at::DeviceType device = kind(old->device);
        if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
        set_enabled(device, old->enabled);
        set_dtype(device, bridge::scalar_type(old->dtype));
    } catch (...) { /* what was entered can be left */
    }
}

void th__restore_default_dtype(th_dtype dtype)
{
    try {
        at::set_default_dtype(at::scalarTypeToTypeMeta(bridge::scalar_type(dtype)));
    } catch (...) { /* it has been the default before */
    }
}

bool th__half_works_on_cpu(void)
{
    static const bool works = [] {
#if BRIDGE_TORCH_AT_LEAST(2, 3)
        try {
            auto x = at::ones({2, 2}, at::kHalf);
            at::mm(x, x);
            return true;
        } catch (...) {
        }
#endif
        return false;
    }();
    return works;
}

bool th__autocast_supports(th_device_type type, th_dtype dtype)
{
    if (dtype == TH_BFLOAT16) return type == TH_DEVICE_CPU || type == TH_DEVICE_CUDA || BRIDGE_TORCH_AT_LEAST(2, 5);
    if (dtype != TH_FLOAT16) return false;
    return type == TH_DEVICE_CPU ? th__half_works_on_cpu() : type == TH_DEVICE_CUDA || BRIDGE_TORCH_AT_LEAST(2, 5);
}

} // extern "C"
