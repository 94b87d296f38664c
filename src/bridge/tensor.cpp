// bridge/tensor.cpp: tensors from and to C memory, looking at them, storage surgery.
#include "bridge/compat.hpp"
#include "bridge/guard.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/DefaultDtype.h>
#include <cmath>
#include <cstring>
#include <string>

namespace {

std::vector<int64_t> ints(th_ints list) { return std::vector<int64_t>(list.data, list.data + list.size); }

int64_t wrapped_dim(const at::Tensor &t, int64_t dim)
{
    return at::maybe_wrap_dim(dim, t.dim());
}

at::Tensor one_element(th_tensor *tensor, const char *function)
{
    const auto &t = bridge::unwrap(tensor);
    if (t.numel() != 1) {
        th__fail(TH_ERR_VALUE, function, "a tensor with %lld elements cannot be converted to a number, expected 1 element",
                 (long long)t.numel());
        throw bridge::PendingError();
    }
    return t;
}

} // namespace

extern "C" {

th_tensor *th_tensor_from(const void *data, th_ints sizes, th_dtype dtype)
{
    BRIDGE_TRY(nullptr, {
        auto tensor = at::empty(ints(sizes), at::TensorOptions().dtype(bridge::scalar_type(dtype)));
        if (tensor.nbytes() > 0) {
            if (data == nullptr) {
                TH__FAIL(TH_ERR_VALUE, "data is NULL, expected %zu bytes", (size_t)tensor.nbytes());
                return nullptr;
            }
            std::memcpy(tensor.data_ptr(), data, tensor.nbytes());
        }
        return bridge::scoped(std::move(tensor), "th_tensor_from");
    });
}

th_tensor *th_tensor_scalar(th_scalar value, th_dtype dtype)
{
    BRIDGE_TRY(nullptr, {
        at::Scalar scalar;
        at::ScalarType type = at::kLong;
        if (value.kind == TH_SCALAR_DOUBLE) {
            scalar = value.d;
            type = at::typeMetaToScalarType(at::get_default_dtype());
        } else if (value.kind == TH_SCALAR_BOOL) {
            scalar = value.i != 0;
            type = at::kBool;
        } else if (value.kind == TH_SCALAR_COMPLEX) {
            scalar = c10::complex<double>(value.d, value.imag);
            type = at::kComplexFloat;
        } else {
            scalar = value.i;
        }
        if (dtype != TH_DTYPE_NONE) type = bridge::scalar_type(dtype);
        return bridge::scoped(at::scalar_tensor(scalar, at::TensorOptions().dtype(type)), "th_tensor_scalar");
    });
}

th_tensor *th_from_blob_call(struct th_from_blob_args a)
{
    BRIDGE_TRY(nullptr, {
        auto options = at::TensorOptions().dtype(bridge::scalar_type(a.dtype)).device(bridge::device_from(a.device));
        auto sizes = ints(a.sizes);
        if (a.data == nullptr) {
            TH__FAIL(TH_ERR_VALUE, "data is NULL");
            return nullptr;
        }
        std::vector<int64_t> strides;
        if (a.strides.data != nullptr) {
            strides = ints(a.strides);
            if (strides.size() != sizes.size()) {
                TH__FAIL(TH_ERR_VALUE, "%zu strides for %zu dimensions", strides.size(), sizes.size());
                return nullptr;
            }
        } else {
            strides.assign(sizes.size(), 1);
            for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<int64_t>(sizes[i], 1);
        }
        auto deleter = a.deleter;
        auto *user = a.user;
        auto tensor = deleter != nullptr
                          ? at::from_blob(a.data, sizes, strides, [deleter, user](void *p) { deleter(p, user); }, options)
                          : at::from_blob(a.data, sizes, strides, options);
        return bridge::scoped(std::move(tensor), "th_from_blob");
    });
}

th_status th_copy_to(th_tensor *tensor, void *out, size_t size, th_dtype dtype)
{
    TH__CHECK_PENDING();
    BRIDGE_CHECK(th__pending(), tensor);
    BRIDGE_STATUS({
        auto dense = bridge::unwrap(tensor).detach().to(at::kCPU, bridge::scalar_type(dtype)).contiguous();
        if (dense.nbytes() != size) {
            return TH__FAIL(TH_ERR_VALUE, "the tensor has %zu bytes as %s, the destination %zu", (size_t)dense.nbytes(),
                            th_dtype_name(dtype), size);
        }
        if (size > 0) std::memcpy(out, dense.data_ptr(), size);
    });
}

void *th_data_ptr(th_tensor *tensor)
{
    BRIDGE_CHECK(nullptr, tensor);
    BRIDGE_TRY(nullptr, {
        const auto &t = bridge::unwrap(tensor);
        return t.has_storage() && !t.is_meta() ? t.data_ptr() : nullptr;
    });
}

double th_item(th_tensor *tensor)
{
    BRIDGE_TRY(NAN, {
        BRIDGE_CHECK(NAN, tensor);
        return one_element(tensor, __func__).item().toDouble();
    });
}

int64_t th_item_int(th_tensor *tensor)
{
    BRIDGE_TRY(0, {
        BRIDGE_CHECK(0, tensor);
        return one_element(tensor, __func__).item().toLong();
    });
}

/* ---------------------------------------------------------------- looking */

int64_t th_dim(th_tensor *tensor)
{
    BRIDGE_TRY(-1, {
        BRIDGE_CHECK(-1, tensor);
        return bridge::unwrap(tensor).dim();
    });
}

int64_t th_size(th_tensor *tensor, int64_t dim)
{
    BRIDGE_TRY(-1, {
        BRIDGE_CHECK(-1, tensor);
        const auto &t = bridge::unwrap(tensor);
        return t.size(wrapped_dim(t, dim));
    });
}

int64_t th_stride(th_tensor *tensor, int64_t dim)
{
    BRIDGE_TRY(-1, {
        BRIDGE_CHECK(-1, tensor);
        const auto &t = bridge::unwrap(tensor);
        return t.stride(wrapped_dim(t, dim));
    });
}

th_ints th_sizes(th_tensor *tensor)
{
    BRIDGE_TRY(th_ints{}, {
        BRIDGE_CHECK(th_ints{}, tensor);
        auto sizes = bridge::unwrap(tensor).sizes();
        return th_ints{sizes.data(), sizes.size()};
    });
}

th_ints th_strides(th_tensor *tensor)
{
    BRIDGE_TRY(th_ints{}, {
        BRIDGE_CHECK(th_ints{}, tensor);
        auto strides = bridge::unwrap(tensor).strides();
        return th_ints{strides.data(), strides.size()};
    });
}

int64_t th_numel(th_tensor *tensor)
{
    BRIDGE_TRY(-1, {
        BRIDGE_CHECK(-1, tensor);
        return bridge::unwrap(tensor).numel();
    });
}

int64_t th_storage_offset(th_tensor *tensor)
{
    BRIDGE_TRY(-1, {
        BRIDGE_CHECK(-1, tensor);
        return bridge::unwrap(tensor).storage_offset();
    });
}

th_dtype th_dtype_of(th_tensor *tensor)
{
    BRIDGE_TRY(TH_DTYPE_NONE, {
        BRIDGE_CHECK(TH_DTYPE_NONE, tensor);
        return bridge::dtype_from(bridge::unwrap(tensor).scalar_type());
    });
}

th_device th_device_of(th_tensor *tensor)
{
    BRIDGE_TRY(th_device{}, {
        BRIDGE_CHECK(th_device{}, tensor);
        return bridge::device_to_c(bridge::unwrap(tensor).device());
    });
}

th_layout th_layout_of(th_tensor *tensor)
{
    BRIDGE_TRY(TH_LAYOUT_NONE, {
        BRIDGE_CHECK(TH_LAYOUT_NONE, tensor);
        switch (bridge::unwrap(tensor).layout()) {
        case at::kStrided: return TH_STRIDED;
        case at::kSparse: return TH_SPARSE;
        case at::kSparseCsr: return TH_SPARSE_CSR;
        default: return TH_LAYOUT_NONE;
        }
    });
}

bool th_is_contiguous_of(th_tensor *tensor)
{
    BRIDGE_TRY(false, {
        BRIDGE_CHECK(false, tensor);
        return bridge::unwrap(tensor).is_contiguous();
    });
}

size_t th_nbytes(th_tensor *tensor)
{
    BRIDGE_TRY(0, {
        BRIDGE_CHECK(0, tensor);
        const auto &t = bridge::unwrap(tensor);
        return static_cast<size_t>(t.numel()) * t.element_size();
    });
}

bool th_is_same(const th_tensor *a, const th_tensor *b)
{
    if (a == nullptr || b == nullptr || a->magic != TH__TENSOR_LIVE || b->magic != TH__TENSOR_LIVE) return false;
    return bridge::unwrap(a).is_same(bridge::unwrap(b));
}

const void *th_storage_id(th_tensor *tensor)
{
    BRIDGE_TRY(nullptr, {
        BRIDGE_CHECK(nullptr, tensor);
        const auto &t = bridge::unwrap(tensor);
        return t.has_storage() ? t.storage().unsafeGetStorageImpl() : nullptr;
    });
}

/* ---------------------------------------------------------------- storage surgery */

th_tensor *th__tensor_on_storage(th_tensor *bytes, th_dtype dtype, int64_t offset, th_ints sizes, th_ints strides)
{
    BRIDGE_TRY(nullptr, {
        BRIDGE_CHECK(nullptr, bytes);
        auto tensor = at::empty({0}, at::TensorOptions().dtype(bridge::scalar_type(dtype)).device(bridge::unwrap(bytes).device()));
        tensor.set_(bridge::unwrap(bytes).storage(), offset, ints(sizes), ints(strides));
        return bridge::scoped(std::move(tensor), "th__tensor_on_storage");
    });
}

void *th__storage_data(th_tensor *tensor, size_t *bytes)
{
    BRIDGE_TRY(nullptr, {
        BRIDGE_CHECK(nullptr, tensor);
        auto storage = bridge::unwrap(tensor).storage();
        *bytes = storage.nbytes();
        return const_cast<void *>(static_cast<const void *>(storage.unsafeGetStorageImpl()->data_ptr().get()));
    });
}

th_status th__storage_free(th_tensor *tensor)
{
    TH__CHECK_PENDING();
    BRIDGE_CHECK(th__pending(), tensor);
    BRIDGE_STATUS({
        auto *storage = bridge::unwrap(tensor).storage().unsafeGetStorageImpl();
        storage->set_data_ptr(at::DataPtr(nullptr, storage->device()));
        storage->set_nbytes(0);
    });
}

th_status th__storage_alloc(th_tensor *tensor, size_t bytes)
{
    TH__CHECK_PENDING();
    BRIDGE_CHECK(th__pending(), tensor);
    BRIDGE_STATUS({
        auto *storage = bridge::unwrap(tensor).storage().unsafeGetStorageImpl();
        storage->set_data_ptr(storage->allocator()->allocate(bytes));
        storage->set_nbytes(bytes);
    });
}

/* ---------------------------------------------------------------- default dtype, threads, version */

th_dtype th_get_default_dtype(void) { return bridge::dtype_from(at::typeMetaToScalarType(at::get_default_dtype())); }

th_status th_set_default_dtype(th_dtype dtype)
{
    BRIDGE_STATUS({
        if (!th_dtype_is_floating_point(dtype))
            return TH__FAIL(TH_ERR_TYPE, "dtype '%s' is not a floating-point type", th_dtype_name(dtype));
        at::set_default_dtype(at::scalarTypeToTypeMeta(bridge::scalar_type(dtype)));
    });
}

int th_get_num_threads(void) { return at::get_num_threads(); }

th_status th_set_num_threads(int threads)
{
    BRIDGE_STATUS({
        if (threads < 1) return TH__FAIL(TH_ERR_VALUE, "threads is %d, expected 1 or more", threads);
        at::set_num_threads(threads);
    });
}

const char *th_torch_version(void)
{
    static const char version[] =
#define VERSION_TEXT_(x) #x
#define VERSION_TEXT(x) VERSION_TEXT_(x)
        VERSION_TEXT(TORCH_VERSION_MAJOR) "." VERSION_TEXT(TORCH_VERSION_MINOR) "." VERSION_TEXT(TORCH_VERSION_PATCH);
    return version;
}

char *th__engine_config(void)
{
    BRIDGE_TRY(nullptr, {
        auto text = at::show_config();
        return strdup(text.c_str());
    });
}

} // extern "C"
