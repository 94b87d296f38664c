/* Fabric with strategy "ddp" on two ranks: what its methods promise, uneven batches, joins, the strategy object. */
#include "ranks.h"
#include <cfabric/cfabric.h>
#include <cfabric/strategies.h>
#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <sys/stat.h>
#include <cmocka.h>

static fabric *start(fabric_strategy *strategy)
{
    fabric *fab = strategy ? fabric_new(.accelerator = "cpu", .devices = "2", .strategy_object = strategy)
                           : fabric_new(.accelerator = "cpu", .devices = "2", .strategy = "ddp");
    RANK_CHECK(fab != NULL);
    /* nothing that communicates works before the launch */
    th_tensor *t = th_ones(TH_INTS(1));
    RANK_CHECK(fabric_barrier(fab) == TH_ERR_RUNTIME && th_error_clear() == TH_ERR_RUNTIME);
    RANK_CHECK(fabric_all_reduce(fab, t) == NULL && th_error_clear() == TH_ERR_RUNTIME);
    RANK_CHECK(fabric_launch(fab) == TH_OK);
    return fab;
}

static void finish(fabric *fab)
{
    if (th_error() != TH_OK) fprintf(stderr, "pending: %s\n", th_error_message());
    RANK_CHECK(th_error() == TH_OK);
    RANK_CHECK(fabric_finish(fab) == 0);
}

static double read_at(th_tensor *t, int64_t i)
{
    TH_SCOPE();
    return th_item(th_select_int(th_detach(t), 0, i));
}

static void facts(int rank, int world)
{
    TH_SCOPE();
    fabric *fab = start(NULL);
    RANK_CHECK(fabric_world_size(fab) == world && fabric_global_rank(fab) == rank && fabric_local_rank(fab) == rank);
    RANK_CHECK(fabric_is_global_zero(fab) == (rank == 0) && fabric_node_rank(fab) == 0);
    int replicas, own;
    RANK_CHECK(fabric_strategy_sampler_args(fabric_strategy_of(fab), &replicas, &own) && replicas == 2 && own == rank);
    RANK_CHECK(strcmp(fabric_strategy_launcher(fabric_strategy_of(fab)), "subprocess") == 0);
    /* numbers and nested values */
    RANK_CHECK(fabric_all_reduce_number(fab, rank + 1, "mean") == 1.5 && fabric_all_reduce_number(fab, rank + 1, "MAX") == 2);
    RANK_CHECK(isnan(fabric_all_reduce_number(fab, 1, "invalid")) && th_error_clear() == TH_ERR_VALUE);
    th_tensor *all = fabric_all_gather_number(fab, rank + 0.5);
    RANK_CHECK(th_numel(all) == 2 && read_at(all, 1) == 1.5);
    th_value *text = fabric_broadcast(fab, th_value_string(rank ? "one" : "zero"), 1);
    RANK_CHECK(strcmp(th_value_as_string(text, ""), "one") == 0);
    th_value_free(text);
    finish(fab);
}

/* Pinned upstream: Linear(32, 2) with weights 0.01 on inputs 0.1. */
static void clipping(int rank, int world)
{
    (void)rank, (void)world;
    TH_SCOPE();
    fabric *fab = start(NULL);
    th_module *m = th_nn_linear(32, 2, .bias = false);
    th_optimizer *opt = th_optim_sgd(th_parameters(m), .lr = 0.1);
    RANK_CHECK(fabric_setup(fab, m, opt) == TH_OK);
    th_tensor *w = th_module_parameter(m, "weight");
    for (int kind = 0; kind < 2; kind++) {
        th_optimizer_zero_grad(opt);
        RANK_CHECK(fabric_backward(fab, th_sum(th_forward(m, th_full(TH_INTS(1, 32), TH_S(0.1))))) == TH_OK);
        th_tensor *norm = th_linalg_vector_norm(th_grad(w));
        RANK_CHECK(fabs(th_item(norm) - 0.8) < 1e-6);
        if (kind == 0)
            RANK_CHECK(fabric_clip_gradients(fab, m, opt, .max_norm = 0.4) != NULL);
        else
            fabric_clip_gradients(fab, m, opt, .clip_val = 0.05);
        RANK_CHECK(th_error() == TH_OK);
        if (kind == 0) RANK_CHECK(fabs(th_item(th_linalg_vector_norm(th_grad(w))) - 0.4) < 1e-4);
        if (kind == 1) RANK_CHECK(fabs(th_item(th_max(th_grad(w))) - 0.05) < 1e-7);
    }
    th_optimizer_free(opt);
    th_module_free(m);
    finish(fab);
}

