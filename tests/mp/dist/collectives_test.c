/* Collectives over all dtypes and operations on 2 and 3 ranks, compared with what each rank computes by itself. */
#include "ranks.h"
#include <cfabric/dist.h>
#include <cfabric/error.h>
#include <cfabric/ops.h>
#include <cfabric/autograd.h>
#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>

static const th_dtype all_dtypes[] = {TH_UINT8, TH_INT8, TH_INT16, TH_INT32, TH_INT64, TH_FLOAT16, TH_FLOAT32, TH_FLOAT64,
                                      TH_COMPLEX64, TH_COMPLEX128, TH_BOOL, TH_BFLOAT16};
#define N_DTYPES (sizeof all_dtypes / sizeof *all_dtypes)

static void join(int rank, int world)
{
    (void)rank;
    (void)world;
    RANK_CHECK(th_dist_init_process_group(.backend = "gloo", .timeout = 20) == TH_OK);
}

static void leave(void)
{
    if (th_error() != TH_OK) fprintf(stderr, "pending: %s\n", th_error_message());
    RANK_CHECK(th_error() == TH_OK);
    th_dist_destroy_process_group(NULL);
}

/* For cases whose scopes have all ended: nothing may be left. */
static void leave_empty(void)
{
    leave();
    RANK_CHECK(th_scope_live() == 0);
}

/* What `rank` contributes: small numbers, so that sums and products are exact in every dtype. */
static th_tensor *contribution(int rank, th_dtype dtype, int64_t n)
{
    double values[64];
    for (int64_t i = 0; i < n; i++) values[i] = dtype == TH_BOOL ? (rank + i) % 2 : 1 + (rank * 2 + i) % 4;
    return th_to_dtype(th_tensor_from(values, TH_INTS(n), TH_FLOAT64), dtype);
}

static double expected(int world, th_dtype dtype, th_reduce_op op, int64_t i)
{
    double result = 0;
    for (int r = 0; r < world; r++) {
        double v = dtype == TH_BOOL ? (r + i) % 2 : (double)(1 + (r * 2 + i) % 4);
        int a = (int)result, b = (int)v;
        if (r == 0) {
            result = v;
            continue;
        }
        switch (op) {
        case TH_REDUCE_SUM: case TH_REDUCE_AVG: result += v; break;
        case TH_REDUCE_PRODUCT: result *= v; break;
        case TH_REDUCE_MIN: result = fmin(result, v); break;
        case TH_REDUCE_MAX: result = fmax(result, v); break;
        case TH_REDUCE_BAND: result = a & b; break;
        case TH_REDUCE_BOR: result = a | b; break;
        case TH_REDUCE_BXOR: result = a ^ b; break;
        }
    }
    if (dtype == TH_BOOL) return result != 0;
    if (op == TH_REDUCE_AVG) {
        bool exact = th_dtype_is_floating_point(dtype) || th_dtype_is_complex(dtype);
        return exact ? result / world : trunc(result / world);
    }
    return result;
}

static bool defined_for(th_dtype dtype, th_reduce_op op)
{
    if (th_dtype_is_complex(dtype)) return op == TH_REDUCE_SUM || op == TH_REDUCE_AVG;
    return op < TH_REDUCE_BAND || !th_dtype_is_floating_point(dtype);
}

static double read_at(th_tensor *t, int64_t i)
{
    TH_SCOPE();
    th_tensor *one = th_select_int(t, 0, i);
    if (th_dtype_is_complex(th_dtype_of(t))) one = th_real(one);
    return th_item(th_to_dtype(one, TH_FLOAT64));
}

/* Half types hold 3 or 2.333 only roughly. */
static bool close_to(double got, double want, th_dtype dtype)
{
    double tolerance = dtype == TH_BFLOAT16 ? 0.02 : dtype == TH_FLOAT16 ? 0.003 : 1e-6;
    return fabs(got - want) <= tolerance * (1 + fabs(want));
}

