/* The Fabric object on two ranks: what needs launching, collectives through Fabric, rank 0 first, clipping, gradients, files. Semantics 21
 * items 30, 44, 57-59, 61, 62, 64, 68. */
#include "ranks.h"

#include <cfabric/cfabric.h>
#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <sys/stat.h>
#include <cmocka.h>

static fabric *unlaunched(void)
{
    fabric *fab = fabric_new(.accelerator = "cpu", .devices = "2", .strategy = "ddp");
    RANK_CHECK(fab != NULL);
    return fab;
}

static fabric *launched(void)
{
    fabric *fab = unlaunched();
    RANK_CHECK(fabric_launch(fab) == TH_OK);
    return fab;
}

static void finish(fabric *fab)
{
    if (th_error() != TH_OK) fprintf(stderr, "pending: %s\n", th_error_message());
    RANK_CHECK(fabric_finish(fab) == 0);
}

#define RAISES(expression, status)                                               \
    do {                                                                         \
        (void)(expression);                                                      \
        RANK_CHECK(th_error() == (status));                                      \
        th_error_clear();                                                        \
    } while (0)

/* ---------------------------------------------------------------- before launching (item 30) */

static void before_launch(int rank, int world)
{
    (void)rank, (void)world;
    fabric *fab = unlaunched();
    th_module *model = th_nn_linear(2, 2);
    th_optimizer *optimizer = th_optim_sgd(th_parameters(model), .lr = 0.1);
    th_dataloader *loader = th_dataloader_new(th_dataset_tensor(TH_TENSORS(th_arange(TH_S(8)))), 2);
    th_tensor *x = th_ones(TH_INTS(1));
    RAISES(fabric_setup(fab, model, optimizer), TH_ERR_RUNTIME);
    RAISES(fabric_setup_module(fab, model), TH_ERR_RUNTIME);
    RAISES(fabric_setup_optimizers(fab, optimizer), TH_ERR_RUNTIME);
    RAISES(fabric_setup_dataloaders(fab, loader), TH_ERR_RUNTIME);
    RAISES(fabric_broadcast(fab, th_value_int(1), 0), TH_ERR_RUNTIME);
    RAISES(fabric_broadcast_tensor(fab, x, 0), TH_ERR_RUNTIME);
    RAISES(fabric_barrier(fab), TH_ERR_RUNTIME);
    RAISES(fabric_all_reduce(fab, x), TH_ERR_RUNTIME);
    RAISES(fabric_all_gather(fab, x), TH_ERR_RUNTIME);
    RAISES(fabric_all_reduce_number(fab, 1, "sum"), TH_ERR_RUNTIME);
    RAISES(fabric_all_gather_value(fab, th_value_int(1)), TH_ERR_RUNTIME);
    RAISES(fabric_save(fab, "/nowhere/x.pt", th_value_dict()), TH_ERR_RUNTIME); /* checked before anything is written */
    RAISES(fabric_load(fab, "/nowhere/x.pt", NULL), TH_ERR_RUNTIME);
    {
        FABRIC_INIT_MODULE(fab, -1);
        RANK_CHECK(th_error() == TH_ERR_RUNTIME);
        th_error_clear();
    }
    {
        FABRIC_RANK_ZERO_FIRST(fab, false); /* allowed, without effect */
        RANK_CHECK(th_error() == TH_OK);
    }
    RANK_CHECK(fabric_print(fab, "%s", "") == TH_OK);
    th_optimizer_free(optimizer), th_module_free(model), th_dataloader_free(loader);
    finish(fab);
}

/* ---------------------------------------------------------------- collectives (items 59, 61) */

