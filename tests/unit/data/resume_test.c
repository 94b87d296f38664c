/* A loader's position: a run in pieces gives the order of the uninterrupted run and reads nothing twice (BC-031). */
#include "helpers.h"

static th_value *save(th_dataloader *loader)
{
    void *object;
    th_value *state = th_state(loader);
    const th_stateful *ops = th_value_as_object(state, &object);
    th_value *saved = ops->state_dict(object);
    assert_non_null(saved);
    th_value *copy = th_value_copy(saved, true); /* as a file would */
    th_value_free(saved);
    th_value_free(state);
    return copy;
}

static th_status load(th_dataloader *loader, th_value *saved)
{
    void *object;
    th_value *state = th_state(loader);
    const th_stateful *ops = th_value_as_object(state, &object);
    th_status status = ops->load_state_dict(object, saved, true);
    th_value_free(state);
    th_value_free(saved);
    return status;
}

typedef th_dataloader *(*maker)(atomic_long *reads, int workers);

static th_dataset *counted(atomic_long *reads) { return range_with((range){.n = 40, .reads = reads, .fail_at = -1}); }

static th_dataloader *make_shuffled(atomic_long *reads, int workers)
{
    return th_dataloader_new(counted(reads), 4, true, .num_workers = workers);
}

static th_generator *shared;
static th_dataloader *make_generator(atomic_long *reads, int workers)
{
    return th_dataloader_new(counted(reads), 4, true, .num_workers = workers, .generator = shared);
}

static th_dataloader *make_weighted(atomic_long *reads, int workers)
{
    return th_dataloader_new(counted(reads), 4, .num_workers = workers,
                             .sampler =
                                 th_sampler_weighted_random(TH_DOUBLES(1, 2, 3, 4, 5), 40)); /* draws from the default one */
}

static th_dataloader *make_replacement(atomic_long *reads, int workers)
{
    return th_dataloader_new(counted(reads), 4, .num_workers = workers,
                             .sampler = th_sampler_random(40, .replacement = true, .generator = shared));
}

static th_dataloader *make_persistent(atomic_long *reads, int workers)
{
    return th_dataloader_new(counted(reads), 4, true, .num_workers = workers, .persistent_workers = workers > 0);
}

static th_dataloader *make_distributed(atomic_long *reads, int workers)
{
    return th_dataloader_new(counted(reads), 2, .num_workers = workers, .sampler = th_sampler_distributed(40, 2, 1, .seed = 5));
}

/* `steps` batches, going from pass to pass; each step also uses the default generator, as dropout would. */
static void steps(th_dataloader *loader, int n, text *out)
{
    th_batch b;
    for (int i = 0; i < n;) {
        if (!th_dataloader_next(loader, &b)) {
            assert_int_equal(th_error(), TH_OK);
            text_add(out, -1);
            continue;
        }
        int64_t values[8];
        assert_int_equal(th_copy_to(b.data[0], values, (size_t)b.length * sizeof *values, TH_INT64), TH_OK);
        for (int64_t k = 0; k < b.length; k++) text_add(out, values[k]);
        text_add(out, (long long)(th_generator_random64(th_default_generator()) >> 50));
        i++;
    }
}

static const int pieces[] = {13, 2, 9}; /* ends in pass 1, again in pass 1, then into pass 2 */

static void check(maker make, int workers)
{
    atomic_long reads = 0;
    text whole = {0}, pieced = {0};
    shared = th_generator_new(TH_CPU);
    th_generator_manual_seed(shared, 21);
    th_manual_seed(17);
    th_dataloader *loader = make(&reads, workers);
    steps(loader, 24, &whole);
    th_dataloader_free(loader);
    th_generator_free(shared);

    shared = th_generator_new(TH_CPU);
    th_generator_manual_seed(shared, 21);
    th_manual_seed(17);
    th_value *position = NULL;
    th_tensor *rng = NULL;
    for (int i = 0; i < 3; i++) {
        if (i > 0) { /* a new process: other generators, then the checkpoint's */
            th_generator_free(shared);
            shared = th_generator_new(TH_CPU);
            th_manual_seed(999 + (uint64_t)i);
        }
        loader = make(&reads, workers);
        if (i > 0) {
            assert_int_equal(load(loader, position), TH_OK);
            assert_int_equal(th_set_rng_state(rng), TH_OK);
        }
        atomic_store(&reads, 0);
        steps(loader, pieces[i], &pieced);
        if (workers == 0) assert_int_equal(atomic_load(&reads), pieces[i] * (make == make_distributed ? 2 : 4));
        position = save(loader);
        TH_SCOPE();
        th_assign(&rng, th_get_rng_state());
        th_dataloader_free(loader);
    }
    assert_string_equal(pieced.data, whole.data);
    th_value_free(position);
    th_free(rng);
    th_generator_free(shared);
    free(whole.data);
    free(pieced.data);
}