static void all_reduce_everything(int rank, int world)
{
    join(rank, world);
    for (size_t d = 0; d < N_DTYPES; d++) {
        for (int op = TH_REDUCE_SUM; op <= TH_REDUCE_BXOR; op++) {
            TH_SCOPE();
            th_dtype dtype = all_dtypes[d];
            th_tensor *t = contribution(rank, dtype, 13);
            th_status status = th_dist_all_reduce(t, .op = op);
            if (!defined_for(dtype, op)) {
                RANK_CHECK(status == TH_ERR_TYPE && strstr(th_error_message(), th_dtype_name(dtype)));
                th_error_clear();
                continue;
            }
            RANK_CHECK(status == TH_OK);
            RANK_CHECK(th_dtype_of(t) == dtype);
            for (int64_t i = 0; i < 13; i++) {
                double got = read_at(t, i), want = expected(world, dtype, op, i);
                if (!close_to(got, want, dtype))
                    fprintf(stderr, "%s %s [%d]: %g, expected %g\n", th_dtype_name(dtype), th_reduce_op_name(op), (int)i, got, want);
                RANK_CHECK(close_to(got, want, dtype));
            }
        }
    }
    leave_empty();
}

static void reduce_to_one(int rank, int world)
{
    join(rank, world);
    for (size_t d = 0; d < N_DTYPES; d++) {
        TH_SCOPE();
        int dst = (int)d % world;
        th_tensor *t = contribution(rank, all_dtypes[d], 5), *before = th_clone(t);
        RANK_CHECK(th_dist_reduce(t, .op = TH_REDUCE_SUM, .dst = dst) == TH_OK);
        if (rank != dst) RANK_CHECK(th_item_int(th_all(th_eq(t, before))));
        for (int64_t i = 0; rank == dst && i < 5; i++)
            RANK_CHECK(close_to(read_at(t, i), expected(world, all_dtypes[d], TH_REDUCE_SUM, i), all_dtypes[d]));
    }
    leave_empty();
}

static void reduce_scatter_everything(int rank, int world)
{
    join(rank, world);
    for (size_t d = 0; d < N_DTYPES; d++) {
        for (int op = TH_REDUCE_SUM; op <= TH_REDUCE_BXOR; op++) {
            TH_SCOPE();
            th_dtype dtype = all_dtypes[d];
            th_tensor *t = contribution(rank, dtype, 4 * world);
            th_tensor *part = th_dist_reduce_scatter_tensor(t, .op = op);
            if (!defined_for(dtype, op)) {
                RANK_CHECK(part == NULL && th_error_clear() == TH_ERR_TYPE);
                continue;
            }
            RANK_CHECK(part != NULL && th_numel(part) == 4 && th_dtype_of(part) == dtype);
            for (int64_t i = 0; i < 4; i++)
                RANK_CHECK(close_to(read_at(part, i), expected(world, dtype, op, 4 * rank + i), dtype));
        }
    }
    leave_empty();
}

static void movers(int rank, int world)
{
    join(rank, world);
    for (size_t d = 0; d < N_DTYPES; d++) {
        TH_SCOPE();
        th_dtype dtype = all_dtypes[d];
        th_tensor *t = contribution(rank, dtype, 6);
        RANK_CHECK(th_dist_broadcast(t, .src = world - 1) == TH_OK);
        RANK_CHECK(th_item_int(th_all(th_eq(t, contribution(world - 1, dtype, 6)))));
        th_tensors all = th_dist_all_gather(contribution(rank, dtype, 6));
        RANK_CHECK(all.size == (size_t)world);
        for (int r = 0; r < world; r++) RANK_CHECK(th_equal(all.data[r], contribution(r, dtype, 6)));
        th_tensors at_one = th_dist_gather(contribution(rank, dtype, 6), .dst = 1);
        RANK_CHECK(at_one.size == (rank == 1 ? (size_t)world : 0));
        for (size_t r = 0; r < at_one.size; r++) RANK_CHECK(th_equal(at_one.data[r], contribution((int)r, dtype, 6)));
        th_tensor *list[RANKS_MAX], *mine = th_zeros(TH_INTS(6), .dtype = dtype);
        for (int r = 0; r < world; r++) list[r] = contribution(r + 1, dtype, 6);
        th_tensors parts = {list, (size_t)world};
        RANK_CHECK(th_dist_scatter(mine, .src = 1, .list = rank == 1 ? parts : (th_tensors){0}) == TH_OK);
        RANK_CHECK(th_equal(mine, contribution(rank + 1, dtype, 6)));
        th_tensor *joined = th_dist_all_gather_into_tensor(contribution(rank, dtype, 6));
        RANK_CHECK(th_numel(joined) == 6 * world);
        for (int r = 0; r < world; r++) RANK_CHECK(th_equal(th_narrow(joined, 0, 6 * r, 6), contribution(r, dtype, 6)));
    }
    leave_empty();
}

