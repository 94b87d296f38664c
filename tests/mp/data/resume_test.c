/* Exact resume: model, optimizer, scheduler, loader position and random numbers go through a file twice, in the middle of an
 * epoch, and the run in three pieces equals the uninterrupted one bit for bit, on 1 and 2 ranks, with 0 and 2 workers. Evaluation
 * over ranks counts each sample once. */
#include "ranks.h"

#include <cfabric/cfabric.h>
#include <cfabric/ops.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>

enum { SAMPLES = 44, BATCH = 4, EPOCHS = 3 };

static int number(const char *name) { return getenv(name) != NULL ? atoi(getenv(name)) : 0; }

static fabric *start_fabric(int world)
{
    char devices[8];
    snprintf(devices, sizeof devices, "%d", world);
    fabric *fab = fabric_new(.accelerator = "cpu", .devices = devices, .strategy = world > 1 ? "ddp" : "auto");
    RANK_CHECK(fab != NULL);
    RANK_CHECK(fabric_launch(fab) == TH_OK);
    return fab;
}

static th_dataset *numbers(int64_t n)
{
    TH_SCOPE();
    th_tensor *x = th_reshape(th_arange(TH_S((int)n), .dtype = TH_FLOAT32), TH_INTS(n, 1));
    return th_dataset_tensor(TH_TENSORS(th_div_scalar(x, TH_S(10.0)), x));
}

typedef struct run {
    fabric *fab;
    th_module *model;
    th_optimizer *opt;
    th_scheduler *scheduler;
    th_dataloader *loader;
} run;

static run set_up(int world)
{
    run r = {.fab = start_fabric(world)};
    fabric_seed_everything(number("T_SEED"));
    r.model = th_nn_sequential(th_nn_linear(1, 16), th_nn_relu(), th_nn_dropout(.p = 0.3), th_nn_linear(16, 1));
    r.opt = th_optim_adamw(th_parameters(r.model), .lr = 0.01);
    r.scheduler = th_lr_scheduler_step_lr(r.opt, .step_size = 1, .gamma = 0.7);
    r.loader = th_dataloader_new(numbers(SAMPLES), BATCH, true, .num_workers = number("T_WORKERS"));
    RANK_CHECK(fabric_setup(r.fab, r.model, r.opt) == TH_OK);
    RANK_CHECK(fabric_setup_dataloaders(r.fab, r.loader) == TH_OK);
    return r;
}

/* Borrowed objects, so the dict is made anew for each save and load. */
static th_value *state_of(const run *r)
{
    return TH_STATE({"model", th_state(r->model)}, {"optimizer", th_state(r->opt)}, {"scheduler", th_state(r->scheduler)},
                    {"loader", th_state(r->loader)}, {"rng", th_state(th_default_generator())});
}

static void step(run *r, const th_batch *batch)
{
    TH_SCOPE();
    uint32_t bits;
    th_optimizer_zero_grad(r->opt);
    th_tensor *loss = th_mse_loss(th_forward(r->model, batch->data[0]), batch->data[1]);
    RANK_CHECK(fabric_backward(r->fab, loss) == TH_OK);
    th_optimizer_step(r->opt);
    float value = (float)th_item(loss);
    memcpy(&bits, &value, sizeof bits);
    printf("e%d b%d x%d %08x\n", (int)th_dataloader_epoch(r->loader) - 1, (int)batch->index,
           (int)((float *)th_data_ptr(batch->data[1]))[0], bits);
}

/* From the start, or from the file T_FROM; at most T_STEPS steps, then into the file T_TO. */
static void train(int rank, int world)
{
    (void)rank;
    run r = set_up(world);
    int left = number("T_STEPS");
    if (getenv("T_FROM") != NULL) {
        th_value *state = state_of(&r), *rest = fabric_load(r.fab, getenv("T_FROM"), state);
        RANK_CHECK(th_error() == TH_OK);
        th_value_free(rest);
        th_value_free(state);
    }
    while (left > 0 && th_dataloader_epoch(r.loader) <= EPOCHS) {
        th_batch batch;
        while (left > 0 && th_dataloader_next(r.loader, &batch)) {
            step(&r, &batch);
            left--;
        }
        if (left > 0) RANK_CHECK(th_scheduler_step(r.scheduler) == TH_OK);
        if (left > 0 && th_dataloader_epoch(r.loader) == EPOCHS) break;
    }
    RANK_CHECK(th_error() == TH_OK);
    if (getenv("T_TO") != NULL) RANK_CHECK(fabric_save(r.fab, getenv("T_TO"), state_of(&r)) == TH_OK);
    th_dataloader_free(r.loader);
    th_scheduler_free(r.scheduler);
    th_optimizer_free(r.opt);
    th_module_free(r.model);
    RANK_CHECK(fabric_finish(r.fab) == 0);
}

