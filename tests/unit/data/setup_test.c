/* What Fabric does to loaders: sharding, epochs by themselves, worker seeds, moving batches. */
#include "helpers.h"

#include <cfabric/ops.h>

static int moves;
static th_tensor *move_add_100(th_tensor *tensor, void *wrapper)
{
    moves++;
    return th_add_scalar(tensor, TH_S(*(int64_t *)wrapper));
}
static int freed;
static void count_free(void *wrapper)
{
    (void)wrapper;
    freed++;
}
static const th__dataloader_wrapper moving = {move_add_100, count_free}, staying = {NULL, NULL};

static void shard(th_dataloader *loader, int64_t world, int64_t rank, uint64_t seed)
{
    assert_int_equal(th__dataloader_shard(loader, (struct th__dataloader_shard_args){world, rank, seed, {0}, false}), TH_OK);
    assert_int_equal(th__dataloader_wrap(loader, &staying, NULL), TH_OK);
}

/* BC-004: epochs differ, ranks agree, their union is the dataset, a second run gives the same. */
static void test_epochs_advance_by_themselves(void **state)
{
    (void)state;
    static const char *const expected[2][3] = {{"4 7 3 0 6", "5 1 0 9 7", NULL}, {"1 5 9 8 2", "6 2 8 3 4", NULL}};
    for (int run = 0; run < 2; run++) {
        for (int nested = 0; nested < 2; nested++) {
            int seen[3][10] = {{0}};
            for (int rank = 0; rank < 2; rank++) {
                th_dataloader *loader =
                    nested ? th_dataloader_new(range_new(10), .batch_sampler = th_sampler_batch(th_sampler_random(10), 3, false))
                           : th_dataloader_new(range_new(10), 3, true);
                shard(loader, 2, rank, 0);
                for (int epoch = 0; epoch < 3; epoch++) {
                    text t = text_of_pass(loader, 0, false);
                    if (expected[rank][epoch] != NULL) assert_string_equal(t.data, expected[rank][epoch]);
                    for (char *p = strtok(t.data, " "); p != NULL; p = strtok(NULL, " ")) seen[epoch][atoi(p)]++;
                    free(t.data);
                }
                th_dataloader_free(loader);
            }
            for (int i = 0; i < 30; i++) assert_int_equal(seen[i / 10][i % 10], 1);
        }
    }
}

/* ---- 48: which epochs a sampler is told, and when */
typedef struct told {
    int64_t n, left, epochs[8];
    int count;
} told;
static int64_t told_len(void *self) { return ((told *)self)->n; }
static th_status told_begin(void *self)
{
    told *t = self;
    t->left = t->n;
    return TH_OK;
}
static th_status told_next(void *self, int64_t *index, bool *end)
{
    told *t = self;
    if (t->left == 0)
        *end = true;
    else
        *index = --t->left;
    return TH_OK;
}
static void told_epoch(void *self, int64_t epoch)
{
    told *t = self;
    t->epochs[t->count++] = epoch;
}
static const th_sampler_ops told_ops = {
    .size = sizeof told_ops, .name = "told", .len = told_len, .begin = told_begin, .next = told_next, .set_epoch = told_epoch};

static void test_48_set_epoch(void **state)
{
    (void)state;
    for (int nested = 0; nested < 2; nested++) {
        told t = {.n = 4};
        th_batch b;
        th_sampler *own = th_sampler_new(&told_ops, &t);
        th_dataloader *loader = nested ? th_dataloader_new(range_new(4), .batch_sampler = th_sampler_batch(own, 2, false))
                                       : th_dataloader_new(range_new(4), 2, .sampler = own);
        assert_text(text_of_pass(loader, 0, false), "3 2 1 0");
        assert_int_equal(t.count, 0); /* a plain loader tells nothing */
        assert_int_equal(th__dataloader_wrap(loader, &staying, NULL), TH_OK);
        assert_int_equal(t.count, 0); /* not at set-up */
        assert_true(th_dataloader_next(loader, &b));
        assert_int_equal(t.count, 1); /* once, at the first batch */
        assert_int_equal(t.epochs[0], 0);
        while (th_dataloader_next(loader, &b)) continue;
        assert_int_equal(t.count, 1);
        assert_true(th_dataloader_next(loader, &b));
        assert_int_equal(t.count, 2);
        assert_int_equal(t.epochs[1], 1);
        th_dataloader_reset(loader);
        assert_int_equal(th_sampler_set_epoch(own, 70), TH_OK); /* by hand: wins for one pass */
        while (th_dataloader_next(loader, &b)) continue;
        assert_int_equal(t.count, 3);
        assert_int_equal(t.epochs[2], 70);
        assert_true(th_dataloader_next(loader, &b));
        assert_int_equal(t.epochs[3], 3);
        assert_int_equal(th_dataloader_set_epoch(loader, 9), TH_OK);
        assert_true(th_dataloader_next(loader, &b));
        assert_int_equal(t.epochs[4], 9);
        assert_int_equal(t.count, 5);
        th_dataloader_free(loader);
    }
}