static void uneven(int rank, int world)
{
    join(rank, world);
    TH_SCOPE();
    /* rank x (rank + 1) x 2, so rank 0 has no elements at all */
    th_tensors all = th_dist_all_gather(th_full(TH_INTS(rank, rank + 1, 2), TH_S(rank), .dtype = TH_FLOAT32));
    RANK_CHECK(all.size == (size_t)world);
    for (int r = 0; r < world; r++) {
        RANK_CHECK(th_size(all.data[r], 0) == r && th_size(all.data[r], 1) == r + 1 && th_size(all.data[r], 2) == 2);
        if (r) RANK_CHECK(th_item(th_mean(all.data[r])) == r);
    }
    /* rank i sends i + j + 1 copies of 10 i + j to rank j */
    th_tensor *out[RANKS_MAX];
    for (int j = 0; j < world; j++) out[j] = th_full(TH_INTS(rank + j + 1), TH_S(10 * rank + j), .dtype = TH_BFLOAT16);
    th_tensors in = th_dist_all_to_all((th_tensors){out, (size_t)world}, NULL);
    RANK_CHECK(in.size == (size_t)world);
    for (int i = 0; i < world; i++) {
        RANK_CHECK(th_numel(in.data[i]) == rank + i + 1 && th_dtype_of(in.data[i]) == TH_BFLOAT16);
        RANK_CHECK(read_at(in.data[i], 0) == 10 * i + rank);
    }
    leave();
}

static void strided_empty_nan(int rank, int world)
{
    join(rank, world);
    TH_SCOPE();
    /* a column: Gloo by itself would reduce the wrong elements */
    th_tensor *matrix = th_full(TH_INTS(4, 3), TH_S(1.0)), *column = th_select_int(matrix, 1, 1);
    th_fill_scalar_(column, TH_S(rank + 1.0));
    RANK_CHECK(th_dist_all_reduce(column) == TH_OK);
    for (int i = 0; i < 4; i++) RANK_CHECK(read_at(column, i) == world * (world + 1) / 2.0);
    RANK_CHECK(th_item(th_sum(matrix)) == 8.0 + 4 * world * (world + 1) / 2.0);
    th_tensor *row = th_select_int(matrix, 1, 0);
    th_fill_scalar_(row, TH_S((double)rank));
    RANK_CHECK(th_dist_broadcast(row, .src = 1) == TH_OK && read_at(row, 3) == 1.0);
    th_tensor *none = th_zeros(TH_INTS(0, 5));
    RANK_CHECK(th_dist_all_reduce(none) == TH_OK && th_dist_broadcast(none) == TH_OK);
    RANK_CHECK(th_dist_all_gather(none).size == (size_t)world);
    th_tensor *scalar = th_tensor_scalar(TH_S(rank + 1.0), TH_FLOAT32);
    RANK_CHECK(th_dist_all_reduce(scalar, .op = TH_REDUCE_MAX) == TH_OK && th_item(scalar) == world);
    for (int op = TH_REDUCE_MIN; op <= TH_REDUCE_MAX; op++) {
        th_tensor *t = th_full(TH_INTS(3), TH_S((double)rank));
        if (rank == 1) th_fill_scalar_(th_select_int(t, 0, 1), TH_S((double)NAN));
        RANK_CHECK(th_dist_all_reduce(t, .op = op) == TH_OK);
        RANK_CHECK(read_at(t, 0) == (op == TH_REDUCE_MAX ? world - 1 : 0) && isnan(read_at(t, 1)));
    }
    th_tensor *leaf = th_requires_grad_(th_full(TH_INTS(2), TH_S(1.0)), true);
    RANK_CHECK(th_dist_all_reduce(leaf) == TH_OK && th_is_leaf_of(leaf) && th_requires_grad(leaf));
    RANK_CHECK(th_item(th_sum(th_detach(leaf))) == 2.0 * world);
    leave();
}

