/* The connector: names, devices, hardware, precision (semantics 2, 3, 11.2; 21: 1-10). */
#include "resolve.h"

/* 21.1, 21.2 */
static void cpu_defaults(void **state)
{
    (void)state;
    is(RESOLVE(.num_nodes = 1), "SingleDeviceStrategy", "cpu", 1);
    is(RESOLVE(.accelerator = "cpu", .devices = "1"), "SingleDeviceStrategy", "cpu", 1);
    fabric_strategy *s = good(RESOLVE(.accelerator = "cpu", .devices = "5"));
    assert_string_equal(fabric_strategy_launcher(s), "subprocess");
    is(s, "DDPStrategy", "cpu", 5);
    is(RESOLVE(.accelerator = NULL, .devices = NULL, .strategy = NULL), "SingleDeviceStrategy", "cpu", 1);
}

/* 21.3, without a notebook, which C does not have */
static void gpus(void **state)
{
    (void)state;
    fabric__accelerators_fake(4, 0);
    fabric_strategy *s = good(RESOLVE(.num_nodes = 1));
    for (int i = 0; i < 4; i++) assert_int_equal(fabric_strategy_parallel_devices(s).data[i].index, i);
    is(s, "DDPStrategy", "cuda", 4);
    s = good(RESOLVE(.accelerator = "gpu", .devices = "2,"));
    assert_int_equal(fabric_strategy_root_device(s).index, 2);
    is(s, "SingleDeviceStrategy", "cuda", 1);
    is(RESOLVE(.devices = "-1"), "DDPStrategy", "cuda", 4);
    is(RESOLVE(.devices = "0,2", .strategy = "dp"), "DataParallelStrategy", "cuda", 2);
    is(RESOLVE(.accelerator = "cpu"), "SingleDeviceStrategy", "cpu", 1);
    fails(RESOLVE(.devices = "5"), TH_ERR_VALUE, "GPU 4", NULL);
    fails(RESOLVE(.devices = "1,1"), TH_ERR_VALUE, "unique", NULL);
}

static void tpu_is_preferred(void **state)
{
    (void)state;
    assert_int_equal(fabric_accelerator_register(&fake_tpu_entry), TH_OK);
    fake_tpu_count = 8;
    fabric__accelerators_fake(4, 0);
    fails(RESOLVE(.num_nodes = 1), TH_ERR_UNAVAILABLE, "'xla'", NULL); /* chosen, and then says why it cannot be had */
    fails(RESOLVE(.devices = "1"), TH_ERR_UNAVAILABLE, "'single_xla'", NULL);
    fails(RESOLVE(.accelerator = "tpu", .strategy = "fsdp"), TH_ERR_UNAVAILABLE, "'xla_fsdp'", NULL);
    is(RESOLVE(.accelerator = "gpu", .devices = "1"), "SingleDeviceStrategy", "cuda", 1);
    fabric_accelerator_entry back = fabric__accelerator_tpu;
    static fabric_accelerator_entry kept;
    kept = back;
    kept.override = true;
    assert_int_equal(fabric_accelerator_register(&kept), TH_OK);
}

static void mps(void **state)
{
    (void)state;
    fabric__accelerators_fake(2, 1);
    is(RESOLVE(.num_nodes = 1), "SingleDeviceStrategy", "mps", 1); /* before CUDA */
    is(RESOLVE(.accelerator = "gpu"), "SingleDeviceStrategy", "mps", 1);
    static const char *const parallel[] = {"ddp", "dp", "fsdp", "ddp_spawn", "deepspeed_stage_3"};
    for (size_t i = 0; i < 5; i++)
        for (int k = 0; k < 3; k++)
            fails(RESOLVE(.strategy = parallel[i], .accelerator = ((const char *[]){"auto", "gpu", "mps"})[k]), TH_ERR_VALUE,
                  "MPS", parallel[i]);
    fails(RESOLVE(.strategy_object = fake_ddp(NULL)), TH_ERR_VALUE, "MPS", "DDPStrategy");
    fails(RESOLVE(.strategy = "ddp", .accelerator_object = fabric_accelerator_create("mps")), TH_ERR_VALUE, "MPS", NULL);
    is(RESOLVE(.strategy = "ddp", .accelerator = "cpu"), "DDPStrategy", "cpu", 1);
    is(RESOLVE(.strategy = "ddp", .accelerator = "cuda"), "DDPStrategy", "cuda", 2);
}

