/* Samplers: the orders the semantics page pins, the user's own samplers, sharding. Numbers are its numbered behaviours. */
#include "helpers.h"

static th_sampler *distributed(int64_t n, int64_t world, int64_t rank, bool shuffle, uint64_t seed, bool drop_last)
{
    return th_sampler_distributed(n, world, rank, shuffle, seed, drop_last);
}

static text order(th_sampler *sampler, int64_t epoch)
{
    assert_int_equal(th_sampler_set_epoch(sampler, epoch), TH_OK);
    return text_of_sampler(sampler);
}

static void check(th_sampler *sampler, const char *epoch0, const char *epoch1)
{
    assert_text(order(sampler, 0), epoch0);
    if (epoch1 != NULL) assert_text(order(sampler, 1), epoch1);
    th_sampler_free(sampler);
}

static void test_45_eight_items_two_ranks(void **state)
{
    (void)state;
    check(distributed(8, 2, 0, false, 0, false), "0 2 4 6", "0 2 4 6");
    check(distributed(8, 2, 0, true, 1, false), "5 2 7 1", "0 7 6 1");
    check(distributed(8, 2, 1, true, 1, false), "4 6 3 0", "4 2 5 3");
}

static void test_46_uneven(void **state)
{
    (void)state;
    check(distributed(7, 3, 0, false, 0, false), "0 3 6", NULL);
    check(distributed(7, 3, 1, false, 0, false), "1 4 0", NULL);
    check(distributed(7, 3, 2, false, 0, false), "2 5 1", NULL);
    check(distributed(7, 3, 0, false, 0, true), "0 3", NULL);
    check(distributed(7, 3, 1, false, 0, true), "1 4", NULL);
    check(distributed(7, 3, 2, false, 0, true), "2 5", NULL);
    for (int rank = 0; rank < 4; rank++) check(distributed(1, 4, rank, true, 0, false), "0", NULL);
}

static void test_47_ten_items_seed_0(void **state)
{
    (void)state;
    check(distributed(10, 2, 0, true, 0, false), "4 7 3 0 6", "5 1 0 9 7");
    check(distributed(10, 2, 1, true, 0, false), "1 5 9 8 2", "6 2 8 3 4");
    for (int64_t batch_size = 1; batch_size <= 3; batch_size++) {
        th_dataloader *loader =
            th_dataloader_new(range_new(10), .batch_size = batch_size, .sampler = distributed(10, 2, 1, true, 0, false));
        assert_int_equal(th_dataloader_len(loader), (5 + batch_size - 1) / batch_size);
        assert_text(text_of_pass(loader, 0, false), "1 5 9 8 2");
        th_dataloader_free(loader);
    }
}

static void test_distributed_errors(void **state)
{
    (void)state;
    assert_null(distributed(8, 2, 2, true, 0, false));
    assert_error(TH_ERR_VALUE, "Invalid rank 2, rank should be in the interval [0, 1]");
    assert_null(distributed(8, 2, -1, true, 0, false));
    assert_error(TH_ERR_VALUE, "Invalid rank -1");
    assert_null(distributed(8, 0, 0, true, 0, false));
    assert_error(TH_ERR_VALUE, "num_replicas is 0");
    assert_int_not_equal(TH_ERR_RUNTIME, TH_OK);
    th_sampler *plain = th_sampler_sequential(3);
    assert_int_equal(th_sampler_set_epoch(plain, 1), TH_ERR_RUNTIME);
    assert_error(TH_ERR_RUNTIME, "has no epochs");
    th_sampler_free(plain);
}

/* BC-007: 21 samples with label = index: the mean is 10 on any number of ranks. */
static void test_evaluation_counts_each_once(void **state)
{
    (void)state;
    for (int64_t world = 1; world <= 5; world++) {
        int64_t sum = 0, count = 0, index;
        for (int64_t rank = 0; rank < world; rank++) {
            th_sampler *sampler = th_sampler_distributed_eval(21, world, rank);
            int64_t mine = 0;
            assert_int_equal(th_sampler_begin(sampler), TH_OK);
            while (th_sampler_next(sampler, &index)) sum += index, mine++;
            assert_int_equal(mine, th_sampler_len(sampler));
            count += mine;
            th_sampler_free(sampler);
        }
        assert_int_equal(count, 21);
        assert_int_equal(sum, 210);
    }
    assert_null(th_sampler_distributed_eval(21, 2, 0, .drop_last = true));
    assert_error(TH_ERR_VALUE, "every sample is to be read once");
}

/* ---- the user's own */
typedef struct countdown {
    int64_t n, left, epoch;
    int begun;
    bool sized;
} countdown;
static int64_t countdown_len(void *self)
{
    countdown *c = self;
    return c->sized ? c->n : -1;
}
static th_status countdown_begin(void *self)
{
    countdown *c = self;
    c->left = c->n;
    c->begun++;
    return TH_OK;
}
static th_status countdown_next(void *self, int64_t *index, bool *end)
{
    countdown *c = self;
    if (c->left == 0)
        *end = true;
    else
        *index = --c->left;
    return TH_OK;
}
static void countdown_set_epoch(void *self, int64_t epoch) { ((countdown *)self)->epoch = epoch; }
static const th_sampler_ops countdown_ops = {.size = sizeof countdown_ops,
                                             .name = "countdown",
                                             .len = countdown_len,
                                             .begin = countdown_begin,
                                             .next = countdown_next,
                                             .set_epoch = countdown_set_epoch};