/* Pinned upstream: ranks holding 1 and 2. */
static void one_and_two(int rank, int world)
{
    join(rank, world);
    const th_dtype dtypes[] = {TH_INT64, TH_INT32, TH_FLOAT32, TH_FLOAT16};
    for (size_t d = 0; d < 4; d++) {
        TH_SCOPE();
        const struct { const char *name; double want; } ops[] = {
            {"max", 2}, {"Sum", 3}, {"mean", d < 2 ? 1 : 1.5}, {"AVG", d < 2 ? 1 : 1.5}, {"min", 1}, {"BoR", 3}};
        for (size_t i = 0; i < (d < 2 ? 6 : 5); i++) {
            th_reduce_op op;
            RANK_CHECK(th_reduce_op_parse(ops[i].name, &op) == TH_OK);
            th_tensor *t = th_full(TH_INTS(1), TH_S(rank + 1), .dtype = dtypes[d]);
            th_value *in = th_value_tensor(t), *out = th_dist_all_reduce_value(in, NULL, op);
            RANK_CHECK(out && th_is_same(th_value_as_tensor(out), t));
            RANK_CHECK(th_item(t) == ops[i].want);
            th_value_free(in);
            th_value_free(out);
        }
    }
    leave_empty();
}

static void nested_values(int rank, int world)
{
    join(rank, world);
    TH_SCOPE();
    th_value *inner = th_value_list();
    th_value_append(inner, th_value_double(rank + 1.0));
    th_value_append(inner, th_value_string("text"));
    th_value *data = TH_STATE({"t", th_value_tensor(th_full(TH_INTS(2), TH_S(rank + 1.0)))}, {"l", inner},
                              {"i", th_value_int(rank)}, {"b", th_value_bool(rank == 0)});
    th_value *gathered = th_dist_all_gather_value(data, NULL, false), *reduced = th_dist_all_reduce_value(data, NULL, TH_REDUCE_SUM);
    RANK_CHECK(gathered && reduced);
    th_tensor *t = th_value_as_tensor(th_value_get(gathered, "t"));
    RANK_CHECK(th_dim(t) == 2 && th_size(t, 0) == world && th_size(t, 1) == 2);
    t = th_value_as_tensor(th_value_get(gathered, "i"));
    RANK_CHECK(th_dim(t) == 1 && th_size(t, 0) == world && th_dtype_of(t) == TH_INT32 && read_at(t, 1) == 1);
    RANK_CHECK(th_dtype_of(th_value_as_tensor(th_value_get(gathered, "b"))) == TH_UINT8);
    th_value *list = th_value_get(reduced, "l");
    RANK_CHECK(th_item(th_value_as_tensor(th_value_at(list, 0))) == world * (world + 1) / 2.0);
    RANK_CHECK(strcmp(th_value_as_string(th_value_at(list, 1), ""), "text") == 0);
    RANK_CHECK(th_item(th_select_int(th_value_as_tensor(th_value_get(data, "t")), 0, 0)) == world * (world + 1) / 2.0);
    th_value_free(gathered);
    th_value_free(reduced);

    th_value_set_int(data, 7, th_value_bytes("a\0b", 3));
    th_value_set(data, "none", th_value_none());
    th_value_set(data, "bf16", th_value_tensor(th_full(TH_INTS(2, 2), TH_S(rank + 0.5), .dtype = TH_BFLOAT16)));
    th_value *got = th_dist_broadcast_value(rank == 1 ? data : NULL, 1, NULL);
    th_value *all = th_dist_all_gather_object(data, NULL);
    RANK_CHECK(got && all && th_value_size(all) == (size_t)world);
    RANK_CHECK(th_value_equal(got, th_value_at(all, 1)));
    RANK_CHECK(th_value_equal(data, th_value_at(all, (size_t)rank)));
    RANK_CHECK(!th_value_equal(th_value_at(all, 0), th_value_at(all, 1)));
    th_value *item = th_dist_scatter_object_list(all, 0, NULL);
    RANK_CHECK(th_value_equal(item, data));
    th_value *at = th_dist_gather_object(data, 1, NULL);
    RANK_CHECK(rank == 1 ? th_value_equal(at, all) : at == NULL);
    th_value *text = th_dist_broadcast_value(th_state(rank == 0 ? "from zero" : ""), 0, NULL);
    RANK_CHECK(strcmp(th_value_as_string(text, ""), "from zero") == 0);
    th_value_free(got);
    th_value_free(all);
    th_value_free(item);
    th_value_free(at);
    th_value_free(text);
    th_value_free(data);
    RANK_CHECK(th_dist_reduce_boolean_decision(rank == 0, true, NULL) == false);
    RANK_CHECK(th_dist_reduce_boolean_decision(rank == 0, false, NULL) == true);
    RANK_CHECK(th_dist_reduce_boolean_decision(true, true, NULL) == true);
    leave();
}

