/* dist/collectives.c: the public collectives on tensors: what the ranks must agree on for each of them, and the identities of a world
 * of one. */
#include "dist/internal.h"
#include <cfabric/ops.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_DIMS (TH__HEADER_PAYLOAD - 1)

/* ---------------------------------------------------------------- operation names */

static const char *const op_names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"};

const char *th_reduce_op_name(th_reduce_op op)
{
    return (unsigned)op < sizeof op_names / sizeof *op_names ? op_names[op] : "unknown";
}

th_status th_reduce_op_parse(const char *name, th_reduce_op *op)
{
    TH__CHECK_PENDING();
    for (size_t i = 0; name && i < sizeof op_names / sizeof *op_names; i++)
        if (strcasecmp(name, op_names[i]) == 0) return *op = (th_reduce_op)i, TH_OK;
    if (name && strcasecmp(name, "mean") == 0) return *op = TH_REDUCE_AVG, TH_OK;
    if (name && strcasecmp(name, "premul_sum") == 0)
        return TH__FAIL(TH_ERR_VALUE, "reduce operation 'premul_sum' is not supported: scale the tensor and use 'sum'");
    return TH__FAIL(TH_ERR_VALUE,
                    "reduce operation '%s' is not known; known: sum, avg, mean, product, min, max, band, bor, bxor",
                    name ? name : "NULL");
}

static th_status check_op(th_reduce_op op, const char *function)
{
    if ((unsigned)op < sizeof op_names / sizeof *op_names) return TH_OK;
    return th__fail(TH_ERR_VALUE, function, "reduce operation %d, expected a th_reduce_op", (int)op);
}

/* ---------------------------------------------------------------- helpers */

/* The usual start: false when there is nothing to do or an error is pending. */
static bool enter(struct th_dist_call_args *args, const char *function)
{
    if (th__pending() != TH_OK || !th__tensor_check(args->tensor, function, "tensor")) return false;
    return th__group_enter(&args->group, function);
}

static void describe(th_tensor *tensor, const char *extra, char *what)
{
    char text[TH__WHAT_SIZE - 40];
    snprintf(what, TH__WHAT_SIZE, "%s%s%s", th__describe_tensor(tensor, text, sizeof text), *extra ? ", " : "", extra);
}

/* Sizes into a payload: dimensions first. */
static th_status put_sizes(th_tensor *tensor, int64_t *payload, const char *function)
{
    th_ints sizes = th_sizes(tensor);
    if (sizes.size > MAX_DIMS)
        return th__fail(TH_ERR_VALUE, function, "a tensor of %zu dimensions, expected at most %d", sizes.size, MAX_DIMS);
    memset(payload, 0, TH__HEADER_PAYLOAD * sizeof *payload);
    payload[0] = (int64_t)sizes.size;
    memcpy(payload + 1, sizes.data, sizes.size * sizeof *payload);
    return TH_OK;
}

static th_ints get_sizes(const int64_t *payload) { return (th_ints){payload + 1, (size_t)payload[0]}; }

static th_tensors one_tensor(th_tensor *tensor) { return th_list((th_tensors){&tensor, 1}); }

/* ---------------------------------------------------------------- barriers */

th_status th_dist_barrier(th_process_group *group)
{
    th__call call;
    if (!th__group_enter(&group, __func__)) return th__pending();
    int64_t *all = th__malloc((size_t)group->size * TH__HEADER_PAYLOAD * sizeof *all);
    if (!all) return th__pending();
    th_status status = th__call_begin(&call, group, "barrier", "", NULL, all); /* the header exchange is a barrier */
    free(all);
    return status;
}