/* 21.4 */
static void nodes(void **state)
{
    (void)state;
    fabric_strategy *s = good(RESOLVE(.num_nodes = 2));
    assert_int_equal(fabric_strategy_num_nodes(s), 2);
    is(s, "DDPStrategy", "cpu", 1);
    fails(RESOLVE(.num_nodes = 0), TH_ERR_VALUE, "num_nodes", "0");
    fails(RESOLVE(.num_nodes = -1), TH_ERR_VALUE, "num_nodes", "-1");
}

/* 21.5 */
static void strategy_names(void **state)
{
    (void)state;
    is(RESOLVE(.strategy = "DDP"), "DDPStrategy", "cpu", 1);
    is(RESOLVE(.strategy = "Ddp"), "DDPStrategy", "cpu", 1);
    fails(RESOLVE(.strategy = "cocofruit"), TH_ERR_VALUE, "cocofruit", "ddp");
    fails(RESOLVE(.strategy = "dpp"), TH_ERR_VALUE, "did you mean", NULL);
    fails(RESOLVE(.strategy = ""), TH_ERR_VALUE, "strategy ''", NULL);
    fails(RESOLVE(.strategy = "ddp", .strategy_object = fake_ddp(NULL)), TH_ERR_VALUE, "choose one", NULL);
    is(RESOLVE(.strategy_object = fake_ddp(NULL)), "DDPStrategy", "cpu", 1);
}

/* All of upstream's names are known; those that cannot be had say so. */
static void strategies_that_are_missing(void **state)
{
    (void)state;
    fabric__accelerators_fake(2, 0);
    static const char *const names[] = {
        "fsdp",
        "fsdp_cpu_offload",
        "deepspeed",
        "deepspeed_stage_1",
        "deepspeed_stage_1_offload",
        "deepspeed_stage_2",
        "deepspeed_stage_2_offload",
        "deepspeed_stage_3",
        "deepspeed_stage_3_offload",
        "deepspeed_stage_3_offload_nvme",
        "xla",
        "xla_fsdp",
        "single_xla",
        "single_tpu",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const fabric_strategy_entry *entry = fabric_strategy_find(names[i]);
        assert_non_null(entry);
        if (entry->create == fabric__strategy_unavailable)
            fails(RESOLVE(.accelerator = "cuda", .strategy = names[i]), TH_ERR_UNAVAILABLE, names[i], NULL);
    }
}

/* 21.6 */
static void accelerator_names(void **state)
{
    (void)state;
    fails(RESOLVE(.accelerator = "cocofruit"), TH_ERR_VALUE, "cocofruit", "cpu, cuda, mps, tpu");
    fails(RESOLVE(.accelerator = "CPU"), TH_ERR_VALUE, "'CPU'", "did you mean 'cpu'");
    fails(RESOLVE(.accelerator = "cuda"), TH_ERR_UNAVAILABLE, "CUDAAccelerator", "['cpu']");
    fails(RESOLVE(.accelerator = "mps"), TH_ERR_UNAVAILABLE, "MPSAccelerator", "Apple");
    fails(RESOLVE(.accelerator = "tpu"), TH_ERR_UNAVAILABLE, "XLAAccelerator", "XLA");
    fails(RESOLVE(.accelerator = "gpu"), TH_ERR_UNAVAILABLE, "gpu", "CUDA");
    fails(RESOLVE(.accelerator_object = fabric_accelerator_create("cuda")), TH_ERR_UNAVAILABLE, "CUDAAccelerator", NULL);
    fails(RESOLVE(.accelerator = "cpu", .accelerator_object = fabric_accelerator_create("cpu")), TH_ERR_VALUE, "choose one",
          NULL);
    is(RESOLVE(.accelerator_object = fabric_accelerator_create("cpu"), .devices = "2"), "DDPStrategy", "cpu", 2);
}

static void users_accelerators(void **state)
{
    (void)state;
    assert_int_equal(fabric_accelerator_register(&fake_entry), TH_OK);
    is(RESOLVE(.accelerator = "fake"), "DDPStrategy", "fake", 2);
    is(RESOLVE(.accelerator = "fake", .devices = "1"), "SingleDeviceStrategy", "fake", 1);
    assert_int_equal(fabric_accelerator_unregister("fake"), TH_OK);
}