/* The gradient of a gathered tensor is the sum over ranks of the gradients for the own part. */
static void gather_with_gradients(int rank, int world)
{
    join(rank, world);
    TH_SCOPE();
    th_tensor *x = th_requires_grad_(th_full(TH_INTS(3), TH_S(rank + 1.0)), true);
    th_tensor *all = th_dist_all_gather_autograd(x, NULL);
    RANK_CHECK(th_size(all, 0) == world && th_requires_grad(all));
    /* rank r weighs part p with (r + 1)(p + 1) */
    th_tensor *weights = th_mul_scalar(th_reshape(th_arange_start(TH_S(1), TH_S(world + 1), .dtype = TH_FLOAT32), TH_INTS(world, 1)),
                                       TH_S(rank + 1.0));
    RANK_CHECK(th_backward(th_sum(th_mul(all, weights))) == TH_OK);
    double want = world * (world + 1) / 2.0 * (rank + 1);
    for (int i = 0; i < 3; i++) RANK_CHECK(read_at(th_grad(x), i) == want);
    leave();
}

static void point_to_point(int rank, int world)
{
    join(rank, world);
    TH_SCOPE();
    th_tensor *t = th_full(TH_INTS(2, 3), TH_S((double)rank), .dtype = TH_BFLOAT16);
    if (rank == 0)
        for (int r = 1; r < world; r++) RANK_CHECK(th_dist_send(t, .dst = r, .tag = 5) == TH_OK);
    else
        RANK_CHECK(th_dist_recv(t, .src = 0, .tag = 5) == 0 && th_item(th_sum(t)) == 0);
    /* everybody answers whoever comes first; strided on the receiving side */
    if (rank == 0) {
        double sum = 0;
        for (int r = 1; r < world; r++) {
            th_tensor *in = th_t(th_zeros(TH_INTS(2, 3)));
            int from = th_dist_recv(in, .src = -1);
            RANK_CHECK(from > 0 && th_item(th_mean(in)) == from);
            sum += from;
        }
        RANK_CHECK(sum == world * (world - 1) / 2.0);
    } else {
        RANK_CHECK(th_dist_send(th_full(TH_INTS(3, 2), TH_S((double)rank))) == TH_OK);
    }
    /* both sides of a mismatch learn of it, and the group stays usable */
    if (rank == 0) {
        RANK_CHECK(th_dist_send(th_zeros(TH_INTS(4)), .dst = 1) == TH_ERR_DISTRIBUTED && strstr(th_error_message(), "int32 [3]"));
        th_error_clear();
    } else if (rank == 1) {
        RANK_CHECK(th_dist_recv(th_zeros(TH_INTS(3), .dtype = TH_INT32)) == TH_ERR_DISTRIBUTED);
        RANK_CHECK(strstr(th_error_message(), "float32 [4]"));
        th_error_clear();
    }
    RANK_CHECK(th_dist_barrier(NULL) == TH_OK);
    leave();
}