th_status th_dist_monitored_barrier(th_process_group *group, double timeout)
{
    if (!th__group_enter(&group, __func__)) return th__pending();
    if (!group->store) return th_dist_barrier(group);
    int64_t timeout_ms = timeout > 0 ? (int64_t)(timeout * 1000.0) : group->timeout_ms, deadline = th__now_ms() + timeout_ms;
    char key[64], missing[400] = "";
    size_t at = 0;
    th__comm_error error;
    int64_t number = ++group->calls;
    snprintf(key, sizeof key, "barrier%lld/%d", (long long)number, group->rank);
    bool ok = th__store_set(group->store, key, "1", 1, &error);
    for (int i = 0; ok && i < group->size; i++) {
        int64_t left = deadline - th__now_ms();
        snprintf(key, sizeof key, "barrier%lld/%d", (long long)number, i);
        if (th__store_wait(group->store, key, left > 1 ? left : 1, &error)) continue;
        if (at < sizeof missing) at += (size_t)snprintf(missing + at, sizeof missing - at, "%s%d", at ? ", " : "", group->ranks[i]);
    }
    if (ok && !at) return TH_OK;
    if (at)
        th__fail(TH_ERR_TIMEOUT, "monitored_barrier", "ranks that did not arrive within %g s: %s", (double)timeout_ms / 1000.0, missing);
    else
        th__fail(TH_ERR_DISTRIBUTED, "monitored_barrier", "%s", error.text);
    th__group_kill(group, th_error_message());
    return th__pending();
}

th_status th__infinite_barrier(void)
{
    static int64_t number;
    th_process_group *group = NULL;
    th__comm_error error;
    int64_t count = 0;
    char key[48], done[48];
    if (!th__group_enter(&group, "rank_zero_first")) return th__pending();
    if (!group->store) return th_dist_barrier(group);
    snprintf(key, sizeof key, "infinite%lld", (long long)++number);
    snprintf(done, sizeof done, "infinite%lld/done", (long long)number);
    bool ok = th__store_add(group->store, key, 1, &count, &error);
    if (ok && count == group->size) ok = th__store_set(group->store, done, "1", 1, &error);
    while (ok && !th__store_check(group->store, done, &error)) {
        ok = error.status == TH_OK && (th__store_wait(group->store, done, 60000, &error) || error.status == TH_ERR_TIMEOUT);
    }
    if (ok) return TH_OK;
    th__group_kill(group, error.text);
    return th__fail(TH_ERR_DISTRIBUTED, "rank_zero_first", "waiting for the other ranks failed: %s", error.text);
}

/* ---------------------------------------------------------------- reductions */

static th_status reduce(struct th_dist_call_args *args, const char *name, const char *function, bool to_one)
{
    th__call call;
    char what[TH__WHAT_SIZE], extra[40];
    if (!enter(args, function)) return th__pending();
    th_process_group *group = args->group;
    TH__TRY(check_op(args->op, function));
    int root = to_one ? th__group_rank_of(group, args->dst, function, "dst") : -1;
    TH__CHECK_PENDING();
    snprintf(extra, sizeof extra, to_one ? "%s, dst %d" : "%s", th_reduce_op_name(args->op), args->dst);
    describe(args->tensor, extra, what);
    TH__TRY(th__call_begin(&call, group, name, what, NULL, NULL));
    return th__compat_reduce(&call, args->tensor, args->op, root);
}

th_status th_dist_all_reduce_call(struct th_dist_call_args args) { return reduce(&args, "all_reduce", __func__, false); }
th_status th_dist_reduce_call(struct th_dist_call_args args) { return reduce(&args, "reduce", __func__, true); }

th_tensor *th_dist_reduce_scatter_tensor_call(struct th_dist_call_args args)
{
    th__call call;
    char what[TH__WHAT_SIZE];
    if (!enter(&args, __func__)) return th__pending() == TH_OK ? th_clone(args.tensor) : NULL;
    int size = args.group->size;
    TH__TRY_NULL(check_op(args.op, __func__));
    if (th_dim(args.tensor) < 1 || th_size(args.tensor, 0) % size != 0) {
        char text[TH__WHAT_SIZE];
        return TH__FAIL(TH_ERR_VALUE, "%s cannot be split into %d equal parts along dimension 0",
                        th__describe_tensor(args.tensor, text, sizeof text), size), NULL;
    }
    describe(args.tensor, th_reduce_op_name(args.op), what);
    TH__TRY_NULL(th__call_begin(&call, args.group, "reduce_scatter", what, NULL, NULL));
    return th__compat_reduce_scatter(&call, args.tensor, args.op);
}

/* ---------------------------------------------------------------- one to all, all to one */

