// bridge/handle.cpp: making and ending handles, the catch ladder, and dtype and device numbers on both sides.
#include "bridge/guard.hpp"

extern "C" {
#include "base/allocator.h"
}

#include <atomic>
#include <cstdlib>
#include <string>

namespace bridge {

static std::atomic<bool> engine_used{false};

th_tensor *own(at::Tensor &&t, const char *creator)
{
    auto *handle = static_cast<th_tensor *>(std::malloc(sizeof(th_tensor)));
    if (handle == nullptr) throw std::bad_alloc();
    handle->magic = TH__TENSOR_LIVE;
    handle->slot = 0;
    handle->home = nullptr;
    handle->creator = creator;
    new (&handle->impl) at::Tensor(std::move(t));
    if (TH__UNLIKELY(!engine_used.load(std::memory_order_relaxed)) && !engine_used.exchange(true)) th__allocator_tune();
    return handle;
}

th_tensor *scoped(at::Tensor &&t, const char *creator) { return th__scope_adopt(own(std::move(t), creator)); }

th_tensors scoped_list(std::vector<at::Tensor> &&list, const char *creator)
{
    auto **data = static_cast<th_tensor **>(th__scope_alloc((list.size() + 1) * sizeof(th_tensor *)));
    if (data == nullptr) throw PendingError();
    for (size_t i = 0; i < list.size(); i++) data[i] = list[i].defined() ? scoped(std::move(list[i]), creator) : nullptr;
    return th_tensors{data, list.size()};
}

std::vector<at::Tensor> tensor_vector(th_tensors list, const char *function, bool allow_null)
{
    std::vector<at::Tensor> result;
    result.reserve(list.size);
    for (size_t i = 0; i < list.size; i++) {
        if (list.data[i] == nullptr && allow_null) {
            result.emplace_back();
            continue;
        }
        if (!check(list.data[i], function, "a tensor of the list")) throw PendingError();
        result.push_back(unwrap(list.data[i]));
    }
    return result;
}

// C++ texts end in a backtrace that means nothing to a C programmer.
static std::string first_part(const char *what)
{
    std::string text(what);
    for (const char *mark : {"\nException raised from", "\nCPU: registered at", "\n\nFeel free to"}) {
        auto at = text.find(mark);
        if (at != std::string::npos) text.resize(at);
    }
    return text;
}

th_status translate(const char *function) noexcept
{
    try {
        throw;
    } catch (const PendingError &) {
        return th__pending() != TH_OK ? th__pending() : th__fail(TH_ERR_CALLBACK, function, "a callback failed");
    } catch (const c10::NotImplementedError &e) {
        return th__fail(TH_ERR_NOT_IMPLEMENTED, function, "%s", first_part(e.what_without_backtrace()).c_str());
    } catch (const c10::Error &e) {
        return th__fail(TH_ERR_ENGINE, function, "%s", first_part(e.what_without_backtrace()).c_str());
    } catch (const std::bad_alloc &) {
        return th__fail(TH_ERR_MEMORY, function, "out of memory");
    } catch (const std::exception &e) {
        return th__fail(TH_ERR_ENGINE, function, "%s", first_part(e.what()).c_str());
    } catch (...) {
        return th__fail(TH_ERR_ENGINE, function, "an unknown C++ exception");
    }
}

// cfabric's dtype numbers are at::ScalarType's plus one.
static_assert((int)at::ScalarType::Byte + 1 == TH_UINT8 && (int)at::ScalarType::Float + 1 == TH_FLOAT32 &&
              (int)at::ScalarType::ComplexDouble + 1 == TH_COMPLEX128 && (int)at::ScalarType::Bool + 1 == TH_BOOL &&
              (int)at::ScalarType::BFloat16 + 1 == TH_BFLOAT16, "dtype numbers");

at::ScalarType scalar_type(th_dtype dtype)
{
    TORCH_CHECK(dtype > TH_DTYPE_NONE && dtype - 1 < (int)at::ScalarType::Undefined, "dtype ", (int)dtype,
                " is not known to this libtorch");
    return static_cast<at::ScalarType>(dtype - 1);
}

th_dtype dtype_from(at::ScalarType type)
{
    return type == at::ScalarType::Undefined ? TH_DTYPE_NONE : static_cast<th_dtype>((int)type + 1);
}

at::Device device_from(th_device device)
{
    auto index = static_cast<c10::DeviceIndex>(device.index);
    switch (device.type) {
    case TH_DEVICE_NONE:
    case TH_DEVICE_CPU: return at::Device(at::kCPU);
    case TH_DEVICE_CUDA: return at::Device(at::kCUDA, index);
    case TH_DEVICE_MPS: return at::Device(at::kMPS, index);
    case TH_DEVICE_XLA: return at::Device(at::kXLA, index);
    case TH_DEVICE_META: return at::Device(at::kMeta);
    case TH_DEVICE_OTHER: break;
    }
    TORCH_CHECK(false, "device type ", (int)device.type, " is not known");
}

th_device device_to_c(at::Device device)
{
    int index = device.has_index() ? device.index() : -1;
    if (device.type() == at::kCPU) return th_device{TH_DEVICE_CPU, -1};
    if (device.type() == at::kCUDA) return th_device{TH_DEVICE_CUDA, index};
    if (device.type() == at::kMPS) return th_device{TH_DEVICE_MPS, index};
    if (device.type() == at::kXLA) return th_device{TH_DEVICE_XLA, index};
    if (device.type() == at::kMeta) return th_device{TH_DEVICE_META, -1};
    return th_device{TH_DEVICE_OTHER, index};
}

} // namespace bridge

extern "C" {

void th__handle_clear(th_tensor *tensor)
{
    using at::Tensor;
    bridge::unwrap(tensor).~Tensor();
    tensor->magic = TH__TENSOR_DEAD;
    tensor->home = nullptr;
}

void th__handle_destroy(th_tensor *tensor)
{
    th__handle_clear(tensor);
    std::free(tensor);
}

th_tensor *th__handle_dup(const th_tensor *tensor)
{
    try {
        return bridge::own(at::Tensor(bridge::unwrap(tensor)), tensor->creator);
    } catch (...) {
        bridge::translate(__func__);
        return nullptr;
    }
}

bool th__engine_has_run(void) { return bridge::engine_used.load(std::memory_order_relaxed); }

} // extern "C"