static void collectives(int rank, int world)
{
    fabric *fab = launched();
    RANK_CHECK(fabric_global_rank(fab) == rank && fabric_world_size(fab) == world && fabric_is_global_zero(fab) == (rank == 0));
    RAISES(fabric_launch(fab), TH_ERR_RUNTIME);
    const th_dtype dtypes[] = {TH_INT64, TH_INT32, TH_FLOAT32, TH_FLOAT16};
    static const struct { const char *op; double floating, integer; } expected[] = {{"MAX", 2, 2}, {"sum", 3, 3}, {"mean", 1.5, 1}};
    for (size_t d = 0; d < 4; d++)
        for (size_t o = 0; o < 3; o++) {
            th_tensor *x = th_full(TH_INTS(2), TH_S(rank + 1), .dtype = dtypes[d]);
            th_tensor *same = fabric_all_reduce(fab, x, .reduce_op = expected[o].op);
            RANK_CHECK(same != NULL && th_is_same(same, x)); /* in place */
            double want = th_dtype_is_floating_point(dtypes[d]) ? expected[o].floating : expected[o].integer;
            RANK_CHECK(th_item(th_select_int(x, 0, 1)) == want);
        }
    th_tensor *gathered = fabric_all_gather(fab, th_full(TH_INTS(3), TH_S((double)rank)));
    RANK_CHECK(th_dim(gathered) == 2 && th_size(gathered, 0) == world && th_size(gathered, 1) == 3);
    RANK_CHECK(th_item(th_sum(th_select_int(gathered, 0, 1))) == 3.0);
    RANK_CHECK(th_item(th_sum(fabric_all_gather_number(fab, rank + 0.5))) == 2.0);
    RANK_CHECK(fabric_all_reduce_number(fab, rank + 0.25, "mean") == 0.75);
    RANK_CHECK(th_item(fabric_broadcast_tensor(fab, th_full(TH_INTS(1), TH_S(rank + 5.0)), 1)) == 6.0);

    th_value *list = th_value_list();
    th_value_append(list, th_value_string(rank == 0 ? "zero" : "one"));
    th_value_append(list, th_value_int(rank + 1));
    th_value *nested = TH_STATE({"loss", th_state(rank + 0.5)}, {"list", list});
    th_value *sums = fabric_all_reduce_value(fab, nested, .reduce_op = "sum");
    RANK_CHECK(th_item(th_value_as_tensor(th_value_get(sums, "loss"))) == 2.0);
    RANK_CHECK(th_item_int(th_value_as_tensor(th_value_at(th_value_get(sums, "list"), 1))) == 3);
    RANK_CHECK(strcmp(th_value_as_string(th_value_at(th_value_get(sums, "list"), 0), ""), rank == 0 ? "zero" : "one") == 0);
    th_value_free(sums);
    th_value *told = fabric_broadcast(fab, TH_STATE({"who", th_state(rank)}, {"text", th_state("hello")}), 1);
    RANK_CHECK(th_value_as_int(th_value_get(told, "who"), -1) == 1);
    th_value_free(told);
    RANK_CHECK(fabric_barrier(fab) == TH_OK);
    finish(fab);
}

/* ---------------------------------------------------------------- rank 0 first (item 58) */

static void zero_first(int rank, int world)
{
    (void)world;
    fabric *fab = launched();
    const char *path = getenv("T_FILE");
    struct stat info;
    for (int local = 0; local <= 1; local++) {
        {
            FABRIC_RANK_ZERO_FIRST(fab, local == 1);
            if (rank == 0) {
                nanosleep(&(struct timespec){0, 200000000}, NULL);
                FILE *file = fopen(path, "w");
                RANK_CHECK(file != NULL && fclose(file) == 0);
            }
            RANK_CHECK(stat(path, &info) == 0); /* the other comes afterwards */
        }
        RANK_CHECK(fabric_barrier(fab) == TH_OK);
        if (rank == 0) remove(path);
        RANK_CHECK(fabric_barrier(fab) == TH_OK);
    }
    finish(fab);
}

/* ---------------------------------------------------------------- training (items 44, 57, 62) */

