/* dist/gloo_compat.c: makes every collective right for every tensor, whatever the backend can do.
 *
 * Moving data (broadcast, gather, ...) goes by bytes, so any dtype works. Reductions go through a dtype the backend adds up:
 *   bool -> int32 (then != 0)    int16, uint16 -> int32    uint32 -> int64    float8 -> float32    complex -> its real view
 *   float16, bfloat16 -> float32 where Gloo was built without them    integers averaged -> int64
 * Gloo's silent errors are avoided: a strided tensor is made contiguous and copied back, no elements means no transfer, and NaN is
 * carried through min and max (Gloo drops it). Averages are sums divided by the group's size, as Lightning does on Gloo. */
#include "dist/internal.h"
#include <cfabric/ops.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

th_tensor *th__bytes_of(th_tensor *contiguous)
{
    size_t n = th_nbytes(contiguous);
    return th_from_blob(th_data_ptr(contiguous), TH_INTS((int64_t)n), TH_UINT8, .device = th_device_of(contiguous));
}

/* ---------------------------------------------------------------- what the backend can do */

/* Gloo is built with or without half types; ask it, with one element each. */
static bool reduces(th_process_group *group, th_dtype dtype)
{
    TH_SCOPE();
    th__comm_error error;
    th_tensor *one = th_ones(TH_INTS(1), .dtype = dtype, .device = group->device);
    if (!one) return false;
    th__work *work = th__comm_all_reduce(group->comm, one, TH__COMM_SUM, &error);
    bool ok = work && th__work_wait(work, group->timeout_ms, &error);
    if (work) th__work_free(work);
    return ok && th_item(one) == (double)group->size;
}

th_status th__compat_probe(th_process_group *group)
{
    bool gloo = strcmp(group->backend, "gloo") == 0, nccl = strcmp(group->backend, "nccl") == 0;
    group->caps = (th__comm_caps){.host_only = gloo, .half = nccl, .bfloat16 = nccl};
    if (!gloo || !group->comm) return TH_OK;
    group->caps.half = reduces(group, TH_FLOAT16);
    group->caps.bfloat16 = reduces(group, TH_BFLOAT16);
    return th__pending();
}

/* ---------------------------------------------------------------- reductions */

/* The dtype in which `dtype` is reduced, TH_DTYPE_NONE if this operation does not exist for it. */
static th_dtype reduction_dtype(const th_process_group *group, th_dtype dtype, th_reduce_op op)
{
    const th__comm_caps *caps = &group->caps;
    bool bitwise = op >= TH_REDUCE_BAND;
    switch (dtype) {
    case TH_FLOAT32: case TH_FLOAT64: return bitwise ? TH_DTYPE_NONE : dtype;
    case TH_FLOAT16: return bitwise ? TH_DTYPE_NONE : caps->half ? dtype : TH_FLOAT32;
    case TH_BFLOAT16: return bitwise ? TH_DTYPE_NONE : caps->bfloat16 ? dtype : TH_FLOAT32;
    case TH_FLOAT8_E5M2: case TH_FLOAT8_E4M3FN: case TH_FLOAT8_E5M2FNUZ: case TH_FLOAT8_E4M3FNUZ:
        return bitwise ? TH_DTYPE_NONE : TH_FLOAT32;
    case TH_UINT8: case TH_INT8: case TH_INT32: return op == TH_REDUCE_AVG ? TH_INT64 : dtype;
    case TH_INT64: return dtype;
    case TH_INT16: case TH_UINT16: return op == TH_REDUCE_AVG ? TH_INT64 : TH_INT32;
    case TH_UINT32: return TH_INT64;
    case TH_BOOL: return TH_INT32;
    default: return TH_DTYPE_NONE;
    }
}

/* On 0 and 1 the bitwise operations are these; "any" and "all" follow from != 0 at the end. */
static th_reduce_op bool_op(th_reduce_op op)
{
    switch (op) {
    case TH_REDUCE_BAND: case TH_REDUCE_PRODUCT: return TH_REDUCE_MIN;
    case TH_REDUCE_BOR: case TH_REDUCE_AVG: case TH_REDUCE_SUM: return TH_REDUCE_MAX;
    default: return op;
    }
}