/* BC-007: 21 samples with label = index; the mean over all ranks is 10, whatever their number. */
static void evaluate(int rank, int world)
{
    fabric *fab = start_fabric(world);
    th_dataloader *loader = th_dataloader_new(numbers(21), 4, .sampler = th_sampler_distributed_eval(21, world, rank));
    RANK_CHECK(fabric_setup_dataloaders(fab, loader) == TH_OK);
    double sum = 0, count = 0;
    th_batch batch;
    while (th_dataloader_next(loader, &batch)) {
        TH_SCOPE();
        sum += th_item(th_sum(batch.data[1]));
        count += (double)batch.length;
    }
    sum = fabric_all_reduce_number(fab, sum, "sum");
    count = fabric_all_reduce_number(fab, count, "sum");
    RANK_CHECK(count == 21 && sum / count == 10);
    th_dataloader_free(loader);
    RANK_CHECK(fabric_finish(fab) == 0);
}

/* ---------------------------------------------------------------- the driver */

static char folder[64];

/* One process group; its ranks' text is added to `text`. */
static void go(int world, int seed, int steps, const char *from, const char *to, char text[2][8192])
{
    ranks_result *r = calloc(1, sizeof *r);
    char value[128];
    snprintf(value, sizeof value, "%d", steps);
    setenv("T_STEPS", value, 1);
    snprintf(value, sizeof value, "%d", seed);
    setenv("T_SEED", value, 1);
    unsetenv("T_FROM");
    unsetenv("T_TO");
    snprintf(value, sizeof value, "%s/%s", folder, from != NULL ? from : "");
    if (from != NULL) setenv("T_FROM", value, 1);
    snprintf(value, sizeof value, "%s/%s", folder, to != NULL ? to : "");
    if (to != NULL) setenv("T_TO", value, 1);
    ranks_run_hooked("train", world, 60, r, NULL, NULL);
    for (int i = 0; i < world; i++) {
        if (r->code[i] != 0) print_error("rank %d ended with %d: %s\n", i, r->code[i], r->text[i]);
        /* only the lines of steps, not Fabric's own */
        for (char *line = strtok(r->text[i], "\n"); line != NULL; line = strtok(NULL, "\n"))
            if (line[0] == 'e') strcat(strcat(text[i], line), "\n");
    }
    bool ok = r->ok;
    free(r);
    assert_true(ok);
}

static void check(int world, const char *workers)
{
    static char whole[2][8192], pieces[2][8192];
    memset(whole, 0, sizeof whole);
    memset(pieces, 0, sizeof pieces);
    setenv("T_WORKERS", workers, 1);
    int per_epoch = (SAMPLES / world + BATCH - 1) / BATCH, all = per_epoch * EPOCHS;
    go(world, 3, all, NULL, NULL, whole);
    go(world, 3, per_epoch + 2, NULL, "first.pt", pieces);         /* into epoch 1 */
    go(world, 77, per_epoch - 1, "first.pt", "second.pt", pieces); /* other weights and seeds, until the file is loaded */
    go(world, 78, all, "second.pt", NULL, pieces);
    for (int rank = 0; rank < world; rank++) {
        assert_true(strlen(whole[rank]) > (size_t)all * 10);
        assert_string_equal(pieces[rank], whole[rank]);
    }
}

static void one_rank(void **state)
{
    (void)state;
    check(1, "0");
}
static void one_rank_two_workers(void **state)
{
    (void)state;
    check(1, "2");
}
static void two_ranks(void **state)
{
    (void)state;
    check(2, "0");
}
static void two_ranks_two_workers(void **state)
{
    (void)state;
    check(2, "2");
}

static void evaluation(void **state)
{
    (void)state;
    for (int world = 1; world <= 2; world++) {
        ranks_result *r = calloc(1, sizeof *r);
        ranks_run_hooked("evaluate", world, 60, r, NULL, NULL);
        for (int i = 0; i < world; i++)
            if (r->code[i] != 0) print_error("rank %d ended with %d: %s\n", i, r->code[i], r->text[i]);
        bool ok = r->ok;
        free(r);
        assert_true(ok);
    }
}

static int start(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/cfabric-resume-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int finish(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    static const ranks_case cases[] = {{"train", train}, {"evaluate", evaluate}};
    ranks_main(cases, sizeof cases / sizeof *cases);
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_rank), cmocka_unit_test(one_rank_two_workers),
                                       cmocka_unit_test(two_ranks), cmocka_unit_test(two_ranks_two_workers),
                                       cmocka_unit_test(evaluation)};
    return cmocka_run_group_tests_name("mp.data.resume", tests, start, finish);
}
