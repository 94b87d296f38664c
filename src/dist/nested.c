/* dist/nested.c: collectives on nested values: tensors inside lists and dicts, numbers, and whole objects as bytes. */
#include "dist/internal.h"
#include <cfabric/ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- all_gather with gradients */

/* One rank's part: its gradient is the sum over ranks of the gradients for it. */
static th_tensors gather_forward(th_function_ctx *ctx, th_tensors inputs, void *user)
{
    (void)ctx;
    th_tensor *dense = th_contiguous(inputs.data[0]);
    th_tensors parts = th_dist_all_gather(dense, .group = user);
    if (th__pending() != TH_OK) return (th_tensors){0};
    th_tensor *stacked = th_stack(parts, 0);
    return th_list((th_tensors){&stacked, 1});
}

static th_tensors gather_backward(th_function_ctx *ctx, th_tensors grads, void *user)
{
    (void)ctx;
    th_process_group *group = user ? user : th__default_group();
    th_tensor *all = grads.data[0] ? th_clone(grads.data[0]) : NULL;
    if (!all) return (th_tensors){0};
    all = th_contiguous(all);
    if (th_dist_all_reduce(all, .group = group) != TH_OK) return (th_tensors){0};
    th_tensor *own = th_clone(th_select_int(all, 0, group ? group->rank : 0));
    return th_list((th_tensors){&own, 1});
}

static const th_function gather_function = {sizeof(th_function), "AllGather", gather_forward, gather_backward, NULL};

th_tensor *th_dist_all_gather_autograd(th_tensor *tensor, th_process_group *group)
{
    TH__CHECK_PENDING_NULL();
    th_tensors out = th_function_apply(&gather_function, (th_tensors){&tensor, 1}, group);
    return th__pending() == TH_OK && out.size ? out.data[0] : NULL;
}

/* ---------------------------------------------------------------- trees */

/* Python numbers as Lightning turns them into tensors. NULL with no error: not a number. */
static th_tensor *number_tensor(const th_value *value)
{
    switch (th_value_kind_of(value)) {
    case TH_VALUE_BOOL: return th_tensor_scalar(th_scalar_int(th_value_as_bool(value, false)), TH_UINT8);
    case TH_VALUE_INT: return th_tensor_scalar(th_scalar_int(th_value_as_int(value, 0)), TH_INT32);
    case TH_VALUE_DOUBLE: return th_tensor_scalar(th_scalar_double(th_value_as_double(value, 0)), TH_FLOAT32);
    default: return NULL;
    }
}

typedef th_tensor *(*tensor_fn)(th_tensor *tensor, void *user);

/* A new tree in which numbers and tensors are what `fn` makes of them; other leaves are shared. Consumes nothing. */
static th_value *map_tree(th_value *value, tensor_fn fn, void *user)
{
    th_value_kind kind = th_value_kind_of(value);
    if (kind == TH_VALUE_LIST || kind == TH_VALUE_TUPLE || kind == TH_VALUE_DICT) {
        th_value *out = kind == TH_VALUE_DICT ? th_value_dict() : kind == TH_VALUE_LIST ? th_value_list() : th_value_tuple();
        for (size_t i = 0; out && i < th_value_size(value) && th__pending() == TH_OK; i++) {
            int64_t number = 0;
            const char *key = kind == TH_VALUE_DICT ? th_value_key_at(value, i, &number) : NULL;
            th_value *item = map_tree(th_value_at(value, i), fn, user);
            if (kind != TH_VALUE_DICT)
                th_value_append(out, item);
            else if (key)
                th_value_set(out, key, item);
            else
                th_value_set_int(out, number, item);
        }
        if (th__pending() == TH_OK) return out;
        th_value_free(out);
        return NULL;
    }
    TH_SCOPE();
    th_tensor *tensor = kind == TH_VALUE_TENSOR ? th_value_as_tensor(value) : number_tensor(value);
    TH__CHECK_PENDING_NULL();
    if (!tensor) return value ? th_value_retain(value) : th_value_none();
    th_tensor *result = fn(tensor, user);
    return result ? th_value_tensor(result) : NULL;
}

