/* data/tensors.c: the few tensor operations this room needs, all in one place. */
#include "data/tensors.h"

#include "base/error.h"
#include "base/memory.h"
#include "bridge/bridge.h"
#include <cfabric/autograd.h>
#include <cfabric/ops.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIMS = 16 };

th_tensor *th__data_empty(th_ints sizes, th_dtype dtype) { return th_empty_memory_format(sizes, .dtype = dtype); }

th_tensor *th__data_empty_rows(int64_t n, th_ints sizes, th_dtype dtype)
{
    int64_t all[MAX_DIMS + 1];
    if (sizes.size > MAX_DIMS) {
        TH__FAIL(TH_ERR_VALUE, "samples have %zu dimensions, at most %d are supported", sizes.size, MAX_DIMS);
        return NULL;
    }
    all[0] = n;
    for (size_t i = 0; i < sizes.size; i++) all[i + 1] = sizes.data[i];
    return th__data_empty((th_ints){all, sizes.size + 1}, dtype);
}

/* Memory that can be copied as it lies, and no gradient that would have to flow through the copy. */
static bool is_plain(th_tensor *tensor)
{
    return th_device_of(tensor).type == TH_DEVICE_CPU && th_is_contiguous_of(tensor) && !th_requires_grad(tensor);
}

static bool same_shape(th_tensor *a, th_tensor *b)
{
    th_ints left = th_sizes(a), right = th_sizes(b);
    return th_dtype_of(a) == th_dtype_of(b) && left.size == right.size &&
           (left.size == 0 || memcmp(left.data, right.data, left.size * sizeof *left.data) == 0);
}

th_tensor *th__data_stack(th_tensors tensors)
{
    for (size_t i = 0; i < tensors.size; i++)
        if (!is_plain(tensors.data[i]) || !same_shape(tensors.data[0], tensors.data[i])) return th_stack(tensors);
    TH__CHECK_PENDING_NULL();
    size_t bytes = th_nbytes(tensors.data[0]);
    th_tensor *out = th__data_empty_rows((int64_t)tensors.size, th_sizes(tensors.data[0]), th_dtype_of(tensors.data[0]));
    char *target = th_data_ptr(out);
    if (out == NULL || (target == NULL && bytes > 0)) return NULL;
    for (size_t i = 0; i < tensors.size && bytes > 0; i++) memcpy(target + i * bytes, th_data_ptr(tensors.data[i]), bytes);
    return out;
}

th_tensor *th__data_first(th_tensor *tensor) { return th_select_int(tensor, 0, 0); }

th_tensor *th__data_rows(th_tensor *tensor, const int64_t *indices, size_t n)
{
    if (!is_plain(tensor)) {
        th_tensor *index = th_tensor_from(indices, TH_INTS((int64_t)n), TH_INT64);
        th_device device = th_device_of(tensor);
        if (device.type != TH_DEVICE_CPU) index = th_to_device(index, device, th_dtype_of(index));
        return th_index_select(tensor, 0, index);
    }
    th_ints sizes = th_sizes(tensor);
    th_tensor *out = th__data_empty_rows((int64_t)n, (th_ints){sizes.data + 1, sizes.size - 1}, th_dtype_of(tensor));
    char *target = th_data_ptr(out);
    const char *source = th_data_ptr(tensor);
    if (out == NULL || sizes.data[0] == 0 || target == NULL || source == NULL) return out;
    size_t bytes = th_nbytes(tensor) / (size_t)sizes.data[0];
    for (size_t i = 0; i < n; i++) {
#ifdef __GNUC__ /* rows come in random order: ask for the next one early */
        if (i + 1 < n) __builtin_prefetch(source + (size_t)indices[i + 1] * bytes);
#endif
        memcpy(target + i * bytes, source + (size_t)indices[i] * bytes, bytes);
    }
    return out;
}

/* Copies a dense int64 tensor out. [owned] */
static int64_t *to_list(th_tensor *tensor, int64_t n)
{
    if (tensor == NULL) return NULL;
    int64_t *list = th__malloc((size_t)n * sizeof *list);
    if (list == NULL) return NULL;
    if (th_copy_to(tensor, list, (size_t)n * sizeof *list, TH_INT64) != TH_OK) {
        free(list);
        return NULL;
    }
    return list;
}

int64_t *th__data_randperm(int64_t n, th_generator *generator)
{
    TH_SCOPE();
    return to_list(th_randperm_generator(n, .generator = generator, .dtype = TH_INT64), n);
}

int64_t *th__data_randint(int64_t high, int64_t n, th_generator *generator)
{
    TH_SCOPE();
    return to_list(th_randint_generator(high, TH_INTS(n), .generator = generator, .dtype = TH_INT64), n);
}

int64_t *th__data_multinomial(th_doubles weights, int64_t n, bool replacement, th_generator *generator)
{
    TH_SCOPE();
    th_tensor *table = th_tensor_from(weights.data, TH_INTS((int64_t)weights.size), TH_FLOAT64);
    return to_list(th_multinomial(table, n, .replacement = replacement, .generator = generator), n);
}

int64_t th__data_random_seed(th_generator *generator)
{
    uint64_t bits = th_generator_random64(generator != NULL ? generator : th_default_generator());
    return (int64_t)(bits & (uint64_t)INT64_MAX); /* random_() keeps 0 .. 2^63 - 1 */
}

bool th__data_can_pin(void) { return th__cuda_device_count() > 0; }

th_tensor *th__data_pin(th_tensor *tensor) { return th_call("aten::pin_memory", TH_A(tensor), TH_A_NONE); }
