/* The loader: PyTorch's argument checks, workers, errors, time limits, early ends, collation. */
#include "helpers.h"

#include <cfabric/ops.h>

#define REFUSED(status, part, ...) (assert_null(th_dataloader_new(__VA_ARGS__)), assert_error(status, part))

static th_sampler *ten(void) { return th_sampler_sequential(10); }

static void test_arguments(void **state)
{
    (void)state;
    REFUSED(TH_ERR_VALUE, "num_workers option should be non-negative", range_new(10), .num_workers = -1);
    REFUSED(TH_ERR_VALUE, "timeout option should be non-negative", range_new(10), .num_workers = 1, .timeout = -1);
    REFUSED(TH_ERR_VALUE, "timeout option needs num_workers > 0", range_new(10), .timeout = 1);
    REFUSED(TH_ERR_VALUE, "prefetch_factor option could only be specified", range_new(10), .prefetch_factor = 2);
    REFUSED(TH_ERR_VALUE, "prefetch_factor option should be non-negative", range_new(10), .num_workers = 1,
            .prefetch_factor = -1);
    REFUSED(TH_ERR_VALUE, "persistent_workers option needs num_workers > 0", range_new(10), .persistent_workers = true);
    REFUSED(TH_ERR_VALUE, "expected unspecified shuffle option", stream_new(10), .shuffle = true);
    REFUSED(TH_ERR_VALUE, "expected unspecified sampler option", stream_new(10), .sampler = ten());
    REFUSED(TH_ERR_VALUE, "expected unspecified batch_sampler option", stream_new(10),
            .batch_sampler = th_sampler_batch(ten(), 2, false));
    REFUSED(TH_ERR_VALUE, "sampler option is mutually exclusive with shuffle", range_new(10), .sampler = ten(), .shuffle = true);
    REFUSED(TH_ERR_VALUE, "batch_sampler option is mutually exclusive", range_new(10), 2,
            .batch_sampler = th_sampler_batch(ten(), 2, false));
    REFUSED(TH_ERR_VALUE, "batch_sampler option is mutually exclusive", range_new(10), .drop_last = true,
            .batch_sampler = th_sampler_batch(ten(), 2, false));
    REFUSED(TH_ERR_VALUE, "disables auto-batching", range_new(10), TH_NO_BATCH, .drop_last = true);
    REFUSED(TH_ERR_VALUE, "batch_size=0", range_new(10), 0);
    REFUSED(TH_ERR_VALUE, "num_samples=0", range_new(0), .shuffle = true);
    REFUSED(TH_ERR_TYPE, "yields single indices", range_new(10), .batch_sampler = ten());
    REFUSED(TH_ERR_TYPE, "give it as batch_sampler", range_new(10), .sampler = th_sampler_batch(ten(), 2, false));
    REFUSED(TH_ERR_TYPE, "dataset is NULL", NULL);
}

static void test_lengths_and_batches(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 2; workers++) {
        th_batch b;
        th_dataloader *loader = th_dataloader_new(range_new(10), 4, .num_workers = workers);
        assert_int_equal(th_dataloader_len(loader), 3);
        assert_int_equal(th_dataloader_dataset_len(loader), 10);
        for (int pass = 0; pass < 2; pass++) {
            for (int i = 0; i < 3; i++) {
                assert_true(th_dataloader_next(loader, &b));
                assert_int_equal(b.index, i);
                assert_int_equal(b.length, i < 2 ? 4 : 2);
                assert_int_equal(b.size, 1);
                assert_int_equal(th_size(b.data[0], 0), b.length);
            }
            assert_false(th_dataloader_next(loader, &b));
            assert_int_equal(th_error(), TH_OK);
            assert_int_equal(b.size, 0);
            assert_int_equal(th_dataloader_epoch(loader), pass + 1);
        }
        th_dataloader_free(loader);
    }
    th_dataloader *loader = th_dataloader_new(range_new(10), 4, .drop_last = true, .shuffle = true);
    assert_int_equal(th_dataloader_len(loader), 2);
    th_dataloader_free(loader);
    loader = th_dataloader_new(stream_new(10), 4);
    assert_int_equal(th_dataloader_len(loader), -1);
    assert_int_equal(th_dataloader_dataset_len(loader), -1);
    th_dataloader_free(loader);
    loader = th_dataloader_new(range_new(0), 4);
    assert_text(text_of_pass(loader, 0, true), "");
    th_dataloader_free(loader);
}