static void sub_groups(int rank, int world)
{
    join(rank, world);
    TH_SCOPE();
    th_process_group *pair = th_dist_new_group(.ranks = (const int[]){world - 1, 0}, .n_ranks = 2);
    th_process_group *single = th_dist_new_group(.ranks = (const int[]){1}, .n_ranks = 1);
    th_process_group *everybody = th_dist_new_group();
    RANK_CHECK(pair && single && everybody);
    bool in_pair = rank == 0 || rank == world - 1;
    RANK_CHECK(th_dist_get_rank(pair) == (rank == world - 1 ? 0 : rank == 0 ? 1 : -1));
    RANK_CHECK(th_dist_get_world_size(pair) == (in_pair ? 2 : -1));
    RANK_CHECK(th_dist_get_global_rank(pair, 0) == world - 1 && th_dist_get_group_rank(pair, 0) == 1);
    th_tensor *t = th_full(TH_INTS(3), TH_S(rank + 1.0));
    RANK_CHECK(th_dist_all_reduce(t, .group = pair) == TH_OK);
    RANK_CHECK(read_at(t, 0) == (in_pair ? world + 1.0 : rank + 1.0));
    t = th_full(TH_INTS(3), TH_S(rank + 1.0));
    RANK_CHECK(th_dist_broadcast(t, .src = 0, .group = pair) == TH_OK);
    RANK_CHECK(read_at(t, 0) == (in_pair ? 1.0 : rank + 1.0));
    RANK_CHECK(th_dist_all_reduce(t, .group = single) == TH_OK && th_dist_barrier(single) == TH_OK);
    th_tensors all = th_dist_all_gather(t, .group = everybody);
    RANK_CHECK(all.size == (size_t)world);
    th_dist_destroy_process_group(pair);
    RANK_CHECK(th_dist_all_reduce(t, .group = pair) == TH_ERR_RUNTIME && strstr(th_error_message(), "destroyed"));
    th_error_clear();
    RANK_CHECK(th_dist_monitored_barrier(NULL, 5) == TH_OK);
    leave();
}

