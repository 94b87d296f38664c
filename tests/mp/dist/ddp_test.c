/* The gradient reducer on 2 and 3 ranks: averages, buckets, unused and shared parameters, no-sync, several models, and what ranks
 * with different modules get told. */
#include "ddp_common.h"

/* ---------------------------------------------------------------- averages */

static void train_against_one(int rank, int world, struct th_ddp_args options, int accumulate)
{
    th_module *m = mlp((uint64_t)rank), *one = mlp(0); /* other ranks start elsewhere and must end at rank 0's weights */
    options.module = m;
    options.broadcast_buffers = options.init_sync = true;
    th_ddp *ddp = th_ddp_new_call(options);
    RANK_CHECK(ddp != NULL && distance(m, one) == 0 && module_same(m));
    for (int step = 0; step < 6; step++) {
        for (int k = 0; k < accumulate; k++) {
            TH_SCOPE();
            int64_t first = (step * accumulate + k) * world * 4;
            bool last = k == accumulate - 1;
            th_ddp_set_require_sync(ddp, last);
            backward(forward(ddp, m, rows(first + rank * 4, 4)));
            backward(th_forward(one, rows(first, world * 4)));
        }
        sgd(m, 0.3);
        sgd(one, 0.3);
    }
    RANK_CHECK(module_same(m));
    RANK_CHECK(distance(m, one) < 2e-6);
    th_ddp_stats stats = th_ddp_get_stats(ddp);
    RANK_CHECK(stats.synced_backwards == 6);
    RANK_CHECK(stats.all_reduces <= (int64_t)(6 * (stats.buckets > 1 ? stats.buckets : 1)));
    th_ddp_free(ddp);
    th_module_free(m);
    th_module_free(one);
}

static void equals_one_process(int rank, int world)
{
    join();
    train_against_one(rank, world, (struct th_ddp_args){0}, 1);
    train_against_one(rank, world, (struct th_ddp_args){0}, 3);
    train_against_one(rank, world, (struct th_ddp_args){.gradient_as_bucket_view = true}, 1);
    train_against_one(rank, world, (struct th_ddp_args){.gradient_as_bucket_view = true}, 2);
    train_against_one(rank, world, (struct th_ddp_args){.bucket_cap_mb = 0.0005}, 1);
    train_against_one(rank, world, (struct th_ddp_args){.bucket_cap_mb = 0.0005, .gradient_as_bucket_view = true}, 1);
    train_against_one(rank, world, (struct th_ddp_args){.static_graph = true}, 1);
    train_against_one(rank, world, (struct th_ddp_args){.static_graph = true, .bucket_cap_mb = 0.0005}, 2);
    train_against_one(rank, world, (struct th_ddp_args){.find_unused_parameters = true}, 2);
    leave();
}

/* Without the comparisons before each call nothing else changes. */
static void unchecked(int rank, int world)
{
    RANK_CHECK(th_dist_init_process_group(.timeout = 15, .check = false) == TH_OK);
    train_against_one(rank, world, (struct th_ddp_args){.bucket_cap_mb = 0.0005}, 2);
    TH_SCOPE();
    th_tensors all = th_dist_all_gather(th_full(TH_INTS(rank + 1), TH_S(1.0)));
    RANK_CHECK(all.size == (size_t)world && th_numel(all.data[1]) == 2);
    leave();
}

static void buckets(int rank, int world)
{
    join();
    th_module *m = mlp(1);
    th_ddp *ddp = th_ddp_new(m, .bucket_cap_mb = 0.0005); /* 524 bytes: 16x16 + others do not fit together */
    RANK_CHECK(th_ddp_get_stats(ddp).buckets == 1);        /* nothing is known about the order yet */
    for (int i = 0; i < 3; i++) {
        TH_SCOPE();
        backward(forward(ddp, m, rows(rank * 4, 4)));
        sgd(m, 0.1);
    }
    th_ddp_stats stats = th_ddp_get_stats(ddp);
    RANK_CHECK(stats.rebuilt && stats.buckets == 2);
    RANK_CHECK(stats.all_reduces == 1 + 2 * 2 && stats.bucket_bytes == 4 * (6 * 16 + 16 + 16 * 16 + 16 + 16 * 3 + 3));
    th_ddp_free(ddp);
    ddp = th_ddp_new(m, .bucket_cap_mb = 0.0005, .find_unused_parameters = true);
    RANK_CHECK(th_ddp_get_stats(ddp).buckets > 1);
    th_ddp_free(ddp);
    th_module_free(m);
    (void)world;
    leave();
}

/* ---------------------------------------------------------------- unused, shared, used twice */

typedef struct branches { th_module *a, *b; bool use_b; } branches;