typedef struct tree_call {
    th_process_group *group;
    th_reduce_op op;
    bool sync_grads;
} tree_call;

static th_tensor *gather_leaf(th_tensor *tensor, void *user)
{
    const tree_call *call = user;
    if (call->sync_grads) return th_dist_all_gather_autograd(tensor, call->group);
    TH_NO_GRAD();
    th_tensors parts = th_dist_all_gather(tensor, .group = call->group);
    return th__pending() == TH_OK ? th_stack(parts, 0) : NULL;
}

static th_tensor *reduce_leaf(th_tensor *tensor, void *user)
{
    const tree_call *call = user;
    return th_dist_all_reduce(tensor, .op = call->op, .group = call->group) == TH_OK ? tensor : NULL;
}

static th_tensor *same_leaf(th_tensor *tensor, void *user)
{
    (void)user;
    return tensor;
}

th_value *th_dist_all_gather_value(th_value *data, th_process_group *group, bool sync_grads)
{
    TH__CHECK_PENDING_NULL();
    tree_call call = {.group = group, .sync_grads = sync_grads};
    bool alone = !group && !th__default_group();
    return map_tree(data, alone ? same_leaf : gather_leaf, &call);
}

th_value *th_dist_all_reduce_value(th_value *data, th_process_group *group, th_reduce_op op)
{
    TH__CHECK_PENDING_NULL();
    tree_call call = {.group = group, .op = op};
    bool alone = !group && !th__default_group();
    return map_tree(data, alone ? same_leaf : reduce_leaf, &call);
}

/* ---------------------------------------------------------------- objects */

/* A value's bytes, or none where this rank sends nothing. A rank that cannot encode its value says so instead of staying away. */
static bool encode(th_value *value, char **data, size_t *size, int64_t *payload)
{
    *data = NULL;
    *size = 0;
    bool ok = th__wire_encode(value, data, size) == TH_OK;
    memset(payload, 0, TH__HEADER_PAYLOAD * sizeof *payload);
    payload[0] = ok ? (int64_t)*size : -1;
    return ok;
}

th_value *th_dist_broadcast_value(th_value *data, int src, th_process_group *group)
{
    TH__CHECK_PENDING_NULL();
    if (!th__group_enter(&group, __func__)) return th__pending() == TH_OK ? th_value_copy(data, false) : NULL;
    int root = th__group_rank_of(group, src, __func__, "src");
    if (root < 0) return NULL;
    TH_SCOPE();
    bool sends = group->rank == root;
    char *bytes = NULL, what[40];
    size_t size = 0;
    int64_t payload[TH__HEADER_PAYLOAD] = {0}, *all = th__malloc((size_t)group->size * sizeof payload);
    if (!all) return NULL;
    th__call call;
    th_value *result = NULL;
    snprintf(what, sizeof what, "a value, src %d", src);
    th_status failed = sends && !encode(data, &bytes, &size, payload) ? th_error_clear() : TH_OK;
    if (th__call_begin(&call, group, "broadcast", what, payload, all) != TH_OK) goto end;
    int64_t n = all[root * TH__HEADER_PAYLOAD];
    if (n < 0) {
        th__fail(failed ? failed : TH_ERR_DISTRIBUTED, "broadcast", "the value of rank %d cannot be sent", src);
        goto end;
    }
    th_tensor *buffer = th_zeros(TH_INTS(n), .dtype = TH_UINT8);
    if (!buffer) goto end;
    if (sends) memcpy(th_data_ptr(buffer), bytes, size);
    if (th__compat_broadcast(&call, buffer, root) == TH_OK)
        result = sends ? th_value_copy(data, false) : th__wire_decode(th_data_ptr(buffer), (size_t)n);
end:
    free(bytes);
    free(all);
    return result;
}

