/* Accelerators and the parsing of devices (semantics 4; 21: 2, 6, 7, 18, 19; BC-023). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/object.h"
#include "fake_accelerator.h"
#include <stdlib.h>
#include <string.h>

static int clean(void **state)
{
    (void)state;
    th_error_clear();
    fabric__accelerators_fake(-1, -1);
    unsetenv("TORCHELASTIC_RUN_ID");
    unsetenv("DISABLE_MPS");
    fake_setups = fake_teardowns = fake_frees = 0;
    fake_accelerator_unused();
    return 0;
}

static int leak_check(void **state)
{
    clean(state);
    return th__objects_live(NULL) == 0 ? 0 : -1;
}

static void expect_error(th_status status, const char *word)
{
    if (th_error() != status) fail_msg("expected status %d, got %d: %s", (int)status, (int)th_error(), th_error_message());
    if (word != NULL && strstr(th_error_message(), word) == NULL) fail_msg("'%s' is not in: %s", word, th_error_message());
    th_error_clear();
}

static void gives_ids(const char *text, int count, const int *expected)
{
    int ids[32];
    int n = fabric__parse_gpu_ids(text, 16, "CUDAAccelerator", ids, 32);
    if (n != count) fail_msg("'%s': expected %d devices, got %d (%s)", text, count, n, th_error_message());
    for (int i = 0; i < n; i++) assert_int_equal(ids[i], expected != NULL ? expected[i] : i);
}

/* 21.18 */
static void gpu_ids(void **state)
{
    (void)state;
    gives_ids("3", 3, NULL);
    gives_ids(" 3 ", 3, NULL);
    gives_ids("16", 16, NULL);
    gives_ids("2,", 1, (int[]){2});
    gives_ids("1, 3", 2, (int[]){1, 3});
    gives_ids("4,5", 2, (int[]){4, 5});
    gives_ids(",7,,8,", 2, (int[]){7, 8});
    gives_ids("-1", 16, NULL);
    gives_ids("0", 0, NULL);
    gives_ids(" 0 ", 0, NULL);
    gives_ids("[]", 0, NULL);
    gives_ids("", 0, NULL);
    gives_ids("0,", 1, (int[]){0});
}

/* 21.19: what Python writes as 0.1, -2, False, [-1], [None], ["0"], [0, 0], [1, 2, 19]. */
static void bad_gpu_ids(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        th_status status;
        const char *word;
    } cases[] = {
        {"0.1", TH_ERR_TYPE, "0.1"},
        {"-2", TH_ERR_VALUE, "none are available"},
        {"False", TH_ERR_TYPE, "False"},
        {"-1,", TH_ERR_VALUE, "GPU -1"},
        {"None,", TH_ERR_TYPE, "None"},
        {"'0',", TH_ERR_TYPE, "'0'"},
        {"0,0", TH_ERR_VALUE, "unique"},
        {"1,2,19", TH_ERR_VALUE, "GPU 19"},
        {"17", TH_ERR_VALUE, "only has"},
        {",", TH_ERR_VALUE, "none are"},
        {"1;2", TH_ERR_TYPE, "1;2"},
        {"3x", TH_ERR_TYPE, "3x"},
        {"99999999999999999999", TH_ERR_TYPE, "9999"},
        {NULL, TH_ERR_TYPE, "(null)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int ids[4];
        if (fabric__parse_gpu_ids(cases[i].text, 16, "CUDAAccelerator", ids, 4) >= 0)
            fail_msg("'%s' was accepted", cases[i].text);
        expect_error(cases[i].status, cases[i].word);
    }
    assert_true(fabric__parse_gpu_ids("-1", 0, "CUDAAccelerator", NULL, 0) < 0);
    expect_error(TH_ERR_VALUE, "none are available");
}