static void rank_zero_first(int rank, int world)
{
    (void)world;
    char path[64], line[16] = "";
    snprintf(path, sizeof path, "/tmp/cfabric_first_%s", getenv("MASTER_PORT"));
    fabric *fab = start(NULL);
    {
        FABRIC_RANK_ZERO_FIRST(fab, false);
        if (rank == 0) {
            nanosleep(&(struct timespec){1, 0}, NULL);
            FILE *f = fopen(path, "w");
            fputs("ready", f);
            fclose(f);
        } else {
            FILE *f = fopen(path, "r");
            RANK_CHECK(f && fgets(line, sizeof line, f) && strcmp(line, "ready") == 0);
            fclose(f);
        }
    }
    fabric_barrier(fab);
    if (rank == 0) unlink(path);
    finish(fab);
}

/* ---------------------------------------------------------------- batches */

/* Ranks with 3 and 2 batches: every rank has its own data and no sampler is put in. */
static th_dataloader *own_data(fabric *fab, int batches)
{
    th_tensor *x = th_keep(th_randn(TH_INTS(batches * 2, 3)));
    th_dataloader *loader = th_dataloader_new(th_dataset_tensor(TH_TENSORS(x)), 2);
    th_free(x);
    RANK_CHECK(fabric_setup_dataloaders(fab, loader, .use_distributed_sampler = false) == TH_OK);
    return loader;
}

static int epochs(fabric *fab, th_module *m, th_optimizer *opt, th_dataloader *loader, bool join)
{
    int steps = 0;
    for (int epoch = 0; epoch < 2 && th_error() == TH_OK; epoch++) {
        th_batch batch;
        while (th_dataloader_next(loader, &batch)) {
            TH_SCOPE();
            th_optimizer_zero_grad(opt);
            fabric_backward(fab, th_mean(th_forward(m, batch.data[0])));
            th_optimizer_step(opt);
            steps += th_error() == TH_OK;
        }
        if (join) fabric_join(fab);
    }
    return steps;
}

static void uneven(int rank, int world)
{
    (void)world;
    fabric *fab = start(NULL);
    th_module *m = th_nn_linear(3, 1);
    th_optimizer *opt = th_optim_sgd(th_parameters(m), .lr = 0.1);
    RANK_CHECK(fabric_setup(fab, m, opt) == TH_OK);
    th_dataloader *loader = own_data(fab, rank == 0 ? 3 : 2);
    RANK_CHECK(epochs(fab, m, opt, loader, false) == 2); /* the third step is refused on both, nothing was summed */
    RANK_CHECK(th_error() == TH_ERR_DISTRIBUTED);
    if (!strstr(th_error_message(), "of 3 in epoch 0") || !strstr(th_error_message(), "of 2 in epoch 1"))
        fprintf(stderr, "%s\n", th_error_message());
    RANK_CHECK(strstr(th_error_message(), "batch 2 of 3 in epoch 0") && strstr(th_error_message(), "batch 0 of 2 in epoch 1"));
    th_error_clear();
    th_dataloader_free(loader);
    th_optimizer_free(opt);
    th_module_free(m);
    finish(fab);
}

static void joined(int rank, int world)
{
    (void)world;
    fabric *fab = start(NULL);
    th_module *m = th_nn_linear(3, 1);
    th_optimizer *opt = th_optim_sgd(th_parameters(m), .lr = 0.1);
    RANK_CHECK(fabric_setup(fab, m, opt) == TH_OK);
    th_dataloader *loader = own_data(fab, rank == 0 ? 3 : 2);
    RANK_CHECK(epochs(fab, m, opt, loader, true) == (rank == 0 ? 6 : 4));
    TH_SCOPE();
    th_tensor *w = fabric_all_gather(fab, th_module_parameter(m, "weight"));
    RANK_CHECK(w && th_equal(th_select_int(w, 0, 0), th_select_int(w, 0, 1)));
    th_dataloader_free(loader);
    th_optimizer_free(opt);
    th_module_free(m);
    finish(fab);
}

/* ---------------------------------------------------------------- no_backward_sync, options */

