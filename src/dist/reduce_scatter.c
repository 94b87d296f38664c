/* dist/reduce_scatter.c: reduce_scatter on backends that have none or a wrong one (Gloo before 2.8 sums whatever it is asked for).
 *
 * Every rank sends each part to the rank that keeps it, which adds them up in rank order: the same bytes on the wire as a ring, any
 * dtype, and a result that does not depend on the backend's algorithm. */
#include "dist/internal.h"
#include <cfabric/ops.h>
#include <string.h>

/* Half types add up in float32 and are rounded once. */
static th_dtype sum_dtype(th_dtype dtype)
{
    bool small = th_dtype_is_floating_point(dtype) && th_dtype_size(dtype) < 4;
    return small ? TH_FLOAT32 : dtype;
}

static void combine(th_tensor *sum, th_tensor *part, th_reduce_op op)
{
    switch (op) {
    case TH_REDUCE_SUM: case TH_REDUCE_AVG: th_add_(sum, part); return;
    case TH_REDUCE_PRODUCT: th_mul_(sum, part); return;
    case TH_REDUCE_MIN: th_copy_(sum, th_minimum(sum, part)); return;
    case TH_REDUCE_MAX: th_copy_(sum, th_maximum(sum, part)); return;
    case TH_REDUCE_BAND: th_bitwise_and_(sum, part); return;
    case TH_REDUCE_BOR: th_bitwise_or_(sum, part); return;
    case TH_REDUCE_BXOR: th_bitwise_xor_(sum, part); return;
    }
}

/* `parts` is [size, n, ...]. */
static th_tensor *reduce_parts(th_tensor *parts, th_reduce_op op)
{
    th_dtype dtype = th_dtype_of(parts), through = op == TH_REDUCE_AVG && dtype < TH_FLOAT16 ? TH_INT64 : sum_dtype(dtype);
    int64_t size = th_size(parts, 0);
    th_tensor *sum = th_clone(th_to_dtype(th_select_int(parts, 0, 0), through));
    for (int64_t i = 1; sum && i < size; i++) {
        TH_SCOPE();
        combine(sum, th_to_dtype(th_select_int(parts, 0, i), through), op);
    }
    if (op == TH_REDUCE_AVG && dtype != TH_BOOL) {
        if (through == TH_INT64)
            th_div_scalar_mode_(sum, TH_S(size), "trunc");
        else
            th_div_scalar_(sum, TH_S(size));
    }
    return th_to_dtype(sum, dtype);
}

static bool sum_only(th_reduce_op op) { return op == TH_REDUCE_SUM || op == TH_REDUCE_AVG; }

th_tensor *th__compat_reduce_scatter(th__call *call, th_tensor *input, th_reduce_op op)
{
    th_process_group *group = call->group;
    th__comm_error error;
    const int scope = th_scope_push();
    bool grad = th_set_grad_enabled(false);
    th_tensor *result = NULL, *dense = th_contiguous(th_resolve_conj(th_detach(input)));
    th_dtype dtype = th_dtype_of(input);
    if (!dense) goto end;
    if ((th_dtype_is_complex(dtype) && !sum_only(op)) || (th_dtype_is_floating_point(dtype) && op >= TH_REDUCE_BAND)) {
        th__fail(TH_ERR_TYPE, call->name, "%s of %s tensors is not defined", th_reduce_op_name(op), th_dtype_name(dtype));
        goto end;
    }
    int64_t sizes[64], n = th_dim(dense);
    th_ints all = th_sizes(dense);
    if (n > 62) {
        th__fail(TH_ERR_VALUE, call->name, "a tensor of %d dimensions, expected at most 62", (int)n);
        goto end;
    }
    for (int64_t i = 0; i < n; i++) sizes[i + 1] = all.data[i];
    sizes[1] /= group->size;
    if (strcmp(group->backend, "nccl") == 0) {
        result = th_empty_memory_format((th_ints){sizes + 1, (size_t)n}, .dtype = dtype, .device = th_device_of(dense));
        if (result && th_numel(result) > 0)
            th__call_wait(call, th__comm_reduce_scatter(group->comm, result, dense, (th__comm_op)op, &error), &error);
        goto end;
    }
    th_device device = th_device_of(dense);
    if (device.type != TH_DEVICE_CPU) dense = th_to_device(dense, TH_CPU, dtype);
    sizes[0] = group->size;
    th_tensor *parts = th_empty_memory_format((th_ints){sizes, (size_t)n + 1}, .dtype = dtype);
    if (!parts) goto end;
    if (th_numel(parts) > 0) {
        th_ints equal = {NULL, 0};
        th__work *work = th__comm_all_to_all(group->comm, th__bytes_of(parts), th__bytes_of(dense), equal, equal, &error);
        if (th__call_wait(call, work, &error) != TH_OK) goto end;
    }
    result = reduce_parts(parts, op);
    if (result && device.type != TH_DEVICE_CPU) result = th_to_device(result, device, dtype);
end:
    th_set_grad_enabled(grad);
    result = th__pending() == TH_OK ? th_escape(result) : NULL;
    th_scope_pop(scope);
    return result;
}