static th_status native_reduce(th__call *call, th_tensor *buffer, th_reduce_op op, int root)
{
    th__comm_error error;
    th__comm *comm = call->group->comm;
    th__comm_op native = op == TH_REDUCE_AVG ? TH__COMM_SUM : (th__comm_op)op;
    th__work *work = root < 0 ? th__comm_all_reduce(comm, buffer, native, &error)
                              : th__comm_reduce(comm, buffer, native, root, &error);
    return th__call_wait(call, work, &error);
}

/* NaN beats every number. One small extra reduction tells whether there is any; only then are the places exchanged. */
static th_status reduce_extremes(th__call *call, th_tensor *buffer, th_reduce_op op, int root)
{
    th_tensor *nan = th_isnan(buffer);
    th_tensor *any = th_to_dtype(th_any(nan), TH_INT32);
    TH__CHECK_PENDING();
    TH__TRY(native_reduce(call, any, TH_REDUCE_MAX, -1));
    if (th_item_int(any) == 0) return native_reduce(call, buffer, op, root);
    double worst = op == TH_REDUCE_MAX ? -INFINITY : INFINITY;
    th_tensor *where = th_to_dtype(nan, TH_UINT8);
    th_masked_fill_scalar_(buffer, nan, TH_S(worst));
    TH__CHECK_PENDING();
    TH__TRY(native_reduce(call, where, TH_REDUCE_MAX, root));
    TH__TRY(native_reduce(call, buffer, op, root));
    th_masked_fill_scalar_(buffer, th_to_dtype(where, TH_BOOL), TH_S((double)NAN));
    return th__pending();
}

static th_status unsupported(th__call *call, th_dtype dtype, th_reduce_op op)
{
    return th__fail(TH_ERR_TYPE, call->name, "%s of %s tensors is not defined; %s", th_reduce_op_name(op), th_dtype_name(dtype),
                    th_dtype_is_complex(dtype) ? "complex tensors can be summed and averaged"
                                               : "bitwise operations need integers or bool");
}

/* Divides a sum; integers exactly, cut towards zero. */
static th_tensor *averaged(th_tensor *sum, int size)
{
    th_dtype dtype = th_dtype_of(sum);
    if (th_dtype_is_floating_point(dtype)) return th_div_scalar_(sum, TH_S((double)size));
    return th_div_scalar_mode_(sum, TH_S((int64_t)size), "trunc");
}

/* `plain` has no autograd history. */
static th_status reduce_plain(th__call *call, th_tensor *plain, th_reduce_op op, int root)
{
    th_process_group *group = call->group;
    th_dtype dtype = th_dtype_of(plain), through = reduction_dtype(group, dtype, op);
    if (through == TH_DTYPE_NONE) return unsupported(call, dtype, op);
    if (th_numel(plain) == 0) return TH_OK;
    th_reduce_op inner = dtype == TH_BOOL ? bool_op(op) : op;
    th_tensor *buffer = plain;
    if (through != dtype) buffer = th_to_dtype(buffer, through);
    if (group->caps.host_only && th_device_of(plain).type != TH_DEVICE_CPU) buffer = th_to_device(buffer, TH_CPU, through);
    buffer = th_contiguous(buffer);
    /* A rank that does not keep the result must not see its tensor change. */
    if (root >= 0 && root != group->rank && th_data_ptr(buffer) == th_data_ptr(plain)) buffer = th_clone(buffer);
    TH__CHECK_PENDING();
    bool extremes = (op == TH_REDUCE_MIN || op == TH_REDUCE_MAX) && th_dtype_is_floating_point(through);
    TH__TRY(extremes ? reduce_extremes(call, buffer, op, root) : native_reduce(call, buffer, inner, root));
    if (root >= 0 && root != group->rank) return TH_OK;
    if (op == TH_REDUCE_AVG && dtype != TH_BOOL) averaged(buffer, group->size);
    if (op == TH_REDUCE_BXOR && dtype == TH_BOOL) th_bitwise_and_scalar_(buffer, TH_S(1));
    if (th_data_ptr(buffer) != th_data_ptr(plain)) th_copy_(plain, buffer);
    return th__pending();
}