static void no_sync(int rank, int world)
{
    (void)world;
    TH_SCOPE();
    fabric *fab = start(fabric_strategy_ddp_new(.bucket_cap_mb = 1, .gradient_as_bucket_view = true, .static_graph = true,
                                                .comm_hook = th_ddp_allreduce_hook, .timeout = 30));
    th_module *m = th_nn_linear(2, 1), *plain = th_nn_linear(2, 1);
    RANK_CHECK(fabric_setup(fab, m) == TH_OK);
    th_ddp *ddp = fabric_strategy_ddp_of(fabric_strategy_of(fab), m);
    RANK_CHECK(ddp != NULL && fabric_strategy_ddp_of(fabric_strategy_of(fab), plain) == NULL);
    for (int k = 0; k < 4; k++) {
        FABRIC_NO_BACKWARD_SYNC(fab, m, k < 3);
        fabric_backward(fab, th_sum(th_forward(m, th_full(TH_INTS(1, 2), TH_S(rank + 1.0)))));
        RANK_CHECK(th_ddp_get_stats(ddp).all_reduces == (k == 3));
    }
    RANK_CHECK(read_at(th_reshape(th_grad(th_module_parameter(m, "weight")), TH_INTS(-1)), 0) == 4 * 1.5);
    {
        FABRIC_NO_BACKWARD_SYNC(fab, plain, true); /* not set up */
        RANK_CHECK(th_error_clear() == TH_ERR_TYPE);
    }
    th_module_free(plain);
    th_module_free(m);
    finish(fab);
    RANK_CHECK(fabric_strategy_ddp_new(.start_method = "teleport") == NULL && th_error_clear() == TH_ERR_VALUE);
    const char *const names[] = {"ddp_spawn", "spawn", "ddp_fork", "fork", "ddp_notebook", "fork", "DDP", "subprocess",
                                 "ddp_find_unused_parameters_true", "subprocess"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i += 2) {
        fabric_strategy *s = fabric_strategy_create(names[i]);
        RANK_CHECK(s && strcmp(fabric_strategy_launcher(s), names[i + 1]) == 0);
        fabric_strategy_free(s);
    }
}

static void shared_filesystem(int rank, int world)
{
    (void)world;
    fabric *fab = start(NULL);
    fabric_strategy *s = fabric_strategy_of(fab);
    char folder[64], own[80];
    snprintf(folder, sizeof folder, "/tmp/cfabric_shared_%s", getenv("MASTER_PORT"));
    snprintf(own, sizeof own, "%s/%d", folder, rank);
    if (rank == 0) mkdir(folder, 0755);
    fabric_barrier(fab);
    RANK_CHECK(fabric_strategy_is_shared_filesystem(s, folder, 0) && fabric_strategy_is_shared_filesystem(s, "s3://bucket", 0));
    RANK_CHECK(fabric_strategy_is_shared_filesystem(s, NULL, 0));
    RANK_CHECK(!fabric_strategy_is_shared_filesystem(s, own, 0) && th_error() == TH_OK); /* another path on each rank */
    RANK_CHECK(!fabric_strategy_is_shared_filesystem(s, "/no/such/folder", 0) && th_error_clear() == TH_ERR_NOT_FOUND);
    fabric_barrier(fab);
    if (rank == 0) RANK_CHECK(rmdir(folder) == 0); /* no probe file is left */
    finish(fab);
}

static const ranks_case cases[] = {{"shared_filesystem", shared_filesystem}, {"facts", facts}, {"clipping", clipping}, {"rank_zero_first", rank_zero_first}, {"uneven", uneven},
                                   {"joined", joined}, {"no_sync", no_sync}};

static void run(const char *name)
{
    ranks_result r;
    ranks_run(name, 2, 60, &r);
    if (!r.ok) ranks_show(&r, 2);
    assert_true(r.ok);
}

#define CASE(name) static void test_##name(void **state) { (void)state; run(#name); }
CASE(facts)
CASE(clipping)
CASE(rank_zero_first)
CASE(uneven)
CASE(joined)
CASE(no_sync)
CASE(shared_filesystem)

int main(void)
{
    ranks_main(cases, sizeof cases / sizeof *cases);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_facts), cmocka_unit_test(test_clipping), cmocka_unit_test(test_rank_zero_first),
                                       cmocka_unit_test(test_uneven), cmocka_unit_test(test_joined), cmocka_unit_test(test_no_sync),
                                       cmocka_unit_test(test_shared_filesystem)};
    return cmocka_run_group_tests_name("dist_fabric", tests, NULL, NULL);
}