static void one_gpu_per_rank_under_torchelastic(void **state)
{
    (void)state;
    int ids[4];
    assert_true(fabric__parse_gpu_ids("4", 1, "CUDAAccelerator", ids, 4) < 0);
    expect_error(TH_ERR_VALUE, "GPU 1");
    setenv("TORCHELASTIC_RUN_ID", "x", 1);
    assert_int_equal(fabric__parse_gpu_ids("4", 1, "CUDAAccelerator", ids, 4), 4);
    assert_true(fabric__parse_gpu_ids("4", 2, "CUDAAccelerator", ids, 4) < 0); /* two visible: checked as ever */
    th_error_clear();
    fabric__accelerators_fake(1, 0);
    fabric_accelerator *cuda = fabric_accelerator_create("cuda");
    th_device devices[4];
    assert_int_equal(fabric_accelerator_parse_devices(cuda, "4", devices, 4), 4);
    for (int i = 0; i < 4; i++) assert_int_equal(devices[i].index, 0); /* each rank's own GPU is number 0 to it */
    fabric_accelerator_free(cuda);
}

/* BC-023: a world of 4 over 2 visible devices per task. */
static void tasks_see_their_own_gpus_under_slurm(void **state)
{
    (void)state;
    fabric__accelerators_fake(2, 0);
    fabric_accelerator *cuda = fabric_accelerator_create("cuda");
    th_device devices[4];
    assert_true(fabric_accelerator_parse_devices(cuda, "4", devices, 4) < 0);
    expect_error(TH_ERR_VALUE, "GPU 2");
    setenv("SLURM_NTASKS", "4", 1);
    assert_int_equal(fabric_accelerator_parse_devices(cuda, "4", devices, 4), 4);
    for (int i = 0; i < 4; i++) assert_int_equal(devices[i].index, i % 2);
    unsetenv("SLURM_NTASKS");
    fabric_accelerator_free(cuda);
}

static void cpu(void **state)
{
    (void)state;
    fabric_accelerator *a = fabric_accelerator_create("cpu");
    assert_string_equal(fabric_accelerator_name(a), "cpu");
    assert_true(fabric_accelerator_is_available(a));
    assert_int_equal(fabric_accelerator_auto_device_count(a), 1);
    th_device devices[4];
    assert_int_equal(fabric_accelerator_parse_devices(a, "3", devices, 4), 3);
    for (int i = 0; i < 3; i++) assert_int_equal(devices[i].type, TH_DEVICE_CPU);
    assert_int_equal(fabric_accelerator_parse_devices(a, "5", devices, 2), 5); /* counts beyond the room */
    static const char *const bad[] = {"0", "-1", "3,", "1,2", "[3]", "", "two", "1.5", "+3", NULL};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_true(fabric_accelerator_parse_devices(a, bad[i], devices, 4) < 0);
        expect_error(TH_ERR_TYPE, "CPUAccelerator");
    }
    assert_int_equal(fabric_accelerator_setup_device(a, TH_CPU), TH_OK);
    assert_int_equal(fabric_accelerator_setup_device(a, TH_CUDA(0)), TH_ERR_VALUE);
    expect_error(TH_ERR_VALUE, "cuda:0");
    assert_int_equal(fabric_accelerator_teardown(a), TH_OK);
    fabric_accelerator_free(a);
}

static void cuda_with_faked_gpus(void **state)
{
    (void)state;
    fabric_accelerator *a = fabric_accelerator_create("cuda");
    fabric__accelerators_fake(4, 0);
    assert_true(fabric_accelerator_is_available(a));
    assert_int_equal(fabric_accelerator_auto_device_count(a), 4);
    th_device devices[4];
    assert_int_equal(fabric_accelerator_parse_devices(a, "1,3", devices, 4), 2);
    assert_int_equal(devices[0].type, TH_DEVICE_CUDA);
    assert_int_equal(devices[0].index, 1);
    assert_int_equal(devices[1].index, 3);
    assert_int_equal(fabric_accelerator_setup_device(a, TH_CPU), TH_ERR_VALUE);
    expect_error(TH_ERR_VALUE, "CUDA");
    fabric__accelerators_fake(0, 0);
    assert_false(fabric_accelerator_is_available(a));
    assert_non_null(strstr(fabric_accelerator_unavailable_reason(a), "no CUDA device"));
    fabric_accelerator_free(a);
}

static void usable_cuda_devices(void **state)
{
    (void)state;
    int out[4];
    assert_int_equal(fabric_find_usable_cuda_devices(0, out, 4), 0);
    fabric__accelerators_fake(0, 0);
    assert_true(fabric_find_usable_cuda_devices(2, out, 4) < 0);
    expect_error(TH_ERR_VALUE, "no visible CUDA devices");
    fabric__accelerators_fake(1, 0);
    assert_true(fabric_find_usable_cuda_devices(2, out, 4) < 0);
    expect_error(TH_ERR_VALUE, "only has 1");
}