th_status th__compat_reduce(th__call *call, th_tensor *tensor, th_reduce_op op, int root)
{
    TH_SCOPE();
    TH_NO_GRAD();
    th_tensor *plain = th_detach(tensor);
    TH__CHECK_PENDING();
    if (!th_dtype_is_complex(th_dtype_of(plain))) return reduce_plain(call, plain, op, root);
    if (op != TH_REDUCE_SUM && op != TH_REDUCE_AVG) return unsupported(call, th_dtype_of(plain), op);
    th_tensor *dense = th_contiguous(th_resolve_conj(plain));
    TH__CHECK_PENDING();
    TH__TRY(reduce_plain(call, th_view_as_real(dense), op, root));
    if (th_data_ptr(dense) != th_data_ptr(plain)) th_copy_(plain, dense);
    return th__pending();
}

/* ---------------------------------------------------------------- moving bytes */

/* The tensor's bytes where the backend can reach them; *dense is what they belong to. */
static th_tensor *movable(th__call *call, th_tensor *tensor, th_tensor **dense)
{
    th_tensor *t = th_detach(tensor);
    if (t && th_dtype_is_complex(th_dtype_of(t))) t = th_resolve_conj(t);
    if (t && call->group->caps.host_only && th_device_of(t).type != TH_DEVICE_CPU) t = th_to_device(t, TH_CPU, th_dtype_of(t));
    *dense = th_contiguous(t);
    return th__pending() == TH_OK ? th__bytes_of(*dense) : NULL;
}

th_status th__compat_broadcast(th__call *call, th_tensor *tensor, int root)
{
    TH_SCOPE();
    TH_NO_GRAD();
    th__comm_error error;
    th_tensor *dense, *plain = th_detach(tensor);
    TH__CHECK_PENDING();
    if (th_numel(tensor) == 0) return TH_OK;
    th_tensor *bytes = movable(call, plain, &dense);
    TH__CHECK_PENDING();
    TH__TRY(th__call_wait(call, th__comm_broadcast(call->group->comm, bytes, root, &error), &error));
    if (call->group->rank != root && th_data_ptr(dense) != th_data_ptr(plain)) th_copy_(plain, dense);
    return th__pending();
}

static th_tensor *new_bytes(th__call *call, size_t n)
{
    return th_empty_memory_format(TH_INTS((int64_t)n), .dtype = TH_UINT8, .device = call->group->device);
}

/* Copies all bytes of `from` to the front of `to`. */
static void put_front(th_tensor *to, th_tensor *from)
{
    int64_t n = th_numel(from);
    if (n > 0) th_copy_(th_numel(to) == n ? to : th_narrow(to, 0, 0, n), from);
}

/* One gather of equal pieces; `outputs` may be empty on ranks that get nothing. */
static th_status gather_equal(th__call *call, th_tensor *bytes, th_tensors outputs, int root)
{
    th__comm_error error;
    th__comm *comm = call->group->comm;
    th__work *work = root < 0 ? th__comm_all_gather(comm, outputs, bytes, &error)
                              : th__comm_gather(comm, root == call->group->rank ? outputs : (th_tensors){0}, bytes, root, &error);
    return th__call_wait(call, work, &error);
}

/* `largest` bytes from every rank, padded. */
static th_status gather_padded(th__call *call, th_tensor *bytes, th_tensors outputs, size_t largest, int root)
{
    size_t size = (size_t)call->group->size;
    bool receives = root < 0 || root == call->group->rank;
    th_tensor **pieces = th__calloc(size, sizeof *pieces), *padded = new_bytes(call, largest);
    for (size_t i = 0; pieces && receives && i < size; i++) pieces[i] = new_bytes(call, largest);
    if (padded && bytes) put_front(padded, bytes);
    th_status status = th__pending();
    if (status == TH_OK) status = gather_equal(call, padded, (th_tensors){pieces, receives ? size : 0}, root);
    for (size_t i = 0; status == TH_OK && receives && i < size; i++) {
        int64_t n = (int64_t)th_nbytes(outputs.data[i]);
        if (n > 0) th_copy_(th__bytes_of(outputs.data[i]), th_narrow(pieces[i], 0, 0, n));
        status = th__pending();
    }
    free(pieces);
    return status;
}