/* BC-005: the weights survive. Also subsets and replacement, which a plain DistributedSampler would forget. */
static void test_other_samplers_are_wrapped(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        th_manual_seed(1);
        th_dataloader *loader =
            th_dataloader_new(range_new(5), 2, .sampler = th_sampler_weighted_random(TH_DOUBLES(1, 0, 0, 0, 0), 6));
        shard(loader, 2, rank, 0);
        assert_int_equal(th__dataloader_info_of(loader).sampler, TH__SAMPLER_DISTRIBUTED);
        assert_text(text_of_pass(loader, 0, false), "0 0 0");
        th_dataloader_free(loader);
        loader = th_dataloader_new(
            range_new(5), .batch_sampler = th_sampler_batch(th_sampler_weighted_random(TH_DOUBLES(0, 0, 1, 0, 0), 6), 2, false));
        shard(loader, 2, rank, 0);
        assert_text(text_of_pass(loader, 0, false), "2 2 2");
        th_dataloader_free(loader);
        loader = th_dataloader_new(range_new(5), 2, .sampler = th_sampler_random(5, .num_samples = 2));
        shard(loader, 2, rank, 0);
        assert_int_equal(th_dataloader_len(loader), 1);
        th_dataloader_free(loader);
    }
}

static void test_what_is_left_alone(void **state)
{
    (void)state;
    th_dataloader *loader = th_dataloader_new(range_new(10), 5, .sampler = th_sampler_distributed(10, 2, 1, .shuffle = false));
    shard(loader, 5, 0, 0);
    assert_text(text_of_pass(loader, 0, false), "1 3 5 7 9"); /* as the user made it */
    th_dataloader_free(loader);
    loader = th_dataloader_new(stream_new(6), 3);
    assert_true(th__dataloader_info_of(loader).iterable);
    shard(loader, 2, 1, 0);
    assert_text(text_of_pass(loader, 0, false), "0 1 2 3 4 5");
    th_dataloader_free(loader);
}

static void test_sequential_and_drop_last(void **state)
{
    (void)state;
    th_dataloader *loader = th_dataloader_new(range_new(10), 2, .drop_last = true);
    assert_int_equal(th__dataloader_info_of(loader).sampler, TH__SAMPLER_SEQUENTIAL);
    shard(loader, 2, 1, 0);
    assert_int_equal(th__dataloader_pass_len(loader), 2); /* 5 samples of this rank, the batch's drop_last is kept */
    assert_text(text_of_pass(loader, 0, false), "1 3 5 7");
    th_dataloader_free(loader);
    loader = th_dataloader_new(range_new(3), TH_NO_BATCH);
    shard(loader, 2, 1, 0);
    assert_text(text_of_pass(loader, 0, false), "1 0");
    th_dataloader_free(loader);
}

/* ---- the user's own batch sampler: pairs (i, i) of an inner sampler */
typedef struct pairs {
    th_sampler *inner;
} pairs;
static th_status pairs_begin(void *self) { return th_sampler_begin(((pairs *)self)->inner); }
static th_status pairs_next(void *self, th_indices *indices, bool *end)
{
    int64_t index;
    if (!th_sampler_next(((pairs *)self)->inner, &index))
        *end = true;
    else if (th_indices_push(indices, index) == TH_OK)
        return th_indices_push(indices, index);
    return th_error();
}
static th_sampler *pairs_inner(void *self) { return ((pairs *)self)->inner; }
static th_sampler *pairs_new(th_sampler *inner, bool can_rebuild);
static th_sampler *pairs_rebuild(void *self, th_sampler *sampler)
{
    (void)self;
    return pairs_new(sampler, true);
}
static void pairs_free(void *self)
{
    th_sampler_free(((pairs *)self)->inner);
    free(self);
}
static th_sampler *pairs_new(th_sampler *inner, bool can_rebuild)
{
    const th_sampler_ops ops = {.size = sizeof ops,
                                .name = "pairs",
                                .begin = pairs_begin,
                                .next_batch = pairs_next,
                                .inner = pairs_inner,
                                .rebuild = can_rebuild ? pairs_rebuild : NULL,
                                .free = pairs_free};
    pairs *self = malloc(sizeof *self);
    self->inner = inner;
    return th_sampler_new(&ops, self);
}