th_status th_dist_broadcast_call(struct th_dist_call_args args)
{
    th__call call;
    char what[TH__WHAT_SIZE], extra[40];
    if (!enter(&args, __func__)) return th__pending();
    int root = th__group_rank_of(args.group, args.src, __func__, "src");
    TH__CHECK_PENDING();
    snprintf(extra, sizeof extra, "src %d", args.src);
    describe(args.tensor, extra, what);
    TH__TRY(th__call_begin(&call, args.group, "broadcast", what, NULL, NULL));
    return th__compat_broadcast(&call, args.tensor, root);
}

/* Empty tensors of every rank's sizes. [scoped] */
static th_tensors outputs_like(struct th_dist_call_args *args, const int64_t *all)
{
    size_t size = (size_t)args->group->size;
    th_tensor **list = th__scope_alloc(size * sizeof *list);
    for (size_t i = 0; list && i < size; i++)
        list[i] = th_zeros(get_sizes(all + i * TH__HEADER_PAYLOAD), .dtype = th_dtype_of(args->tensor),
                           .device = th_device_of(args->tensor));
    return th__pending() == TH_OK ? (th_tensors){list, size} : (th_tensors){0};
}

static th_tensors gather(struct th_dist_call_args *args, const char *name, const char *function, int root)
{
    th__call call;
    char what[TH__WHAT_SIZE];
    th_process_group *group = args->group;
    int64_t payload[TH__HEADER_PAYLOAD], *all = th__malloc((size_t)group->size * sizeof payload);
    th_tensors outputs = {0};
    snprintf(what, sizeof what, "%s with %d dimensions%s", th_dtype_name(th_dtype_of(args->tensor)), (int)th_dim(args->tensor),
             root < 0 ? "" : root == 0 ? ", dst 0" : ", dst");
    if (root > 0) snprintf(what + strlen(what), sizeof what - strlen(what), " %d", args->dst);
    if (all && put_sizes(args->tensor, payload, function) == TH_OK &&
        th__call_begin(&call, group, name, what, payload, all) == TH_OK)
        outputs = outputs_like(args, all);
    free(all);
    if (th__pending() != TH_OK || th__compat_gather(&call, args->tensor, outputs, root) != TH_OK) return (th_tensors){0};
    return root < 0 || root == group->rank ? outputs : (th_tensors){0};
}

th_tensors th_dist_all_gather_call(struct th_dist_call_args args)
{
    if (!enter(&args, __func__)) return th__pending() == TH_OK ? one_tensor(th_detach(args.tensor)) : (th_tensors){0};
    return gather(&args, "all_gather", __func__, -1);
}

th_tensors th_dist_gather_call(struct th_dist_call_args args)
{
    if (!enter(&args, __func__)) return th__pending() == TH_OK ? one_tensor(th_detach(args.tensor)) : (th_tensors){0};
    int root = th__group_rank_of(args.group, args.dst, __func__, "dst");
    return root < 0 ? (th_tensors){0} : gather(&args, "gather", __func__, root);
}

th_tensor *th_dist_all_gather_into_tensor_call(struct th_dist_call_args args)
{
    th__call call;
    char what[TH__WHAT_SIZE];
    if (!enter(&args, __func__)) return th__pending() == TH_OK ? th_clone(args.tensor) : NULL;
    th_ints sizes = th_sizes(args.tensor);
    if (sizes.size < 1) return TH__FAIL(TH_ERR_VALUE, "a tensor of 0 dimensions, expected at least 1"), NULL;
    describe(args.tensor, "", what);
    TH__TRY_NULL(th__call_begin(&call, args.group, "all_gather_into_tensor", what, NULL, NULL));
    int64_t full[64], n = sizes.data[0];
    size_t size = (size_t)args.group->size;
    memcpy(full, sizes.data, (sizes.size < 64 ? sizes.size : 64) * sizeof *full);
    full[0] *= (int64_t)size;
    th_tensor *out = th_zeros((th_ints){full, sizes.size}, .dtype = th_dtype_of(args.tensor), .device = th_device_of(args.tensor));
    th_tensor **parts = out ? th__scope_alloc(size * sizeof *parts) : NULL;
    for (size_t i = 0; parts && i < size; i++) parts[i] = th_narrow(out, 0, (int64_t)i * n, n);
    TH__CHECK_PENDING_NULL();
    TH__TRY_NULL(th__compat_gather(&call, args.tensor, (th_tensors){parts, size}, -1));
    for (size_t i = 0; i < size; i++) th_drop(parts[i]);
    return out;
}