/* The order for a seed does not depend on the number of workers or on how far they read ahead. */
static void test_order_is_the_same_for_all_workers(void **state)
{
    (void)state;
    char *first = NULL;
    for (int workers = 0; workers <= 4; workers++) {
        for (int prefetch = workers > 0 ? 1 : 0; prefetch <= (workers > 0 ? 3 : 0); prefetch++) {
            th_manual_seed(3);
            th_dataloader *loader = th_dataloader_new(range_with((range){.n = 57, .fail_at = -1, .sleep_us = 20}), 5, true,
                                                      .num_workers = workers, .prefetch_factor = prefetch);
            text t = text_of_pass(loader, 0, true), again = text_of_pass(loader, 0, true);
            assert_string_not_equal(t.data, again.data);
            if (first == NULL) first = strdup(t.data);
            assert_string_equal(t.data, first);
            free(t.data);
            free(again.data);
            th_dataloader_free(loader);
        }
    }
    free(first);
}

static void test_reading_ahead_is_bounded(void **state)
{
    (void)state;
    atomic_long reads = 0;
    th_batch b;
    th_dataloader *loader = th_dataloader_new(range_with((range){.n = 1000, .reads = &reads, .fail_at = -1}), 2, .num_workers = 2,
                                              .prefetch_factor = 3);
    assert_true(th_dataloader_next(loader, &b));
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    assert_true(atomic_load(&reads) >= 2);
    assert_true(atomic_load(&reads) <= 2 * (1 + 2 * 3)); /* the one in hand and 3 for each of 2 workers */
    th_dataloader_free(loader);
}

static void test_errors_arrive(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 2; workers++) {
        th_batch b;
        th_dataloader *loader = th_dataloader_new(range_with((range){.n = 20, .fail_at = 9}), 4, .num_workers = workers);
        assert_true(th_dataloader_next(loader, &b));
        assert_true(th_dataloader_next(loader, &b)); /* the good ones first */
        assert_false(th_dataloader_next(loader, &b));
        assert_false(th_dataloader_next(loader, &b)); /* pending: ends every loop */
        assert_error(TH_ERR_VALUE, "sample 9 is bad");
        assert_true(th_dataloader_next(loader, &b)); /* a new pass */
        assert_int_equal(b.index, 0);
        th_dataloader_free(loader);
    }
}

static int printed;
static void count_lines(th_status status, const char *function, const char *message, void *user)
{
    (void)status, (void)function, (void)user;
    if (strstr(message, "sample 3 is bad") != NULL) printed++;
}

static void test_errors_are_reported_once(void **state)
{
    (void)state;
    th_batch b;
    th_set_error_policy(TH_ERROR_RETURN, count_lines, NULL);
    th_dataloader *loader = th_dataloader_new(range_with((range){.n = 8, .fail_at = 3}), 4, .num_workers = 1);
    assert_false(th_dataloader_next(loader, &b));
    assert_error(TH_ERR_VALUE, "(in worker 0, batch 0)");
    assert_int_equal(printed, 1);
    th_set_error_policy(TH_ERROR_RETURN, NULL, NULL);
    th_dataloader_free(loader);
}

static void test_time_limit(void **state)
{
    (void)state;
    th_batch b;
    th_dataloader *loader =
        th_dataloader_new(range_with((range){.n = 8, .fail_at = -1, .sleep_us = 400000}), 4, .num_workers = 1, .timeout = 0.05);
    assert_false(th_dataloader_next(loader, &b));
    assert_error(TH_ERR_TIMEOUT, "timed out after 0.05 seconds");
    th_dataloader_free(loader); /* does not wait for the worker */
    nanosleep(&(struct timespec){1, 0}, NULL);
    assert_int_equal(th__objects_live(NULL), 0); /* it cleaned up behind itself */
}

static void test_early_ends(void **state)
{
    (void)state;
    for (int variant = 0; variant < 40; variant++) {
        th_batch b;
        th_dataloader *loader = th_dataloader_new(range_with((range){.n = 200, .fail_at = -1, .sleep_us = variant % 3 * 50}), 3,
                                                  true, .num_workers = 1 + variant % 4, .persistent_workers = variant % 2 == 1);
        for (int i = 0; i < variant % 5; i++) assert_true(th_dataloader_next(loader, &b));
        if (variant % 7 == 0) th_dataloader_reset(loader);
        for (int i = 0; i < variant % 3; i++) assert_true(th_dataloader_next(loader, &b));
        th_dataloader_free(loader);
    }
}