/* 21.7 */
static void device_counts(void **state)
{
    (void)state;
    fabric__accelerators_fake(4, 0);
    static const char *const accelerators[] = {"auto", "cpu", "cuda", "gpu"}, *const none[] = {"0", "", "[]", " 0"};
    for (size_t a = 0; a < 4; a++)
        for (size_t d = 0; d < 3; d++)
            fails(RESOLVE(.accelerator = accelerators[a], .devices = none[d]), TH_ERR_VALUE, accelerators[a],
                  "not a valid input");
    fails(RESOLVE(.accelerator = "cuda", .devices = none[3]), TH_ERR_VALUE, "not a valid input", NULL);
    fails(RESOLVE(.accelerator_object = fabric_accelerator_create("cpu"), .devices = "0"), TH_ERR_VALUE, "CPUAccelerator", NULL);
    fails(RESOLVE(.accelerator = "cpu", .devices = "3,"), TH_ERR_TYPE, "CPUAccelerator", NULL);
    fails(RESOLVE(.accelerator = "cpu", .devices = "-1"), TH_ERR_TYPE, "CPUAccelerator", NULL);
    is(RESOLVE(.accelerator = "cpu", .devices = "3"), "DDPStrategy", "cpu", 3);
    is(RESOLVE(.accelerator = "cpu", .devices = "100"), "DDPStrategy", "cpu", 100);
}

/* ---- precision */

/* 21.9, 21.10, BC-034 */
static void precisions(void **state)
{
    (void)state;
    assert_string_equal(precision_of(RESOLVE(.precision = NULL)), "32-true");
    assert_string_equal(precision_of(RESOLVE(.precision = "32")), "32-true");
    assert_string_equal(precision_of(RESOLVE(.precision = "64")), "64-true");
    assert_string_equal(precision_of(RESOLVE(.precision = "64-true")), "64-true");
    assert_string_equal(precision_of(RESOLVE(.precision = "bf16-true")), "bf16-true");
    assert_string_equal(warnings, "");
    assert_string_equal(precision_of(RESOLVE(.precision = "bf16-mixed")), "bf16-mixed");
    assert_non_null(strstr(warnings, "bfloat16 Automatic Mixed Precision"));
    assert_null(strstr(warnings, "discouraged"));
    warnings[0] = '\0';
    assert_string_equal(precision_of(RESOLVE(.precision = "bf16")), "bf16-mixed");
    assert_non_null(strstr(warnings, "'bf16' is supported for historical reasons but its usage is discouraged"));
    warnings[0] = '\0';
    fabric__accelerators_fake(1, 0);
    assert_string_equal(precision_of(RESOLVE(.precision = "16")), "16-mixed");
    assert_non_null(strstr(warnings, "set your precision to '16-mixed'"));
    assert_non_null(strstr(warnings, "Using 16-bit Automatic Mixed Precision"));
    static const char *const bad[] = {"1", "12", "invalid", "BF16", "", "32-True"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        fails(RESOLVE(.precision = bad[i]), TH_ERR_VALUE, "precision", "bf16-mixed");
    fails(RESOLVE(.precision = "bf16-mixd"), TH_ERR_VALUE, "did you mean 'bf16-mixed'", NULL);
}

static void half_on_the_cpu_falls_back(void **state)
{
    (void)state;
    assert_string_equal(precision_of(RESOLVE(.accelerator = "cpu", .precision = "16-mixed")), "bf16-mixed");
    assert_non_null(strstr(warnings, "fp16 is not supported on CPU"));
    warnings[0] = '\0'; /* an accelerator object behaves like its name */
    assert_string_equal(precision_of(RESOLVE(.accelerator_object = fabric_accelerator_create("cpu"), .precision = "16-mixed")),
                        "bf16-mixed");
    assert_non_null(strstr(warnings, "fp16 is not supported on CPU"));
}

static void precisions_that_are_missing(void **state)
{
    (void)state;
    fails(RESOLVE(.precision = "transformer-engine"), TH_ERR_UNAVAILABLE, "transformer-engine", "Hopper");
    fails(RESOLVE(.precision = "transformer-engine-float16"), TH_ERR_UNAVAILABLE, "transformer-engine-float16", NULL);
    fails(RESOLVE(.precision = "bitsandbytes"), TH_ERR_UNAVAILABLE, "bitsandbytes", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(cpu_defaults),
        TEST(gpus),
        TEST(tpu_is_preferred),
        TEST(mps),
        TEST(nodes),
        TEST(strategy_names),
        TEST(strategies_that_are_missing),
        TEST(accelerator_names),
        TEST(users_accelerators),
        TEST(device_counts),
        TEST(precisions),
        TEST(half_on_the_cpu_falls_back),
        TEST(precisions_that_are_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