static th_tensor *branches_forward(th_module *self, th_tensor *x)
{
    branches *d = th_module_data(self);
    th_tensor *out = th_forward(d->a, x);
    return d->use_b ? th_add(out, th_forward(d->b, x)) : out;
}

static th_module *two_branches(branches **data)
{
    branches *d = *data = calloc(1, sizeof *d);
    th_manual_seed(3);
    th_module *m = th_module_new("Branches", .data = d, .forward = branches_forward, .free_data = free);
    d->a = th_register_module(m, "a", th_nn_linear(6, 2));
    d->b = th_register_module(m, "b", th_nn_linear(6, 2));
    return m;
}

static void unused_parameter(int rank, int world)
{
    join();
    branches *d;
    th_module *m = two_branches(&d);
    th_ddp *ddp = th_ddp_new(m);
    TH_SCOPE();
    backward(forward(ddp, m, rows(rank, 2)));
    RANK_CHECK(th_ddp_pre_forward(ddp) == TH_ERR_RUNTIME);
    RANK_CHECK(strstr(th_error_message(), "b.weight, b.bias") && !strstr(th_error_message(), "a.weight"));
    RANK_CHECK(strstr(th_error_message(), "find_unused_parameters"));
    th_error_clear();
    d->use_b = true; /* the group and the reducer have survived */
    th_module_zero_grad(m);
    backward(forward(ddp, m, rows(rank, 2)));
    RANK_CHECK(same_on_all_ranks(th_grad(th_module_parameter(m, "b.weight"))));
    th_ddp_free(ddp);

    ddp = th_ddp_new(m, .find_unused_parameters = true);
    d->use_b = false; /* nobody uses b: its gradient stays absent */
    th_module_zero_grad(m);
    for (int i = 0; i < 2; i++) backward(forward(ddp, m, rows(rank, 2)));
    RANK_CHECK(!th_has_grad(th_module_parameter(m, "b.weight")));
    th_module_zero_grad(m);
    d->use_b = rank == 0; /* only rank 0 uses b: everybody gets a part of its gradient */
    backward(forward(ddp, m, rows(0, 2)));
    th_tensor *grad = th_grad(th_module_parameter(m, "b.weight"));
    RANK_CHECK(grad && same_on_all_ranks(grad));
    if (rank == 0) {
        th_tensor *averaged = th_clone(grad);
        th_module_zero_grad(m);
        th_ddp_set_require_sync(ddp, false);
        backward(forward(ddp, m, rows(0, 2)));
        RANK_CHECK(th_allclose(th_div_scalar(th_grad(th_module_parameter(m, "b.weight")), TH_S((double)world)), averaged));
    }
    th_ddp_free(ddp);
    th_module_free(m);
    leave();
}

static th_tensor *twice_forward(th_module *self, th_tensor *x)
{
    branches *d = th_module_data(self);
    return th_forward(d->a, th_forward(d->a, x));
}

static void shared_and_static(int rank, int world)
{
    join();
    TH_SCOPE();
    branches *d = calloc(1, sizeof *d);
    th_manual_seed(4);
    th_module *m = th_module_new("Twice", .data = d, .forward = twice_forward, .free_data = free);
    d->a = th_register_module(m, "a", th_nn_linear(6, 6));
    th_register_module(m, "unused", th_nn_linear(2, 2));
    th_register_parameter(m, "alias", th_module_parameter(m, "a.weight")); /* counted once */
    th_ddp *ddp = th_ddp_new(m, .static_graph = true);
    for (int i = 0; i < 3; i++) {
        th_module_zero_grad(m);
        backward(forward(ddp, m, rows(rank * 2, 2)));
        th_tensor *averaged = th_clone(th_grad(th_module_parameter(m, "a.weight")));
        RANK_CHECK(same_on_all_ranks(averaged) && !th_has_grad(th_module_parameter(m, "unused.weight")));
        th_tensor *sum = th_zeros_like(averaged);
        th_ddp_set_require_sync(ddp, false);
        for (int r = 0; r < world; r++) {
            th_module_zero_grad(m);
            backward(th_forward(m, rows(r * 2, 2)));
            th_add_(sum, th_grad(th_module_parameter(m, "a.weight")));
        }
        th_ddp_set_require_sync(ddp, true);
        RANK_CHECK(th_allclose(th_div_scalar(sum, TH_S((double)world)), averaged, .atol = 1e-6));
    }
    th_ddp_free(ddp);
    th_module_free(m);
    leave();
}

/* ---------------------------------------------------------------- no_sync */

