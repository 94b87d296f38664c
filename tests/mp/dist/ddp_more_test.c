/* The gradient reducer on 2 and 3 ranks: communication hooks, dtypes, buffers, joins, ranks that do something else. */
#include "ddp_common.h"

static th_tensor *same(th_module *self, th_tensor *x)
{
    (void)self;
    return x;
}

static th_status failing_hook(th_grad_bucket *bucket, void *user)
{
    (void)bucket;
    ++*(int *)user;
    return th_error_set(TH_ERR_CALLBACK, "the hook refuses");
}

static void comm_hooks(int rank, int world)
{
    join();
    const th_comm_hook hooks[] = {th_ddp_allreduce_hook, th_ddp_fp16_compress_hook, th_ddp_bf16_compress_hook};
    const double tolerance[] = {1e-6, 2e-3, 2e-2};
    for (int h = 0; h < 3; h++) {
        TH_SCOPE();
        th_module *m = mlp(9), *one = mlp(9);
        th_ddp *ddp = th_ddp_new(m, .bucket_cap_mb = 0.0005, .gradient_as_bucket_view = h == 1);
        RANK_CHECK(th_ddp_register_comm_hook(ddp, hooks[h], NULL) == TH_OK);
        for (int i = 0; i < 2; i++) {
            th_module_zero_grad(m);
            th_module_zero_grad(one);
            backward(forward(ddp, m, rows(rank * 4, 4)));
            backward(th_forward(one, rows(0, world * 4)));
        }
        th_tensors p = th_parameters(m), q = th_parameters(one);
        for (size_t i = 0; i < p.size; i++) {
            RANK_CHECK(same_on_all_ranks(th_grad(p.data[i])));
            RANK_CHECK(th_allclose(th_grad(p.data[i]), th_grad(q.data[i]), .rtol = tolerance[h], .atol = tolerance[h]));
        }
        RANK_CHECK(th_ddp_register_comm_hook(ddp, hooks[h], NULL) == TH_ERR_RUNTIME);
        th_error_clear();
        th_ddp_free(ddp);
        th_module_free(m);
        th_module_free(one);
    }
    TH_SCOPE();
    int calls = 0;
    th_module *m = mlp(9);
    th_ddp *ddp = th_ddp_new(m);
    th_ddp_register_comm_hook(ddp, failing_hook, &calls);
    RANK_CHECK(th_backward(th_sum(forward(ddp, m, rows(0, 2)))) == TH_ERR_CALLBACK && calls == 1);
    RANK_CHECK(strstr(th_error_message(), "the hook refuses"));
    th_error_clear();
    th_ddp_free(ddp);
    th_module_free(m);
    leave();
}

static void half_gradients(int rank, int world)
{
    join();
    const th_dtype dtypes[] = {TH_BFLOAT16, TH_FLOAT64, TH_COMPLEX64};
    for (int d = 0; d < 3; d++) {
        TH_SCOPE();
                th_module *m = th_module_new("Weight", .forward = same);
        th_tensor *w = th_register_parameter(m, "w", th_full(TH_INTS(5), TH_S(1.0), .dtype = dtypes[d]));
        th_requires_grad_(w, true);
        th_ddp *ddp = th_ddp_new(m);
        RANK_CHECK(ddp != NULL);
        th_tensor *product = th_mul_scalar(w, TH_S(rank + 1.0));
        if (dtypes[d] == TH_COMPLEX64) product = th_real(product);
        RANK_CHECK(th_backward(th_sum(product)) == TH_OK);
        th_tensor *grad = th_grad(w);
        RANK_CHECK(th_dtype_of(grad) == dtypes[d]);
        if (dtypes[d] == TH_COMPLEX64) grad = th_real(grad);
        RANK_CHECK(fabs(th_item(th_to_dtype(th_select_int(grad, 0, 4), TH_FLOAT64)) - (world + 1) / 2.0) < 1e-2);
        th_ddp_free(ddp);
        th_module_free(m);
    }
    leave();
}