static void test_own_batch_samplers(void **state)
{
    (void)state;
    th_dataloader *loader = th_dataloader_new(range_new(5), .batch_sampler = pairs_new(th_sampler_sequential(5), true));
    assert_true(th__dataloader_info_of(loader).custom_batch_sampler);
    shard(loader, 2, 1, 0);
    assert_text(text_of_pass(loader, 0, false), "1 1 3 3 0 0");
    th_dataloader_free(loader);
    loader = th_dataloader_new(range_new(5), .batch_sampler = pairs_new(th_sampler_sequential(5), false));
    assert_int_equal(th__dataloader_shard(loader, (struct th__dataloader_shard_args){2, 1, 0, {0}, false}), TH_ERR_TYPE);
    assert_error(TH_ERR_TYPE, "set use_distributed_sampler to false");
    assert_text(text_of_pass(loader, 0, false), "0 0 1 1 2 2 3 3 4 4"); /* untouched */
    th_dataloader_free(loader);
}

static void test_49_sampler_without_length(void **state)
{
    (void)state;
    told t = {.n = 3};
    th_sampler_ops ops = told_ops;
    ops.len = NULL;
    th_dataloader *loader = th_dataloader_new(range_new(5), .sampler = th_sampler_new(&ops, &t));
    assert_int_equal(th__dataloader_shard(loader, (struct th__dataloader_shard_args){2, 1, 0, {0}, false}), TH_ERR_TYPE);
    assert_error(TH_ERR_TYPE, "no finite length");
    assert_text(text_of_pass(loader, 0, false), "2 1 0");
    th_dataloader_free(loader);
}

static void test_moving_and_wrapping_once(void **state)
{
    (void)state;
    int64_t offset = 100;
    for (int workers = 0; workers <= 1; workers++) {
        moves = freed = 0;
        th_dataloader *loader = th_dataloader_new(range_new(4), 2, .num_workers = workers);
        assert_false(th__dataloader_is_wrapped(loader));
        assert_int_equal(th__dataloader_wrap(loader, &moving, &offset), TH_OK);
        assert_true(th__dataloader_is_wrapped(loader));
        assert_text(text_of_pass(loader, 0, false), "100 101 102 103");
        assert_int_equal(moves, 2);
        assert_int_equal(th__dataloader_wrap(loader, &moving, &offset), TH_ERR_VALUE);
        assert_error(TH_ERR_VALUE, "only once");
        assert_int_equal(freed, 1);
        th_dataloader_free(loader);
        assert_int_equal(freed, 2);
    }
}

static uint64_t seeds[2];
static th_status keep_seed(th_sample *sample, void *user)
{
    (void)sample;
    (void)user;
    seeds[th_get_worker_info()->id] = th_get_worker_info()->seed;
    return TH_OK;
}

static void test_worker_seeds(void **state)
{
    (void)state;
    th_dataloader *loader = th_dataloader_new(th_dataset_transform(range_new(4), keep_seed), 1, .num_workers = 2);
    th_generator *g = th_generator_new(TH_CPU);
    assert_int_equal(th__dataloader_seed_workers(loader, 3), TH_OK);
    th_manual_seed(6);
    assert_text(text_of_pass(loader, 0, false), "0 1 2 3");
    th_generator_manual_seed(g, 6);
    uint64_t base = th_generator_random64(g) & INT64_MAX, expected;
    for (uint64_t worker = 0; worker < 2; worker++) {
        th__seed_sequence(base, worker, 3, &expected, 1);
        assert_true(seeds[worker] == expected);
    }
    th_generator_free(g);
    th_dataloader_free(loader);
}

#define T(name) cmocka_unit_test_teardown(name, no_leftovers)
int main(void)
{
    const struct CMUnitTest tests[] = {T(test_epochs_advance_by_themselves),
                                       T(test_48_set_epoch),
                                       T(test_other_samplers_are_wrapped),
                                       T(test_what_is_left_alone),
                                       T(test_sequential_and_drop_last),
                                       T(test_own_batch_samplers),
                                       T(test_49_sampler_without_length),
                                       T(test_moving_and_wrapping_once),
                                       T(test_worker_seeds)};
    return cmocka_run_group_tests_name("data.setup", tests, NULL, NULL);
}