static th_status sum_collate(const th_sample *samples, size_t n, th_sample *batch, void *user)
{
    int64_t sum = *(int64_t *)user;
    for (size_t i = 0; i < n; i++) sum += th_item_int(samples[i].data[0]);
    batch->data[0] = th_tensor_scalar(TH_S(sum), TH_INT64);
    batch->data[1] = th_tensor_scalar(TH_S((int64_t)n), TH_INT64);
    batch->size = 2;
    return TH_OK;
}

static void test_collation(void **state)
{
    (void)state;
    int64_t offset = 100;
    for (int workers = 0; workers <= 2; workers += 2) {
        th_batch b;
        th_dataloader *loader =
            th_dataloader_new(range_new(5), 3, .collate_fn = sum_collate, .collate_user = &offset, .num_workers = workers);
        assert_true(th_dataloader_next(loader, &b));
        assert_int_equal(th_item_int(b.data[0]), 103);
        assert_int_equal(th_item_int(b.data[1]), 3);
        assert_true(th_dataloader_next(loader, &b));
        assert_int_equal(th_item_int(b.data[0]), 107);
        assert_int_equal(b.length, 2);
        th_dataloader_free(loader);
    }
}

static void test_batches_outlive_scopes_and_can_be_kept(void **state)
{
    (void)state;
    th_batch b;
    th_dataloader *loader = th_dataloader_new(range_new(4), 2);
    {
        TH_SCOPE();
        assert_true(th_dataloader_next(loader, &b));
    }
    th_tensor *kept = th_retain(b.data[0]);
    assert_true(th_dataloader_next(loader, &b));
    th_dataloader_free(loader);
    int64_t values[2];
    assert_int_equal(th_copy_to(kept, values, sizeof values, TH_INT64), TH_OK);
    assert_int_equal(values[0] * 10 + values[1], 1);
    th_free(kept);
}

/* ---- worker start */
static atomic_int inits;
static th_status count_init(th_worker_info *worker, void *user)
{
    atomic_fetch_add(&inits, 1 << (8 * worker->id));
    assert_int_equal(worker->num_workers, *(int *)user);
    assert_ptr_equal(th_get_worker_info(), worker);
    return TH_OK;
}

static th_status refuse_init(th_worker_info *worker, void *user)
{
    (void)user;
    return worker->id == 1 ? th_error_set(TH_ERR_RUNTIME, "no GPU for worker %d", worker->id) : TH_OK;
}

static void test_worker_init(void **state)
{
    (void)state;
    int two = 2;
    for (int persistent = 0; persistent < 2; persistent++) {
        atomic_store(&inits, 0);
        th_dataloader *loader = th_dataloader_new(range_new(8), 2, .num_workers = 2, .worker_init_fn = count_init,
                                                  .worker_init_user = &two, .persistent_workers = persistent == 1);
        for (int pass = 0; pass < 3; pass++) assert_text(text_of_pass(loader, 0, false), "0 1 2 3 4 5 6 7");
        assert_int_equal(atomic_load(&inits), persistent ? 0x101 : 0x303);
        th_dataloader_free(loader);
    }
    th_batch b;
    th_dataloader *loader = th_dataloader_new(range_new(8), 2, .num_workers = 2, .worker_init_fn = refuse_init);
    assert_true(th_dataloader_next(loader, &b));
    assert_false(th_dataloader_next(loader, &b));
    assert_error(TH_ERR_RUNTIME, "no GPU for worker 1");
    th_dataloader_free(loader);
    assert_null(th_get_worker_info());
    assert_ptr_equal(th_worker_generator(), th_default_generator());
}

/* Random transforms in workers: their numbers depend on the seed and the batch, not on timing. */
static th_status random_item(th_sample *sample, void *user)
{
    (void)user;
    int64_t value = (int64_t)(th_generator_random64(th_worker_generator()) >> 40);
    sample->data[0] = th_tensor_scalar(TH_S(value), TH_INT64);
    return TH_OK;
}

static void test_random_transforms_repeat(void **state)
{
    (void)state;
    char *first = NULL;
    for (int run = 0; run < 3; run++) {
        th_manual_seed(run < 2 ? 4 : 5);
        th_dataset *set = th_dataset_transform(range_with((range){.n = 24, .fail_at = -1, .sleep_us = run * 100}), random_item);
        th_dataloader *loader = th_dataloader_new(set, 2, .num_workers = 3);
        text t = text_of_pass(loader, 0, false);
        if (first == NULL)
            first = strdup(t.data);
        else if (run == 1)
            assert_string_equal(t.data, first);
        else
            assert_string_not_equal(t.data, first);
        free(t.data);
        th_dataloader_free(loader);
    }
    free(first);
}