static void mismatches(int rank, int world)
{
    join(rank, world);
    TH_SCOPE();
    char message[600];
    /* sizes */
    RANK_CHECK(th_dist_all_reduce(th_zeros(TH_INTS(rank ? 4096 : 4))) == TH_ERR_DISTRIBUTED);
    snprintf(message, sizeof message, "%s", th_error_message());
    RANK_CHECK(strstr(message, "float32 [4]") && strstr(message, "float32 [4096]") && strstr(message, "rank 1"));
    th_error_clear();
    /* dtypes */
    RANK_CHECK(th_dist_all_reduce(th_zeros(TH_INTS(4), .dtype = rank ? TH_INT32 : TH_FLOAT32)) == TH_ERR_DISTRIBUTED);
    RANK_CHECK(strstr(th_error_message(), "int32"));
    th_error_clear();
    /* operations, calls, roots */
    RANK_CHECK(th_dist_all_reduce(th_zeros(TH_INTS(4)), .op = rank ? TH_REDUCE_MAX : TH_REDUCE_SUM) == TH_ERR_DISTRIBUTED);
    th_error_clear();
    RANK_CHECK((rank ? th_dist_barrier(NULL) : th_dist_all_reduce(th_zeros(TH_INTS(4)))) == TH_ERR_DISTRIBUTED);
    RANK_CHECK(strstr(th_error_message(), "barrier") && strstr(th_error_message(), "all_reduce"));
    th_error_clear();
    RANK_CHECK(th_dist_broadcast(th_zeros(TH_INTS(4)), .src = rank ? 1 : 0) == TH_ERR_DISTRIBUTED);
    th_error_clear();
    RANK_CHECK(th_dist_all_gather(th_zeros(rank ? TH_INTS(4) : TH_INTS(2, 2))).data == NULL && th_error_clear() == TH_ERR_DISTRIBUTED);
    RANK_CHECK(th_dist_scatter(th_zeros(TH_INTS(4)), .list = {0}) == TH_ERR_VALUE);
    th_error_clear();
    RANK_CHECK(th_dist_reduce_scatter_tensor(th_zeros(TH_INTS(world * 2 + 1))) == NULL && th_error_clear() == TH_ERR_VALUE);
    RANK_CHECK(th_dist_broadcast(th_zeros(TH_INTS(4)), .src = world) == TH_ERR_VALUE);
    th_error_clear();
    /* after all of that the group still works */
    th_tensor *t = th_full(TH_INTS(4), TH_S(1.0));
    RANK_CHECK(th_dist_all_reduce(t) == TH_OK && read_at(t, 3) == world);
    RANK_CHECK(th_dist_init_process_group(.backend = "gloo") == TH_ERR_RUNTIME);
    th_error_clear();
    leave();
}

static void init_again(int rank, int world)
{
    for (int i = 0; i < 3; i++) {
        join(rank, world);
        TH_SCOPE();
        th_tensor *t = th_full(TH_INTS(2), TH_S(1.0));
        RANK_CHECK(th_dist_all_reduce(t) == TH_OK && read_at(t, 0) == world);
        th_dist_destroy_process_group(NULL);
        th_dist_destroy_process_group(NULL);
        RANK_CHECK(!th_dist_is_initialized() && th_dist_get_world_size(NULL) == 1);
    }
}

static void no_close(int rank, int world)
{
    join(rank, world);
    RANK_CHECK(th_dist_barrier(NULL) == TH_OK);
}

static const ranks_case cases[] = {
    {"all_reduce", all_reduce_everything}, {"reduce", reduce_to_one}, {"reduce_scatter", reduce_scatter_everything},
    {"movers", movers}, {"uneven", uneven}, {"strided", strided_empty_nan}, {"one_and_two", one_and_two},
    {"nested", nested_values}, {"gradients", gather_with_gradients}, {"p2p", point_to_point}, {"sub_groups", sub_groups},
    {"mismatches", mismatches}, {"init_again", init_again}, {"no_close", no_close}};

static void run(const char *name, int world)
{
    ranks_result r;
    ranks_run(name, world, 60, &r);
    if (!r.ok) ranks_show(&r, world);
    assert_true(r.ok);
}

#define CASE(name) \
    static void test_##name(void **state) { (void)state; run(#name, 2); run(#name, 3); }
CASE(all_reduce)
CASE(reduce)
CASE(reduce_scatter)
CASE(movers)
CASE(uneven)
CASE(strided)
CASE(nested)
CASE(gradients)
CASE(p2p)
CASE(sub_groups)
CASE(mismatches)
CASE(init_again)
CASE(no_close)
static void test_one_and_two(void **state) { (void)state; run("one_and_two", 2); }

int main(void)
{
    ranks_main(cases, sizeof cases / sizeof *cases);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce), cmocka_unit_test(test_reduce), cmocka_unit_test(test_reduce_scatter),
        cmocka_unit_test(test_movers), cmocka_unit_test(test_uneven), cmocka_unit_test(test_strided),
        cmocka_unit_test(test_one_and_two), cmocka_unit_test(test_nested), cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_p2p), cmocka_unit_test(test_sub_groups), cmocka_unit_test(test_mismatches),
        cmocka_unit_test(test_init_again), cmocka_unit_test(test_no_close)};
    return cmocka_run_group_tests_name("dist_collectives", tests, NULL, NULL);
}
