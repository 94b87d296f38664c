// bridge/guard.hpp: the catch ladder every bridge entry goes through, and handles seen from C++.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <new>
#include <vector>

extern "C" {
#include "base/error.h"
#include "tensor/internal.h"
}
#include "bridge/bridge.h"

namespace bridge {

static_assert(sizeof(at::Tensor) == sizeof(void *), "a handle stores an at::Tensor in one pointer");

// Carries a pending C error through the engine: thrown after a callback failed, caught by the ladder.
struct PendingError : std::exception {
    const char *what() const noexcept override { return "a callback failed"; }
};

inline at::Tensor &unwrap(th_tensor *t) { return *reinterpret_cast<at::Tensor *>(&t->impl); }
inline const at::Tensor &unwrap(const th_tensor *t) { return *reinterpret_cast<const at::Tensor *>(&t->impl); }

// Checks a handle; raises TH_ERR_TYPE and returns false if it is NULL or dead.
inline bool check(const th_tensor *t, const char *function, const char *argument)
{
    if (TH__LIKELY(t != nullptr && t->magic == TH__TENSOR_LIVE)) return true;
    return th__tensor_check(t, function, argument);
}

// A fresh handle in no scope / in the innermost scope. Throws std::bad_alloc.
th_tensor *own(at::Tensor &&t, const char *creator);
th_tensor *scoped(at::Tensor &&t, const char *creator);
// An array of scoped handles, itself in the innermost scope. Undefined tensors become NULL.
th_tensors scoped_list(std::vector<at::Tensor> &&list, const char *creator);
// The tensors of a list; NULL entries become undefined tensors if `allow_null`, else an error.
std::vector<at::Tensor> tensor_vector(th_tensors list, const char *function, bool allow_null = false);

// Translates the exception in flight to the pending error.
th_status translate(const char *function) noexcept;

// Throws if C code called from C++ left an error.
inline void rethrow_pending()
{
    if (th__pending() != TH_OK) throw PendingError();
}

// A scope around a C callback: whatever the callback made ends with it.
class CallbackScope {
  public:
    CallbackScope() : depth_(th_scope_push()) {}
    ~CallbackScope() { th_scope_pop(depth_); }

  private:
    int depth_;
};

at::ScalarType scalar_type(th_dtype dtype);   // throws for TH_DTYPE_NONE
th_dtype dtype_from(at::ScalarType type);
at::Device device_from(th_device device);     // "not given" is the CPU
th_device device_to_c(at::Device device);

} // namespace bridge

// Runs statements; returns `failure` with the error pending when something is thrown or pending.
#define BRIDGE_TRY(failure, ...)                                          \
    do {                                                                  \
        if (TH__UNLIKELY(th__pending() != TH_OK)) return failure;         \
        try {                                                             \
            __VA_ARGS__                                                   \
        } catch (...) {                                                   \
            ::bridge::translate(__func__);                                \
            return failure;                                               \
        }                                                                 \
    } while (0)
// The same for functions that return a status and have nothing else to return.
#define BRIDGE_STATUS(...)                                                \
    do {                                                                  \
        TH__CHECK_PENDING();                                              \
        try {                                                             \
            __VA_ARGS__                                                   \
            return th__pending();                                         \
        } catch (...) {                                                   \
            return ::bridge::translate(__func__);                         \
        }                                                                 \
    } while (0)
#define BRIDGE_CHECK(failure, tensor)                                     \
    do {                                                                  \
        if (TH__UNLIKELY(!::bridge::check(tensor, __func__, #tensor))) return failure; \
    } while (0)