static void buffers(int rank, int world)
{
    join();
    TH_SCOPE();
    th_manual_seed(5);
    th_module *m = th_nn_sequential(th_nn_linear(6, 4), th_nn_batch_norm1d(4));
    th_ddp *ddp = th_ddp_new(m);
    for (int i = 0; i < 3; i++) {
        backward(forward(ddp, m, rows(i * 64 + rank * 8, 8)));
        sgd(m, 0.1);
        RANK_CHECK(same_on_all_ranks(th_module_buffer(m, "1.running_mean")));
    }
    RANK_CHECK(module_same(m));
    /* two forwards, one backward */
    th_tensor *both = th_add(forward(ddp, m, rows(rank, 8)), forward(ddp, m, rows(rank + 50, 8)));
    backward(both);
    RANK_CHECK(module_same(m));
    /* a buffer replaced by another tensor is followed */
    RANK_CHECK(th_module_set_tensor(m, "1.running_mean", th_full(TH_INTS(4), TH_S(rank + 5.0))) == TH_OK);
    RANK_CHECK(th_ddp_sync_buffers(ddp) == TH_OK);
    RANK_CHECK(th_item(th_mean(th_module_buffer(m, "1.running_mean"))) == 5.0);
    /* forwards without a backward may differ between ranks */
    if (rank == 0) {
        TH_NO_GRAD();
        th_eval(m);
        forward(ddp, m, rows(0, 4));
        th_train(m, true);
    }
    backward(forward(ddp, m, rows(rank, 8)));
    th_ddp_free(ddp);
    th_module_free(m);
    (void)world;
    leave();
}

/* ---------------------------------------------------------------- joins */

static void joining(int rank, int world)
{
    join();
    for (int shape = 0; shape < 3; shape++) {
        th_module *m = mlp((uint64_t)rank);
        th_ddp *ddp = th_ddp_new(m, .bucket_cap_mb = 0.0005, .find_unused_parameters = shape == 2);
        int steps = shape == 0 ? 2 + rank : 4 - rank; /* rank 0 ends first, then last */
        for (int epoch = 0; epoch < 2; epoch++) {
            for (int i = 0; i < steps; i++) {
                TH_SCOPE();
                backward(forward(ddp, m, rows(i * 8 + rank, 4)));
                sgd(m, 0.1);
            }
            RANK_CHECK(th_ddp_join(&ddp, 1) == TH_OK);
            RANK_CHECK(module_same(m));
        }
        th_ddp_free(ddp);
        th_module_free(m);
    }
    /* another collective of a rank that still runs cannot be mirrored: all get an error */
    th_module *m = mlp(0);
    th_ddp *ddp = th_ddp_new(m);
    th_status status = rank == 0 ? th_ddp_join(&ddp, 1) : th_dist_barrier(NULL);
    RANK_CHECK(status == TH_ERR_DISTRIBUTED && strstr(th_error_message(), "data has ended") && strstr(th_error_message(), "barrier"));
    th_error_clear();
    th_ddp_free(ddp);
    th_module_free(m);
    (void)world;
    leave();
}

/* One rank leaves the loop early and goes on to something else: an error on all ranks, nothing is summed. */
static void one_step_more(int rank, int world)
{
    (void)world;
    join();
    th_module *m = mlp(0);
    th_ddp *ddp = th_ddp_new(m);
    for (int i = 0; i < (rank == 0 ? 3 : 2); i++) {
        TH_SCOPE();
        th_module_zero_grad(m);
        th_tensor *out = forward(ddp, m, rows(rank, 4));
        th_status status = th_backward(th_mean(out));
        RANK_CHECK(status == (i == 2 ? TH_ERR_DISTRIBUTED : TH_OK));
    }
    if (rank != 0) RANK_CHECK(th_dist_barrier(NULL) == TH_ERR_DISTRIBUTED);
    RANK_CHECK(strstr(th_error_message(), "DDP backward") && strstr(th_error_message(), "barrier"));
    th_error_clear();
    th_ddp_free(ddp);
    th_module_free(m);
    leave();
}