/* What is wrong with the source's list, NULL if nothing: all ranks must learn it. */
static const char *bad_scatter_list(const struct th_dist_call_args *args)
{
    if (args->list.size != (size_t)args->group->size) return "the list does not have one tensor per rank";
    for (size_t i = 0; i < args->list.size; i++) {
        th_tensor *t = args->list.data[i];
        if (!t || th_dtype_of(t) != th_dtype_of(args->tensor) || th_numel(t) != th_numel(args->tensor))
            return "a tensor of the list has another dtype or number of elements than the receiving one";
    }
    return NULL;
}

th_status th_dist_scatter_call(struct th_dist_call_args args)
{
    th__call call;
    char what[TH__WHAT_SIZE], extra[40];
    if (!enter(&args, __func__)) {
        if (th__pending() == TH_OK && args.list.size == 1) th_copy_(th_detach(args.tensor), args.list.data[0]);
        return th__pending();
    }
    int root = th__group_rank_of(args.group, args.src, __func__, "src");
    TH__CHECK_PENDING();
    snprintf(extra, sizeof extra, "src %d", args.src);
    describe(args.tensor, extra, what);
    const char *bad = args.group->rank == root ? bad_scatter_list(&args) : NULL;
    int64_t payload[TH__HEADER_PAYLOAD] = {bad != NULL}, *all = th__malloc((size_t)args.group->size * sizeof payload);
    if (!all) return th__pending();
    th_status status = th__call_begin(&call, args.group, "scatter", what, payload, all);
    bool refused = all[root * TH__HEADER_PAYLOAD] != 0;
    free(all);
    if (status != TH_OK) return status;
    if (refused)
        return TH__FAIL(TH_ERR_VALUE, "rank %d, the source: %s", args.src, bad ? bad : "its list does not fit the receiving tensors");
    return th__compat_scatter(&call, args.tensor, args.list, root);
}

/* ---------------------------------------------------------------- all to all */

/* Every rank tells every other the sizes of what it will send. */
static th_status exchange_sizes(th__call *call, th_tensors tensors, int64_t *all)
{
    TH_SCOPE();
    int size = call->group->size;
    const size_t row = TH__HEADER_PAYLOAD * sizeof *all;
    th_tensor *mine = th_zeros(TH_INTS(size, size, TH__HEADER_PAYLOAD), .dtype = TH_INT64);
    TH__CHECK_PENDING();
    int64_t *words = th_data_ptr(mine);
    for (int i = 0; i < size; i++)
        TH__TRY(put_sizes(tensors.data[i], words + (call->group->rank * size + i) * TH__HEADER_PAYLOAD, call->name));
    TH__TRY(th__compat_reduce(call, mine, TH_REDUCE_SUM, -1));
    for (int i = 0; i < size; i++) memcpy(all + i * TH__HEADER_PAYLOAD, words + (i * size + call->group->rank) * TH__HEADER_PAYLOAD, row);
    return TH_OK;
}

th_tensors th_dist_all_to_all(th_tensors tensors, th_process_group *group)
{
    th__call call;
    char what[TH__WHAT_SIZE];
    if (!th__group_enter(&group, __func__)) return th__pending() == TH_OK ? th_list(tensors) : (th_tensors){0};
    if (tensors.size != (size_t)group->size)
        return TH__FAIL(TH_ERR_VALUE, "%zu tensors, expected one for each of %d ranks", tensors.size, group->size), (th_tensors){0};
    for (size_t i = 0; i < tensors.size; i++)
        if (!th__tensor_check(tensors.data[i], __func__, "tensors")) return (th_tensors){0};
    snprintf(what, sizeof what, "%s", th_dtype_name(th_dtype_of(tensors.data[0])));
    int64_t *all = th__malloc((size_t)group->size * TH__HEADER_PAYLOAD * sizeof *all);
    struct th_dist_call_args like = {.tensor = tensors.data[0], .group = group};
    th_tensors outputs = {0};
    if (all && th__call_begin(&call, group, "all_to_all", what, NULL, NULL) == TH_OK &&
        exchange_sizes(&call, tensors, all) == TH_OK)
        outputs = outputs_like(&like, all);
    free(all);
    if (th__pending() != TH_OK || th__compat_all_to_all(&call, outputs, tensors) != TH_OK) return (th_tensors){0};
    return outputs;
}
