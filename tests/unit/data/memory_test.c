/* Every single allocation of a loader's life fails once: an error or a full result, nothing left over, no crash. */
#include "helpers.h"

#include <unistd.h>

static char path[] = "/tmp/cfabric-memory-XXXXXX";

static int write_file(void **state)
{
    (void)state;
    const uint8_t file[] = {0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8};
    int fd = mkstemp(path);
    bool good = fd >= 0 && write(fd, file, sizeof file) == (ssize_t)sizeof file;
    if (fd >= 0) close(fd);
    return good ? 0 : -1;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static th_status same(th_sample *sample, void *user)
{
    (void)sample;
    (void)user;
    return TH_OK;
}

static void use_samplers(void)
{
    th_sampler *s = th_sampler_distributed_wrap(th_sampler_subset_random(TH_INTS(2, 1, 0)), 2, 0, false);
    int64_t index;
    if (s != NULL && th_sampler_begin(s) == TH_OK)
        while (th_sampler_next(s, &index)) continue;
    th_sampler_free(s);
    th_sampler_free(th_sampler_weighted_random(TH_DOUBLES(1, 2), 2));
}

static void use_datasets(int workers)
{
    th_dataset *parts[2] = {NULL, NULL};
    th_batch b;
    th_dataset *all = th_dataset_concat((th_dataset *[]){th_dataset_idx(path), th_dataset_idx(path)}, 2);
    th_status status = th_random_split(all, TH_INTS(5, 3), .parts = parts);
    th_dataset *set = th_dataset_transform(th_dataset_subset(parts[0], TH_INTS(0, 2, 4)), same);
    th_dataloader *loader = th_dataloader_new(set, 2, true, .num_workers = workers);
    while (th_dataloader_next(loader, &b)) continue;
    if (status == TH_OK) th_value_free(th_state(loader));
    th_dataloader_free(loader);
    th_dataset_free(parts[1]);
}

static void check(void (*use)(int workers), int workers)
{
    long n = 1;
    for (bool failed = true; failed && n < 1000; n++) {
        th__fail_allocation(n);
        use(workers);
        th__fail_allocation(0);
        failed = th_error_clear() != TH_OK;
        assert_int_equal(th__objects_live(NULL), 0);
    }
    assert_true(n > 10 && n < 1000);
}

static void samplers(int workers)
{
    (void)workers;
    use_samplers();
}
static void test_samplers(void **state)
{
    (void)state;
    check(samplers, 0);
}
static void test_without_workers(void **state)
{
    (void)state;
    check(use_datasets, 0);
}

/* Which thread meets the failure is chance here, so every count is tried and all outcomes are allowed. */
static void test_with_workers(void **state)
{
    (void)state;
    for (long n = 1; n < 120; n++) {
        th__fail_allocation(n);
        use_datasets(2);
        th__fail_allocation(0);
        th_error_clear();
        assert_int_equal(th__objects_live(NULL), 0);
    }
}

#define T(name) cmocka_unit_test_teardown(name, no_leftovers)
int main(void)
{
    const struct CMUnitTest tests[] = {T(test_samplers), T(test_without_workers), T(test_with_workers)};
    return cmocka_run_group_tests_name("data.memory", tests, write_file, remove_file);
}