static void no_sync(int rank, int world)
{
    join();
    for (int spelling = 0; spelling < 2; spelling++) { /* around forward and backward; around backward alone */
        TH_SCOPE();
        th_module *m = mlp(7), *one = mlp(7);
        th_ddp *ddp = th_ddp_new(m);
        for (int k = 0; k < 4; k++) {
            int64_t before = th_ddp_get_stats(ddp).all_reduces;
            if (k < 3 && spelling == 0) th_ddp_set_require_sync(ddp, false);
            th_tensor *out = forward(ddp, m, rows(k * world * 2 + rank * 2, 2));
            if (k < 3) th_ddp_set_require_sync(ddp, false);
            backward(out);
            th_ddp_set_require_sync(ddp, true);
            RANK_CHECK(th_ddp_get_stats(ddp).all_reduces - before == (k == 3));
            backward(th_forward(one, rows(k * world * 2, world * 2)));
        }
        th_tensors p = th_parameters(m), q = th_parameters(one);
        for (size_t i = 0; i < p.size; i++) RANK_CHECK(th_allclose(th_grad(p.data[i]), th_grad(q.data[i]), .atol = 1e-6));
        th_ddp_free(ddp);
        th_module_free(m);
        th_module_free(one);
    }
    leave();
}

/* ---------------------------------------------------------------- several models, different modules */

static void several_models(int rank, int world)
{
    join();
    TH_SCOPE();
    th_module *g = mlp(1), *c = th_nn_linear(3, 1);
    th_ddp *dg = th_ddp_new(g), *dc = th_ddp_new(c);
    for (int i = 0; i < 2; i++) {
        backward(forward(dc, c, forward(dg, g, rows(rank, 4))));
        RANK_CHECK(same_on_all_ranks(th_grad(th_module_parameter(g, "0.weight"))));
        RANK_CHECK(same_on_all_ranks(th_grad(th_module_parameter(c, "weight"))));
        backward(forward(dc, c, th_detach(forward(dg, g, rows(rank, 4)))));
    }
    RANK_CHECK(th_ddp_get_stats(dg).synced_backwards == 2 && th_ddp_get_stats(dc).synced_backwards == 4);
    th_ddp_free(dg);
    th_ddp_free(dc);
    th_module_free(g);
    th_module_free(c);
    (void)world;
    leave();
}

static void expect_difference(th_module *m, const char *a, const char *b)
{
    double start = ranks_now();
    th_ddp *ddp = th_ddp_new(m);
    RANK_CHECK(ddp == NULL && th_error() == TH_ERR_DISTRIBUTED);
    if (!strstr(th_error_message(), a) || !strstr(th_error_message(), b)) fprintf(stderr, "%s\n", th_error_message());
    RANK_CHECK(strstr(th_error_message(), a) && strstr(th_error_message(), b));
    RANK_CHECK(ranks_now() - start < 2);
    th_error_clear();
    th_module_free(m);
}

static void different_modules(int rank, int world)
{
    (void)world;
    join();
    TH_SCOPE();
    expect_difference(rank ? th_nn_sequential(th_nn_linear(2, 3), th_nn_linear(3, 1)) : th_nn_sequential(th_nn_linear(2, 3)),
                      "nothing", "'1.weight' float32 [1, 3] trainable");
    expect_difference(rank ? th_nn_sequential(th_nn_linear(2, 3), th_nn_linear(3, 2)) : th_nn_sequential(th_nn_linear(3, 2), th_nn_linear(2, 3)),
                      "'0.weight' float32 [2, 3]", "'0.weight' float32 [3, 2]");
    th_module *m = th_nn_linear(2, 3);
    if (rank) th_requires_grad_(th_module_parameter(m, "bias"), false);
    expect_difference(m, "'bias' float32 [3] trainable", "'bias' float32 [3] frozen");
    m = th_nn_linear(2, 2);
    th_module_requires_grad_(m, false);
    RANK_CHECK(th_ddp_new(m) == NULL && th_error_clear() == TH_ERR_RUNTIME);
    th_module_free(m);
    leave();
}

static const ranks_case cases[] = {
    {"equals", equals_one_process}, {"unchecked", unchecked}, {"buckets", buckets}, {"unused", unused_parameter}, {"shared", shared_and_static},
    {"no_sync", no_sync}, {"models", several_models}, {"modules", different_modules}};

CASE(unchecked)
CASE(buckets)
CASE(unused)
CASE(shared)
CASE(no_sync)
CASE(models)
CASE(modules)
static void test_equals(void **state) { (void)state; run_ranks("equals", 2); run_ranks("equals", 3); }

int main(void)
{
    ranks_main(cases, sizeof cases / sizeof *cases);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals), cmocka_unit_test(test_unchecked), cmocka_unit_test(test_buckets), cmocka_unit_test(test_unused), cmocka_unit_test(test_shared),
        cmocka_unit_test(test_no_sync), cmocka_unit_test(test_models), cmocka_unit_test(test_modules)};
    return cmocka_run_group_tests_name("dist_ddp", tests, NULL, NULL);
}