static th_module *net(fabric *fab, th_optimizer **optimizer)
{
    th_module *model = th_nn_linear(32, 2, .bias = false);
    {
        TH_NO_GRAD();
        th_fill_scalar_(th_module_parameter(model, "weight"), TH_S(fabric_global_rank(fab) == 0 ? 0.01 : 9.0));
    }
    *optimizer = th_optim_sgd(th_parameters(model), .lr = 0.1);
    RANK_CHECK(fabric_setup(fab, model, *optimizer) == TH_OK);
    return model;
}

static double grad(th_module *model) { return th_item(th_max(th_grad(th_module_parameter(model, "weight")))); }

static void backward(fabric *fab, th_module *model, double input)
{
    RANK_CHECK(fabric_backward(fab, th_sum(th_forward(model, th_full(TH_INTS(1, 32), TH_S(input))))) == TH_OK);
}

static void training(int rank, int world)
{
    (void)world;
    fabric *fab = launched();
    th_optimizer *optimizer;
    th_module *model = net(fab, &optimizer);
    th_tensor *weight = th_module_parameter(model, "weight");
    RANK_CHECK(fabs(th_item(th_max(weight)) - 0.01) < 1e-7); /* rank 0's weights on both */

    backward(fab, model, 0.1);
    th_tensor *norm = fabric_clip_gradients(fab, model, optimizer, .max_norm = 0.4);
    RANK_CHECK(fabs(th_item(norm) - 0.8) < 1e-6);
    RANK_CHECK(fabs(th_item(th_linalg_vector_norm(th_grad(weight))) - 0.4) < 1e-5);
    th_optimizer_zero_grad(optimizer);
    backward(fab, model, 0.1);
    fabric_clip_gradients(fab, model, optimizer, .clip_val = 0.05);
    RANK_CHECK(fabs(grad(model) - 0.05) < 1e-7);

    th_optimizer_zero_grad(optimizer);
    backward(fab, model, rank + 1.0);
    RANK_CHECK(fabs(grad(model) - 1.5) < 1e-6); /* the mean of 1 and 2 */
    th_optimizer_zero_grad(optimizer);
    {
        FABRIC_NO_BACKWARD_SYNC(fab, model, true);
        backward(fab, model, rank + 1.0);
    }
    RANK_CHECK(fabs(grad(model) - (rank + 1.0)) < 1e-6); /* each its own */
    {
        FABRIC_NO_BACKWARD_SYNC(fab, model, false);
        backward(fab, model, rank + 1.0);
    }
    RANK_CHECK(fabs(grad(model) - 3.0) < 1e-6); /* the mean of the accumulated ones */
    th_optimizer_step(optimizer);
    th_value *both = fabric_all_gather_value(fab, th_value_tensor(weight));
    th_tensor *weights = th_value_as_tensor(both);
    RANK_CHECK(th_item_int(th_all(th_eq(th_select_int(weights, 0, 0), th_select_int(weights, 0, 1)))) == 1);
    th_value_free(both);

    th_value *state = th_module_state_dict(model); /* no wrapper prefix */
    RANK_CHECK(strcmp(th_value_key_at(state, 0, NULL), "weight") == 0);
    th_value_free(state);
    th_optimizer_free(optimizer), th_module_free(model);
    finish(fab);
}

/* ---------------------------------------------------------------- loaders */