static void mps(void **state)
{
    (void)state;
    fabric_accelerator *a = fabric_accelerator_create("mps");
    fabric__accelerators_fake(0, 1);
    assert_true(fabric_accelerator_is_available(a));
    assert_int_equal(fabric_accelerator_auto_device_count(a), 1);
    th_device devices[2];
    assert_int_equal(fabric_accelerator_parse_devices(a, "1", devices, 2), 1);
    assert_int_equal(devices[0].type, TH_DEVICE_MPS);
    assert_int_equal(devices[0].index, 0);
    assert_true(fabric_accelerator_parse_devices(a, "2", devices, 2) < 0);
    expect_error(TH_ERR_VALUE, "GPU 1");
    assert_int_equal(fabric_accelerator_setup_device(a, TH_CPU), TH_ERR_VALUE);
    expect_error(TH_ERR_VALUE, "MPS");
    setenv("DISABLE_MPS", "1", 1);
    assert_false(fabric_accelerator_is_available(a));
    fabric_accelerator_free(a);
}

static void tpu_says_why_not(void **state)
{
    (void)state;
    fabric_accelerator *a = fabric_accelerator_create("tpu");
    assert_false(fabric_accelerator_is_available(a));
    assert_non_null(strstr(fabric_accelerator_unavailable_reason(a), "XLA"));
    assert_true(fabric_accelerator_parse_devices(a, "1", NULL, 0) < 0);
    expect_error(TH_ERR_UNAVAILABLE, "XLA");
    fabric_accelerator_free(a);
}

static void registry(void **state)
{
    (void)state;
    assert_string_equal(fabric_accelerator_registered(0), "cpu");
    assert_null(fabric_accelerator_registered(4));
    assert_int_equal(fabric_accelerator_register(&fake_entry), TH_OK);
    assert_string_equal(fabric_accelerator_registered(4), "fake");
    assert_int_equal(fabric_accelerator_register(&fake_entry), TH_ERR_VALUE);
    expect_error(TH_ERR_VALUE, "fake");
    fabric_accelerator *a = fabric_accelerator_create("fake");
    th_device devices[2];
    assert_int_equal(fabric_accelerator_auto_device_count(a), 2);
    assert_int_equal(fabric_accelerator_parse_devices(a, "2", devices, 2), 2);
    assert_int_equal(fabric_accelerator_setup_device(a, devices[0]), TH_OK);
    assert_int_equal(fake_setups, 1);
    th_error_set(TH_ERR_RUNTIME, "pending");
    fabric_accelerator_teardown(a); /* runs with an error pending, too */
    assert_int_equal(fake_teardowns, 1);
    expect_error(TH_ERR_RUNTIME, "pending");
    fabric_accelerator_free(a);
    assert_int_equal(fake_frees, 1);
    assert_int_equal(fabric_accelerator_unregister("fake"), TH_OK);
    assert_null(fabric_accelerator_create("fake"));
    expect_error(TH_ERR_KEY, "cpu, cuda, mps, tpu");
}

static void bad_tables(void **state)
{
    (void)state;
    fabric_accelerator_ops ops = fake_ops;
    ops.device_type = TH_DEVICE_NONE;
    assert_null(fabric_accelerator_new(&ops, NULL));
    expect_error(TH_ERR_VALUE, "device_type");
    assert_null(fabric_accelerator_new(NULL, NULL));
    expect_error(TH_ERR_VALUE, "size");
    fabric_accelerator_is_available(NULL);
    expect_error(TH_ERR_TYPE, "accelerator");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, clean, leak_check)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gpu_ids),
        TEST(bad_gpu_ids),
        TEST(one_gpu_per_rank_under_torchelastic),
        TEST(tasks_see_their_own_gpus_under_slurm),
        TEST(cpu),
        TEST(cuda_with_faked_gpus),
        TEST(usable_cuda_devices),
        TEST(mps),
        TEST(tpu_says_why_not),
        TEST(registry),
        TEST(bad_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