th_status th__compat_gather(th__call *call, th_tensor *input, th_tensors outputs, int root)
{
    TH_SCOPE();
    TH_NO_GRAD();
    th_tensor *dense, *bytes = NULL;
    size_t largest = 0, smallest = SIZE_MAX, size = outputs.size;
    for (size_t i = 0; i < size; i++) {
        size_t n = th_nbytes(outputs.data[i]);
        if (n > largest) largest = n;
        if (n < smallest) smallest = n;
    }
    if (largest == 0) return TH_OK;
    if (th_numel(input) > 0) bytes = movable(call, input, &dense);
    TH__CHECK_PENDING();
    /* Results on a device the backend cannot reach are staged like uneven ones. */
    bool direct = smallest == largest && (!call->group->caps.host_only || th_device_of(input).type == TH_DEVICE_CPU);
    if (!direct) return gather_padded(call, bytes, outputs, largest, root);
    th_tensor **views = th__calloc(size, sizeof *views);
    for (size_t i = 0; views && i < size; i++) views[i] = th__bytes_of(outputs.data[i]);
    th_status status = th__pending();
    if (status == TH_OK) status = gather_equal(call, bytes, (th_tensors){views, size}, root);
    free(views);
    return status;
}

th_status th__compat_scatter(th__call *call, th_tensor *output, th_tensors inputs, int root)
{
    TH_SCOPE();
    TH_NO_GRAD();
    th__comm_error error;
    th_process_group *group = call->group;
    th_tensor *dense, *ignored, *plain = th_detach(output), *bytes;
    TH__CHECK_PENDING();
    if (th_numel(plain) == 0) return TH_OK;
    bytes = movable(call, plain, &dense);
    th_tensor **pieces = th__calloc((size_t)group->size, sizeof *pieces);
    bool sends = group->rank == root;
    for (int i = 0; pieces && sends && i < group->size; i++) pieces[i] = movable(call, inputs.data[i], &ignored);
    th_status status = th__pending();
    if (status == TH_OK) {
        th_tensors list = {pieces, sends ? (size_t)group->size : 0};
        status = th__call_wait(call, th__comm_scatter(group->comm, bytes, list, root, &error), &error);
    }
    free(pieces);
    if (status == TH_OK && th_data_ptr(dense) != th_data_ptr(plain)) th_copy_(plain, dense);
    return status == TH_OK ? th__pending() : status;
}

/* All parts behind each other in one flat uint8 tensor, and how many bytes each has. */
static th_tensor *flatten(th__call *call, th_tensors parts, int64_t *splits, bool copy)
{
    int64_t total = 0, at = 0;
    for (size_t i = 0; i < parts.size; i++) total += splits[i] = (int64_t)th_nbytes(parts.data[i]);
    th_tensor *flat = new_bytes(call, (size_t)total), *dense;
    for (size_t i = 0; copy && flat && i < parts.size; at += splits[i++])
        if (splits[i] > 0) th_copy_(th_narrow(flat, 0, at, splits[i]), movable(call, parts.data[i], &dense));
    return flat;
}

th_status th__compat_all_to_all(th__call *call, th_tensors outputs, th_tensors inputs)
{
    TH_SCOPE();
    TH_NO_GRAD();
    th__comm_error error;
    size_t size = (size_t)call->group->size;
    int64_t *in_splits = th__calloc(size, sizeof *in_splits), *out_splits = th__calloc(size, sizeof *out_splits), at = 0;
    if (!in_splits || !out_splits) goto end;
    th_tensor *in = flatten(call, inputs, in_splits, true), *out = flatten(call, outputs, out_splits, false);
    if (th__pending() != TH_OK) goto end;
    th__work *work = th__comm_all_to_all(call->group->comm, out, in, (th_ints){out_splits, size}, (th_ints){in_splits, size}, &error);
    if (th__call_wait(call, work, &error) != TH_OK) goto end;
    for (size_t i = 0; i < size; at += out_splits[i++])
        if (out_splits[i] > 0) th_copy_(th__bytes_of(outputs.data[i]), th_narrow(out, 0, at, out_splits[i]));
end:
    free(in_splits);
    free(out_splits);
    return th__pending();
}