static void test_own_sampler_and_wrapper(void **state)
{
    (void)state;
    countdown c = {.n = 5, .sized = true};
    th_sampler *own = th_sampler_new(&countdown_ops, &c);
    assert_text(text_of_sampler(own), "4 3 2 1 0");
    assert_int_equal(th_sampler_len(own), 5);
    th_sampler *even = th_sampler_distributed_wrap(own, 2, 0, false);
    assert_text(text_of_sampler(even), "4 2 0");
    assert_text(text_of_sampler(even), "4 2 0");
    assert_int_equal(c.begun, 3); /* drawn anew for each pass */
    assert_int_equal(th_sampler_set_epoch(even, 9), TH_OK);
    assert_int_equal(c.epoch, 9); /* forwarded */
    th_sampler_free(even);
    th_sampler *odd = th_sampler_distributed_wrap(th_sampler_new(&countdown_ops, &c), 2, 1, false);
    assert_text(text_of_sampler(odd), "3 1 4");
    th_sampler_free(odd);
    c.sized = false; /* 49 */
    assert_null(th_sampler_distributed_wrap(th_sampler_new(&countdown_ops, &c), 2, 1, false));
    assert_error(TH_ERR_TYPE, "use_distributed_sampler");
}

static void test_batch_sampler(void **state)
{
    (void)state;
    th_indices batch = {0};
    th_sampler *s = th_sampler_batch(th_sampler_sequential(10), 4, false);
    assert_true(th_sampler_is_batch(s));
    assert_int_equal(th_sampler_len(s), 3);
    for (int pass = 0; pass < 2; pass++) {
        size_t sizes = 0;
        assert_int_equal(th_sampler_begin(s), TH_OK);
        while (th_sampler_next_batch(s, &batch)) sizes = sizes * 10 + batch.size;
        assert_int_equal(sizes, 442);
        assert_false(th_sampler_next_batch(s, &batch)); /* stays at its end */
    }
    int64_t index;
    assert_false(th_sampler_next(s, &index));
    assert_error(TH_ERR_TYPE, "is a batch sampler");
    th_sampler_free(s);
    s = th_sampler_batch(th_sampler_sequential(10), 4, true);
    assert_int_equal(th_sampler_len(s), 2);
    th_sampler_free(s);
    assert_null(th_sampler_batch(th_sampler_sequential(10), 0, true));
    assert_error(TH_ERR_VALUE, "batch_size=0");
    assert_null(th_sampler_batch(th_sampler_batch(th_sampler_sequential(10), 2, true), 2, true));
    assert_error(TH_ERR_TYPE, "is a batch sampler already");
    th_indices_free(&batch);
}

static void test_arguments(void **state)
{
    (void)state;
    assert_null(th_sampler_random(10, .num_samples = -1));
    assert_error(TH_ERR_VALUE, "num_samples=-1");
    assert_null(th_sampler_random(0));
    assert_error(TH_ERR_VALUE, "num_samples=0");
    assert_null(th_sampler_weighted_random(TH_DOUBLES(1, 2), 0));
    assert_error(TH_ERR_VALUE, "num_samples=0");
    const th_sampler_ops neither = {.size = sizeof neither, .name = "neither"};
    assert_null(th_sampler_new(&neither, NULL));
    assert_error(TH_ERR_VALUE, "neither next and next_batch");
    assert_null(th_sampler_new(NULL, NULL));
    assert_error(TH_ERR_VALUE, "NULL");
}

/* 52: the exact numbers, the last of which needs more than 64 bits; and no collision for 64 workers on 64 ranks. */
static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void test_52_seed_sequence(void **state)
{
    (void)state;
    uint64_t s[4];
    static uint64_t all[64 * 64];
    th__seed_sequence(0, 0, 0, s, 4);
    assert_true(s[0] == 1 && s[1] == 6364136223846793006u && s[2] == 13885033948157127959u && s[3] == 14678909342070756876u);
    th__seed_sequence(1, 0, 0, s, 2);
    assert_true(s[0] == 14153222326736121702u && s[1] == 8807762419639824111u);
    th__seed_sequence(42, 3, 1, s, 2);
    assert_true(s[0] == 7088521675871129715u && s[1] == 5796865451201229112u);
    th__seed_sequence(3211123456789u, 2, 1, s, 2);
    assert_true(s[0] == 12617172123450364397u && s[1] == 17109374183847754154u);
    for (uint64_t worker = 0; worker < 64; worker++)
        for (uint64_t rank = 0; rank < 64; rank++) th__seed_sequence(0, worker, rank, &all[worker * 64 + rank], 1);
    qsort(all, 64 * 64, sizeof *all, compare);
    for (size_t i = 1; i < 64 * 64; i++) assert_true(all[i] != all[i - 1]);
}

#define T(name) cmocka_unit_test_teardown(name, no_leftovers)
int main(void)
{
    const struct CMUnitTest tests[] = {T(test_45_eight_items_two_ranks),
                                       T(test_46_uneven),
                                       T(test_47_ten_items_seed_0),
                                       T(test_distributed_errors),
                                       T(test_evaluation_counts_each_once),
                                       T(test_own_sampler_and_wrapper),
                                       T(test_batch_sampler),
                                       T(test_arguments),
                                       T(test_52_seed_sequence)};
    return cmocka_run_group_tests_name("data.sampler", tests, NULL, NULL);
}