static th_status wild_next(void *self, int64_t *index, bool *end)
{
    *end = (*(int *)self)++ == 2;
    *index = *(int *)self == 1 ? -1 : 5; /* -1 is the last one, 5 is outside */
    return TH_OK;
}

static void test_index_outside_the_dataset(void **state)
{
    (void)state;
    int position = 0;
    const th_sampler_ops ops = {.size = sizeof ops, .name = "wild", .next = wild_next};
    th_batch b;
    th_dataloader *loader = th_dataloader_new(range_new(5), .sampler = th_sampler_new(&ops, &position));
    assert_int_equal(th_dataloader_len(loader), -1);
    assert_true(th_dataloader_next(loader, &b));
    assert_int_equal(th_item_int(b.data[0]), 4);
    assert_false(th_dataloader_next(loader, &b));
    assert_error(TH_ERR_VALUE, "sampler 'wild' gave index 5, outside dataset 'range' of 5 samples");
    th_dataloader_free(loader);
}

static char warning[512];
static void keep_warning(const char *line, void *user)
{
    (void)user;
    snprintf(warning, sizeof warning, "%s", line);
}

static void test_pin_memory_without_accelerator(void **state)
{
    (void)state;
    th_dataloader *loader = th_dataloader_new(range_new(4), 2, .pin_memory = true);
    assert_non_null(loader);
    assert_text(text_of_pass(loader, 0, false), "0 1 2 3");
    th_dataloader_free(loader);
    if (warning[0] != 0) assert_non_null(strstr(warning, "no accelerator is found"));
}

/* 50 */
static void test_suggested_workers(void **state)
{
    (void)state;
    const int cases[][3] = {{4, 1, 3}, {4, 2, 1}, {4, 3, 1}, {2, 1, 1}, {1, 2, 1}, {0, 1, 1}};
    for (size_t i = 0; i < 6; i++) assert_int_equal(th__suggested_max_num_workers(cases[i][0], cases[i][1]), cases[i][2]);
    assert_true(fabric_suggested_max_num_workers(1) >= 1);
    assert_int_equal(fabric_suggested_max_num_workers(0), -1);
    assert_error(TH_ERR_VALUE, "`local_world_size` should be >= 1, got 0");
}

static void test_warnings(void **state)
{
    (void)state;
    th_dataloader_free(th_dataloader_new(range_new(4), 2, .num_workers = 5000));
    assert_non_null(strstr(warning, "will create 5000 worker threads"));
    th_dataloader *loader = th_dataloader_new(range_new(3), 4, .drop_last = true);
    assert_true(th_dataloader_has_len(loader));
    assert_non_null(strstr(warning, "0 length"));
    th_dataloader_free(loader);
    loader = th_dataloader_new(stream_new(3), 4);
    assert_false(th_dataloader_has_len(loader));
    th_dataloader_free(loader);
}

/* Operators of a worker use one core; the program's own number stays. */
static th_status count_threads(th_sample *sample, void *user)
{
    (void)user;
    sample->data[0] = th_tensor_scalar(TH_S(th_get_num_threads()), TH_INT64);
    return TH_OK;
}

static void test_workers_use_one_core(void **state)
{
    (void)state;
    int before = th_get_num_threads();
    assert_int_equal(th_set_num_threads(2), TH_OK);
    th_dataloader *loader = th_dataloader_new(th_dataset_transform(range_new(3), count_threads), 1, .num_workers = 1);
    assert_text(text_of_pass(loader, 0, false), "1 1 1");
    assert_int_equal(th_get_num_threads(), 2);
    assert_int_equal(th_set_num_threads(before), TH_OK);
    th_dataloader_free(loader);
}

#define T(name) cmocka_unit_test_teardown(name, no_leftovers)
int main(void)
{
    th__set_message_sink(keep_warning, NULL);
    const struct CMUnitTest tests[] = {T(test_arguments),
                                       T(test_lengths_and_batches),
                                       T(test_order_is_the_same_for_all_workers),
                                       T(test_reading_ahead_is_bounded),
                                       T(test_errors_arrive),
                                       T(test_errors_are_reported_once),
                                       T(test_time_limit),
                                       T(test_early_ends),
                                       T(test_collation),
                                       T(test_batches_outlive_scopes_and_can_be_kept),
                                       T(test_worker_init),
                                       T(test_random_transforms_repeat),
                                       T(test_index_outside_the_dataset),
                                       T(test_pin_memory_without_accelerator),
                                       T(test_suggested_workers),
                                       T(test_warnings),
                                       T(test_workers_use_one_core)};
    return cmocka_run_group_tests_name("data.loader", tests, NULL, NULL);
}