/* Everybody's values as a list, on all ranks (root < 0) or one. */
static th_value *gather_values(th_value *data, th_process_group *group, int root, const char *name, const char *what)
{
    TH_SCOPE();
    char *bytes = NULL;
    size_t size = 0;
    int64_t payload[TH__HEADER_PAYLOAD], *all = th__malloc((size_t)group->size * sizeof payload);
    th__call call;
    th_value *list = NULL;
    th_status failed = all && !encode(data, &bytes, &size, payload) ? th_error_clear() : TH_OK;
    if (!all || th__call_begin(&call, group, name, what, payload, all) != TH_OK) goto end;
    th_tensor *input = th_from_blob(bytes ? bytes : "", TH_INTS((int64_t)size), TH_UINT8);
    th_tensor **outputs = th__scope_alloc((size_t)group->size * sizeof *outputs);
    for (int i = 0; outputs && i < group->size; i++) {
        int64_t n = all[i * TH__HEADER_PAYLOAD];
        if (n < 0) {
            th__fail(failed ? failed : TH_ERR_DISTRIBUTED, name, "the value of rank %d cannot be sent", group->ranks[i]);
            goto end;
        }
        outputs[i] = th_zeros(TH_INTS(n), .dtype = TH_UINT8);
    }
    if (th__pending() != TH_OK || th__compat_gather(&call, input, (th_tensors){outputs, (size_t)group->size}, root) != TH_OK) goto end;
    if (root >= 0 && root != group->rank) goto end;
    list = th_value_list();
    for (int i = 0; list && i < group->size && th__pending() == TH_OK; i++)
        th_value_append(list, th__wire_decode(th_data_ptr(outputs[i]), th_nbytes(outputs[i])));
    if (th__pending() != TH_OK) {
        th_value_free(list);
        list = NULL;
    }
end:
    free(bytes);
    free(all);
    return list;
}

/* The list of a world of one. */
static th_value *alone(th_value *data)
{
    th_value *list = th__pending() == TH_OK ? th_value_list() : NULL;
    if (list) th_value_append(list, data ? th_value_copy(data, false) : th_value_none());
    return list;
}

th_value *th_dist_all_gather_object(th_value *data, th_process_group *group)
{
    TH__CHECK_PENDING_NULL();
    if (!th__group_enter(&group, __func__)) return alone(data);
    return gather_values(data, group, -1, "all_gather_object", "");
}

th_value *th_dist_gather_object(th_value *data, int dst, th_process_group *group)
{
    char what[24];
    TH__CHECK_PENDING_NULL();
    if (!th__group_enter(&group, __func__)) return alone(data);
    int root = th__group_rank_of(group, dst, __func__, "dst");
    snprintf(what, sizeof what, "dst %d", dst);
    return root < 0 ? NULL : gather_values(data, group, root, "gather_object", what);
}

th_value *th_dist_scatter_object_list(th_value *list, int src, th_process_group *group)
{
    TH__CHECK_PENDING_NULL();
    th_process_group *g = group;
    if (!th__group_enter(&g, __func__)) {
        if (th__pending() != TH_OK) return NULL;
        return th_value_size(list) == 1 ? th_value_copy(th_value_at(list, 0), false)
                                        : (TH__FAIL(TH_ERR_VALUE, "a list of %zu, expected 1", th_value_size(list)), NULL);
    }
    /* Object lists are small: everybody gets the list and keeps its own item. */
    th_value *all = th_dist_broadcast_value(list, src, group), *own = NULL;
    if (all && th_value_size(all) != (size_t)g->size)
        TH__FAIL(TH_ERR_VALUE, "the list of rank %d has %zu items, expected one for each of %d ranks", src, th_value_size(all), g->size);
    else if (all)
        own = th_value_retain(th_value_at(all, (size_t)g->rank));
    th_value_free(all);
    return own;
}

bool th_dist_reduce_boolean_decision(bool decision, bool all, th_process_group *group)
{
    if (!th__group_enter(&group, __func__)) return decision;
    TH_SCOPE();
    th_tensor *count = th_tensor_scalar(th_scalar_int(decision), TH_INT64);
    if (group->device.type != TH_DEVICE_CPU) count = th_to_device(count, group->device, TH_INT64);
    if (th_dist_all_reduce(count, .group = group) != TH_OK) return false;
    int64_t yes = th_item_int(count);
    return all ? yes == group->size : yes > 0;
}