static void loaders(int rank, int world)
{
    (void)world;
    fabric *fab = launched();
    fabric_seed_everything(1, .verbose = false);
    th_dataloader *ordered = th_dataloader_new(th_dataset_tensor(TH_TENSORS(th_arange(TH_S(8)))), 4);
    th_dataloader *shuffled = th_dataloader_new(th_dataset_tensor(TH_TENSORS(th_arange(TH_S(8)))), 4, .shuffle = true);
    RANK_CHECK(fabric_setup_dataloaders(fab, ordered, shuffled) == TH_OK);
    static const int64_t want[2][3][4] = {{{0, 2, 4, 6}, {5, 2, 7, 1}, {0, 7, 6, 1}}, {{1, 3, 5, 7}, {4, 6, 3, 0}, {4, 2, 5, 3}}};
    th_dataloader *const in_turn[] = {ordered, shuffled, shuffled};
    for (int pass = 0; pass < 3; pass++) {
        th_batch batch;
        int64_t got[4] = {0};
        RANK_CHECK(th_dataloader_len(in_turn[pass]) == 1);
        RANK_CHECK(th_dataloader_next(in_turn[pass], &batch));
        RANK_CHECK(th_copy_to(batch.data[0], got, sizeof got, TH_INT64) == TH_OK);
        RANK_CHECK(memcmp(got, want[rank][pass], sizeof got) == 0);
        RANK_CHECK(!th_dataloader_next(in_turn[pass], &batch));
    }
    th_dataloader *untouched = th_dataloader_new(th_dataset_tensor(TH_TENSORS(th_arange(TH_S(8)))), 4);
    RANK_CHECK(fabric_setup_dataloaders(fab, untouched, .use_distributed_sampler = false) == TH_OK);
    RANK_CHECK(th_dataloader_len(untouched) == 2);
    th_dataloader_free(ordered), th_dataloader_free(shuffled), th_dataloader_free(untouched);
    finish(fab);
}

/* ---------------------------------------------------------------- files (items 64, 68) */

static void files(int rank, int world)
{
    (void)world;
    fabric *fab = launched();
    const char *path = getenv("T_FILE");
    th_optimizer *optimizer;
    th_module *model = net(fab, &optimizer);
    RANK_CHECK(fabric_save(fab, path, TH_STATE({"model", th_state(model)}, {"rank", th_state(rank)})) == TH_OK);
    RANK_CHECK(access(path, R_OK) == 0); /* save ends with a barrier */

    th_module *raw = th_nn_linear(32, 2, .bias = false); /* loaded before it is set up */
    th_value *want = TH_STATE({"model", th_state(raw)}, {"rank", th_state(-1)});
    th_value *rest = fabric_load(fab, path, want);
    RANK_CHECK(rest != NULL && th_value_size(rest) == 0);
    RANK_CHECK(th_value_as_int(th_value_get(want, "rank"), -1) == 0); /* rank 0 wrote it */
    RANK_CHECK(fabs(th_item(th_max(th_module_parameter(raw, "weight"))) - 0.01) < 1e-7);
    th_value_free(rest), th_value_free(want);

    want = TH_STATE({"model", th_state(model)});
    rest = fabric_load(fab, path, want);
    RANK_CHECK(rest != NULL && th_value_size(rest) == 1);
    th_value_free(rest), th_value_free(want);
    th_optimizer_free(optimizer), th_module_free(model), th_module_free(raw);
    finish(fab);
}

/* ---------------------------------------------------------------- the driver */

static const ranks_case cases[] = {{"before_launch", before_launch}, {"collectives", collectives}, {"zero_first", zero_first},
                                   {"training", training},           {"loaders", loaders},         {"files", files}};

static void run(const char *name)
{
    char folder[] = "/tmp/cfabric-test-XXXXXX", file[64];
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/file", folder);
    setenv("T_FILE", file, 1);
    ranks_result *r = calloc(1, sizeof *r);
    ranks_run(name, 2, 60, r);
    if (!r->ok) ranks_show(r, 2);
    bool ok = r->ok;
    free(r);
    unlink(file);
    rmdir(folder);
    assert_true(ok);
}

#define DRIVE(name) static void test_##name(void **state) { (void)state; run(#name); }
DRIVE(before_launch)
DRIVE(collectives)
DRIVE(zero_first)
DRIVE(training)
DRIVE(loaders)
DRIVE(files)

int main(void)
{
    ranks_main(cases, sizeof cases / sizeof *cases);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_before_launch), cmocka_unit_test(test_collectives),
                                       cmocka_unit_test(test_zero_first),    cmocka_unit_test(test_training),
                                       cmocka_unit_test(test_loaders),       cmocka_unit_test(test_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