static void world_of_one(int rank, int world)
{
    (void)rank;
    (void)world;
    TH_SCOPE();
    th_module *m = mlp(0); /* without a process group */
    th_ddp *ddp = th_ddp_new(m);
    RANK_CHECK(ddp != NULL);
    backward(forward(ddp, m, rows(0, 4)));
    RANK_CHECK(th_ddp_get_stats(ddp).all_reduces == 0 && th_ddp_join(&ddp, 1) == TH_OK);
    th_ddp_free(ddp);
    RANK_CHECK(th_dist_init_process_group(.world_size = 1, .rank = 0, .timeout = 5) == TH_OK);
    ddp = th_ddp_new(m);
    backward(forward(ddp, m, rows(0, 4)));
    th_ddp_free(ddp);
    th_module_free(m);
    leave();
}

/* A program may end anywhere: inside a hook, with everything open, with a tensor in a global. */
static th_tensor *kept;

static th_status leaving_hook(th_tensor *leaf, void *user)
{
    (void)leaf, (void)user;
    exit(0);
}

static void exit_in_backward(int rank, int world)
{
    (void)world;
    join();
    th_module *m = mlp(0);
    th_ddp *ddp = th_ddp_new(m);
    TH_SCOPE();
    backward(forward(ddp, m, rows(rank, 4)));
    kept = th_keep(th_ones(TH_INTS(3)));
    th_hook *hook = th_register_post_accumulate_grad_hook(th_module_parameter(m, "0.weight"), leaving_hook, NULL);
    RANK_CHECK(hook != NULL);
    th_backward(th_mean(forward(ddp, m, rows(rank, 4))));
    RANK_CHECK(false);
}

/* The reverse order of the usual one, twice, and everything afterwards is an error or an identity. */
static void odd_endings(int rank, int world)
{
    (void)rank;
    join();
    th_module *m = mlp(0);
    th_ddp *ddp = th_ddp_new(m);
    TH_SCOPE();
    th_dist_destroy_process_group(NULL);
    th_dist_destroy_process_group(NULL);
    RANK_CHECK(th_backward(th_mean(forward(ddp, m, rows(0, 4)))) == TH_ERR_RUNTIME && strstr(th_error_message(), "destroyed"));
    th_error_clear();
    th_module_free(m);
    th_ddp_free(ddp);
    th_tensor *t = th_ones(TH_INTS(2));
    RANK_CHECK(th_dist_all_reduce(t) == TH_OK && th_item(th_sum(t)) == 2 && world == 2);
    th_dist_destroy_process_group(NULL);
}

static const ranks_case cases[] = {{"hooks", comm_hooks}, {"half", half_gradients}, {"buffers", buffers}, {"joining", joining},
                                   {"step_more", one_step_more}, {"exit_in_backward", exit_in_backward}, {"odd_endings", odd_endings}, {"one", world_of_one}};

CASE(hooks)
CASE(half)
CASE(buffers)
CASE(step_more)
CASE(exit_in_backward)
CASE(odd_endings)
static void test_one(void **state) { (void)state; run_ranks("one", 1); }
static void test_joining(void **state) { (void)state; run_ranks("joining", 2); run_ranks("joining", 3); }

int main(void)
{
    ranks_main(cases, sizeof cases / sizeof *cases);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hooks), cmocka_unit_test(test_half), cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_joining), cmocka_unit_test(test_step_more), cmocka_unit_test(test_exit_in_backward), cmocka_unit_test(test_odd_endings), cmocka_unit_test(test_one)};
    return cmocka_run_group_tests_name("dist_ddp_more", tests, NULL, NULL);
}