static void test_shuffled(void **state)
{
    (void)state;
    for (int w = 0; w < 3; w++) check(make_shuffled, w);
}
static void test_own_generator(void **state)
{
    (void)state;
    for (int w = 0; w < 3; w++) check(make_generator, w);
}
static void test_weighted(void **state)
{
    (void)state;
    for (int w = 0; w < 3; w++) check(make_weighted, w);
}
static void test_replacement(void **state)
{
    (void)state;
    for (int w = 0; w < 3; w++) check(make_replacement, w);
}
static void test_persistent(void **state)
{
    (void)state;
    for (int w = 0; w < 3; w++) check(make_persistent, w);
}
static void test_distributed(void **state)
{
    (void)state;
    for (int w = 0; w < 3; w++) check(make_distributed, w);
}

/* Saved again before it went on: the same position. And a state between two passes. */
static void test_saved_twice(void **state)
{
    (void)state;
    text a = {0}, b = {0};
    th_manual_seed(1);
    th_dataloader *loader = make_shuffled(NULL, 0), *other = make_shuffled(NULL, 0);
    steps(loader, 3, &a);
    assert_int_equal(load(other, save(loader)), TH_OK);
    th_dataloader *third = make_shuffled(NULL, 0);
    assert_int_equal(load(third, save(other)), TH_OK);
    a.size = b.size = 0;
    th_manual_seed(2);
    steps(loader, 5, &a);
    th_manual_seed(2);
    steps(third, 5, &b);
    assert_string_equal(a.data, b.data);
    th_dataloader_free(other);
    th_dataloader_free(third);
    while (th_dataloader_next(loader, &(th_batch){0})) continue;
    th_value *between = save(loader);
    assert_int_equal(th_value_as_int(th_value_get(between, "epoch"), -1), 1);
    assert_int_equal(th_value_as_int(th_value_get(between, "batch"), -1), 0);
    th_value_free(between);
    th_dataloader_free(loader);
    free(a.data);
    free(b.data);
}

static th_dataloader *on(int world, int rank, int64_t batch_size)
{
    return th_dataloader_new(range_new(40), batch_size, .sampler = th_sampler_distributed(40, world, rank, .seed = 3));
}

/* 3 batches of 2 on 2 ranks are 12 samples: on one rank the pass goes on with the 13th. */
static void test_another_number_of_ranks(void **state)
{
    (void)state;
    text done = {0}, rest = {0}, whole = {0};
    th_dataloader *r0 = on(2, 0, 2), *one = on(1, 0, 4), *full = on(1, 0, 4);
    th_batch b;
    for (int i = 0; i < 3; i++) assert_true(th_dataloader_next(r0, &b));
    assert_int_equal(load(one, save(r0)), TH_OK);
    for (int i = 0; i < 3; i++) assert_true(th_dataloader_next(full, &b));
    assert_true(th_dataloader_next(full, &b));
    text_add(&whole, ((int64_t *)th_data_ptr(b.data[0]))[0]);
    assert_true(th_dataloader_next(one, &b));
    assert_int_equal(b.index, 3);
    text_add(&rest, ((int64_t *)th_data_ptr(b.data[0]))[0]);
    assert_string_equal(rest.data, whole.data);
    th_dataloader *five = on(1, 0, 5);
    assert_int_not_equal(load(five, save(r0)), TH_OK);
    assert_error(TH_ERR_VALUE, "3 batches of 2 on 2 ranks, is not a whole number of batches of 5 on 1 ranks");
    th_dataloader_free(r0);
    th_dataloader_free(one);
    th_dataloader_free(full);
    th_dataloader_free(five);
    free(done.data);
    free(rest.data);
    free(whole.data);
}

static void test_iterable(void **state)
{
    (void)state;
    for (int workers = 0; workers < 3; workers++) {
        th_batch b;
        th_dataloader *loader = th_dataloader_new(stream_new(23), 2, .num_workers = workers);
        th_dataloader *other = th_dataloader_new(stream_new(23), 2, .num_workers = workers);
        for (int i = 0; i < 5; i++) assert_true(th_dataloader_next(loader, &b));
        assert_int_equal(load(other, save(loader)), TH_OK);
        text expected = text_of_pass(loader, 0, true);
        text t = text_of_pass(other, 0, true);
        assert_string_equal(t.data, expected.data);
        free(t.data);
        free(expected.data);
        th_dataloader_free(loader);
        th_dataloader_free(other);
    }
}

static void test_bad_states(void **state)
{
    (void)state;
    th_dataloader *loader = make_shuffled(NULL, 0);
    assert_int_equal(load(loader, th_value_dict()), TH_ERR_VALUE);
    assert_error(TH_ERR_VALUE, "no valid 'epoch'");
    assert_int_equal(load(loader, TH_STATE({"epoch", th_state(1)}, {"batch", th_state(-4)})), TH_ERR_VALUE);
    assert_error(TH_ERR_VALUE, "no valid 'batch'");
    th_dataloader_free(loader);
}

#define T(name) cmocka_unit_test_teardown(name, no_leftovers)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_shuffled),   T(test_own_generator), T(test_weighted),    T(test_replacement),
        T(test_persistent), T(test_distributed),   T(test_saved_twice), T(test_another_number_of_ranks),
        T(test_iterable),   T(test_bad_states)};
    return cmocka_run_group_tests_name("data.resume", tests, NULL, NULL);
}
