/* The connector: from flags and environment to a strategy with its parts (semantics 2, 3, 11.2; 21: 1-17; BC-026). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/object.h"
#include "fabric/connector.h"
#include "fake_accelerator.h"
#include "strategies/internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char warnings[4096];
static void keep_line(const char *line, void *user)
{
    (void)user;
    snprintf(warnings + strlen(warnings), sizeof warnings - strlen(warnings), "%s\n", line);
}

/* ---- stand-ins for ddp and dp, which need no processes here */

static const char *subprocess(fabric_strategy *s) { (void)s; return "subprocess"; }
static const fabric_strategy_ops ddp_ops = {.size = sizeof(fabric_strategy_ops), .name = "DDPStrategy", .launcher = subprocess};
static fabric_strategy *fake_ddp(const char *preset) { return fabric_strategy_new(&ddp_ops, (void *)preset); }
static const fabric_strategy_ops dp_ops = {.size = sizeof(fabric_strategy_ops), .name = "DataParallelStrategy", .single_process = true};
static fabric_strategy *fake_dp(const char *preset) { return fabric_strategy_new(&dp_ops, (void *)preset); }
static const fabric_strategy_entry stand_ins[] = {
    {sizeof(fabric_strategy_entry), "ddp", "", fake_ddp, "ddp", true},
    {sizeof(fabric_strategy_entry), "ddp_spawn", "", fake_ddp, "ddp_spawn", true},
    {sizeof(fabric_strategy_entry), "dp", "", fake_dp, "dp", true},
};

static int clean(void **state)
{
    (void)state;
    static const char *const names[] = {
        "LT_CLI_USED", "LT_ACCELERATOR", "LT_STRATEGY", "LT_DEVICES", "LT_NUM_NODES", "LT_PRECISION", "TORCHELASTIC_RUN_ID",
        "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_JOB_NAME", "LSB_JOBID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
        "LOCAL_RANK", "WORLD_SIZE", "RANK",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unsetenv(names[i]);
    th_error_clear();
    th__set_message_sink(keep_line, NULL);
    warnings[0] = '\0';
    fabric__accelerators_fake(0, 0);
    fake_tpu_count = 0;
    fake_accelerator_unused();
    for (size_t i = 0; i < sizeof stand_ins / sizeof stand_ins[0]; i++) fabric_strategy_register(&stand_ins[i]);
    return th_error();
}

static int leak_check(void **state)
{
    (void)state;
    th_error_clear();
    return th__objects_live(NULL) == 0 ? 0 : -1;
}

#define RESOLVE(...) fabric__connector_resolve(&(struct fabric_new_args){FABRIC_NEW_DEFAULTS, __VA_ARGS__})

static fabric_strategy *good(fabric_strategy *strategy)
{
    if (strategy == NULL) fail_msg("not resolved: %s", th_error_message());
    return strategy;
}

/* Ends a resolved strategy after comparing class, accelerator and number of devices. */
static void is(fabric_strategy *strategy, const char *name, const char *accelerator, size_t devices)
{
    good(strategy);
    assert_string_equal(fabric_strategy_name(strategy), name);
    assert_string_equal(fabric_accelerator_name(fabric_strategy_accelerator(strategy)), accelerator);
    assert_int_equal(fabric_strategy_parallel_devices(strategy).size, devices);
    assert_non_null(fabric_strategy_environment(strategy));
    assert_non_null(fabric_strategy_precision(strategy));
    fabric_strategy_free(strategy);
}

static void fails(fabric_strategy *strategy, th_status status, const char *word, const char *word2)
{
    if (strategy != NULL) fail_msg("was accepted, expected an error with '%s'", word);
    if (th_error() != status) fail_msg("expected status %d, got %d: %s", (int)status, (int)th_error(), th_error_message());
    if (strstr(th_error_message(), word) == NULL) fail_msg("'%s' is not in: %s", word, th_error_message());
    if (word2 != NULL && strstr(th_error_message(), word2) == NULL) fail_msg("'%s' is not in: %s", word2, th_error_message());
    th_error_clear();
}

static void set(const char *name, const char *value) { assert_int_equal(setenv(name, value, 1), 0); }

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
            fails(RESOLVE(.strategy = parallel[i], .accelerator = ((const char *[]){"auto", "gpu", "mps"})[k]), TH_ERR_VALUE, "MPS",
                  parallel[i]);
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
        "fsdp", "fsdp_cpu_offload", "deepspeed", "deepspeed_stage_1", "deepspeed_stage_1_offload", "deepspeed_stage_2",
        "deepspeed_stage_2_offload", "deepspeed_stage_3", "deepspeed_stage_3_offload", "deepspeed_stage_3_offload_nvme", "xla",
        "xla_fsdp", "single_xla", "single_tpu",
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
    fails(RESOLVE(.accelerator = "cpu", .accelerator_object = fabric_accelerator_create("cpu")), TH_ERR_VALUE, "choose one", NULL);
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
            fails(RESOLVE(.accelerator = accelerators[a], .devices = none[d]), TH_ERR_VALUE, accelerators[a], "not a valid input");
    fails(RESOLVE(.accelerator = "cuda", .devices = none[3]), TH_ERR_VALUE, "not a valid input", NULL);
    fails(RESOLVE(.accelerator_object = fabric_accelerator_create("cpu"), .devices = "0"), TH_ERR_VALUE, "CPUAccelerator", NULL);
    fails(RESOLVE(.accelerator = "cpu", .devices = "3,"), TH_ERR_TYPE, "CPUAccelerator", NULL);
    fails(RESOLVE(.accelerator = "cpu", .devices = "-1"), TH_ERR_TYPE, "CPUAccelerator", NULL);
    is(RESOLVE(.accelerator = "cpu", .devices = "3"), "DDPStrategy", "cpu", 3);
    is(RESOLVE(.accelerator = "cpu", .devices = "100"), "DDPStrategy", "cpu", 100);
}

/* ---- precision */

static const char *precision_of(fabric_strategy *strategy)
{
    static char name[32];
    good(strategy);
    snprintf(name, sizeof name, "%s", fabric_precision_name(fabric_strategy_precision(strategy)));
    fabric_strategy_free(strategy);
    return name;
}

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

/* ---- plugins */

static th_status no_save(fabric_checkpoint_io *io, const char *path, const th_value *c) { (void)io, (void)path, (void)c; return TH_OK; }
static th_value *no_load(fabric_checkpoint_io *io, const char *path) { (void)io, (void)path; return th_value_none(); }
static const fabric_checkpoint_io_ops io_ops = {
    .size = sizeof(fabric_checkpoint_io_ops), .name = "NoCheckpointIO", .save = no_save, .load = no_load};
static fabric_checkpoint_io *io(void) { return fabric_checkpoint_io_new(&io_ops, NULL); }
static fabric_environment *kubeflow(void) { return fabric_environment_create("kubeflow"); }

/* 21.11 */
static void plugins(void **state)
{
    (void)state;
    fabric_strategy *s = good(RESOLVE(.plugins = FABRIC_PLUGINS(fabric_plugin(fabric_precision_double()), fabric_plugin(io()),
                                                                fabric_plugin(kubeflow()))));
    assert_string_equal(fabric_precision_name(fabric_strategy_precision(s)), "64-true");
    assert_string_equal(fabric_environment_name(fabric_strategy_environment(s)), "kubeflow");
    assert_string_equal(fabric_checkpoint_io_ops_of(fabric_strategy_checkpoint_io(s))->name, "NoCheckpointIO");
    fabric_strategy_free(s);
    fails(RESOLVE(.precision = "32-true", .plugins = FABRIC_PLUGINS(fabric_plugin(fabric_precision_double()))), TH_ERR_VALUE, "32-true",
          "64-true");
    fails(RESOLVE(.plugins = FABRIC_PLUGINS(fabric_plugin(kubeflow()), fabric_plugin(kubeflow()))), TH_ERR_VALUE,
          "multiple values for ClusterEnvironment ", NULL);
    fails(RESOLVE(.plugins = FABRIC_PLUGINS(fabric_plugin(io()), fabric_plugin(io()))), TH_ERR_VALUE, "multiple values for CheckpointIO ",
          NULL);
    fails(RESOLVE(.plugins = FABRIC_PLUGINS(fabric_plugin(io()), fabric_plugin(kubeflow()), fabric_plugin(io()),
                                            fabric_plugin(kubeflow()))),
          TH_ERR_VALUE, "CheckpointIO, ClusterEnvironment", NULL);
    fails(RESOLVE(.plugins = FABRIC_PLUGINS({FABRIC_PLUGIN_NONE, (void *)"x"})), TH_ERR_TYPE, "plugin number 0", "Precision");
    fails(RESOLVE(.plugins = FABRIC_PLUGINS({FABRIC_PLUGIN_PRECISION, NULL})), TH_ERR_TYPE, "NULL", NULL);
}

static fabric_strategy *ddp_with(fabric_accelerator *a, fabric_precision *p, fabric_checkpoint_io *i, fabric_environment *e)
{
    fabric_strategy *s = fake_ddp(NULL);
    if (a != NULL) fabric_strategy_set_accelerator(s, a);
    if (p != NULL) fabric_strategy_set_precision(s, p);
    if (i != NULL) fabric_strategy_set_checkpoint_io(s, i);
    if (e != NULL) fabric_strategy_set_environment(s, e);
    return s;
}

static void strategies_with_parts(void **state)
{
    (void)state;
    fabric_strategy *s = good(RESOLVE(.strategy_object = ddp_with(fabric_accelerator_create("cpu"), fabric_precision_double(), io(),
                                                                  kubeflow()), .devices = "2"));
    assert_string_equal(fabric_precision_name(fabric_strategy_precision(s)), "64-true");
    assert_string_equal(fabric_environment_name(fabric_strategy_environment(s)), "kubeflow");
    is(s, "DDPStrategy", "cpu", 2);
    fails(RESOLVE(.accelerator = "cpu", .strategy_object = ddp_with(fabric_accelerator_create("cpu"), NULL, NULL, NULL)), TH_ERR_VALUE,
          "accelerator set through both", NULL);
    fails(RESOLVE(.strategy_object = ddp_with(NULL, fabric_precision_double(), NULL, NULL),
                  .plugins = FABRIC_PLUGINS(fabric_plugin(fabric_precision_double()))),
          TH_ERR_VALUE, "precision set through both", NULL);
    fails(RESOLVE(.strategy_object = ddp_with(NULL, NULL, io(), NULL), .plugins = FABRIC_PLUGINS(fabric_plugin(io()))), TH_ERR_VALUE,
          "checkpoint_io set through both", NULL);
    fails(RESOLVE(.strategy_object = ddp_with(NULL, NULL, NULL, kubeflow()), .plugins = FABRIC_PLUGINS(fabric_plugin(kubeflow()))),
          TH_ERR_VALUE, "cluster_environment set through both", NULL);
}

static fabric_strategy *ddp_on(th_device device)
{
    fabric_strategy *s = fake_ddp(NULL);
    fabric_strategy_set_parallel_devices(s, (fabric_devices){(th_device[]){device, device}, 2});
    return s;
}

/* 21.13 */
static void strategies_with_devices(void **state)
{
    (void)state;
    fabric__accelerators_fake(2, 0);
    is(RESOLVE(.strategy_object = ddp_on(TH_CPU)), "DDPStrategy", "cpu", 2);
    is(RESOLVE(.strategy_object = ddp_on(TH_CPU), .accelerator = "cpu", .devices = "3"), "DDPStrategy", "cpu", 2);
    is(RESOLVE(.strategy_object = ddp_on(TH_CPU), .accelerator_object = fabric_accelerator_create("cpu")), "DDPStrategy", "cpu", 2);
    fails(RESOLVE(.strategy_object = ddp_on(TH_CPU), .accelerator = "cuda"), TH_ERR_VALUE, "CPU parallel_devices", "cuda");
    is(RESOLVE(.strategy_object = ddp_on(TH_CUDA(0)), .accelerator = "gpu"), "DDPStrategy", "cuda", 2);
    fails(RESOLVE(.strategy_object = ddp_on(TH_CUDA(0)), .accelerator = "cpu"), TH_ERR_VALUE, "GPU parallel_devices", "cpu");
}

/* 21.12 */
static void fallbacks(void **state)
{
    (void)state;
    is(RESOLVE(.accelerator = "cpu", .strategy = "dp", .devices = "2"), "DDPStrategy", "cpu", 2);
    assert_non_null(strstr(warnings, "'dp' is not supported on CPUs"));
    warnings[0] = '\0';
    is(RESOLVE(.accelerator_object = fabric_accelerator_create("cpu"), .strategy = "dp"), "DDPStrategy", "cpu", 1);
    assert_non_null(strstr(warnings, "'dp' is not supported on CPUs"));
    if (fabric_strategy_find("fsdp")->create == fabric__strategy_unavailable) {
        fails(RESOLVE(.accelerator = "cpu", .strategy = "fsdp"), TH_ERR_VALUE, "FSDP is only available on GPU", NULL);
        fails(RESOLVE(.accelerator = "cpu", .strategy = "fsdp_cpu_offload"), TH_ERR_VALUE, "fsdp_cpu_offload", NULL);
    }
}

/* ---- LT_* variables */

/* 21.14 */
static void environment_overrides(void **state)
{
    (void)state;
    fabric__accelerators_fake(4, 0);
    static const struct { const char *variable, *value, *word; struct fabric_new_args code; } cases[] = {
        {"LT_ACCELERATOR", "cpu", "accelerator", {FABRIC_NEW_DEFAULTS, .accelerator = "cuda"}},
        {"LT_STRATEGY", "ddp_spawn", "strategy", {FABRIC_NEW_DEFAULTS, .strategy = "ddp"}},
        {"LT_DEVICES", "2", "devices", {FABRIC_NEW_DEFAULTS, .devices = "3"}},
        {"LT_NUM_NODES", "3", "num_nodes", {FABRIC_NEW_DEFAULTS, .num_nodes = 2}},
        {"LT_PRECISION", "bf16-true", "precision", {FABRIC_NEW_DEFAULTS, .precision = "64-true"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        clean(state);
        fabric__accelerators_fake(4, 0);
        set(cases[i].variable, cases[i].value);
        fabric_strategy_free(good(fabric__connector_resolve(&cases[i].code))); /* silently replaced */
        set("LT_CLI_USED", "1");
        fails(fabric__connector_resolve(&cases[i].code), TH_ERR_VALUE, cases[i].word, cases[i].value);
        fabric_strategy_free(good(RESOLVE(.num_nodes = 1))); /* a default never conflicts */
        set("LT_CLI_USED", "0");
        fabric_strategy_free(good(fabric__connector_resolve(&cases[i].code)));
    }
    clean(state);
    fabric__accelerators_fake(4, 0);
    set("LT_ACCELERATOR", "cpu");
    is(RESOLVE(.accelerator = "cuda"), "SingleDeviceStrategy", "cpu", 1);
    is(RESOLVE(.accelerator_object = fabric_accelerator_create("cuda")), "SingleDeviceStrategy", "cpu", 1);
    set("LT_CLI_USED", "1");
    is(RESOLVE(.accelerator = "cpu"), "SingleDeviceStrategy", "cpu", 1); /* equal is no conflict */
    fails(RESOLVE(.accelerator_object = fabric_accelerator_create("cuda")), TH_ERR_VALUE, "CUDAAccelerator", "--accelerator=cpu");
    set("LT_STRATEGY", "ddp");
    fails(RESOLVE(.strategy_object = fake_dp(NULL)), TH_ERR_VALUE, "DataParallelStrategy", "--strategy=ddp");
}

/* 21.15 */
static void environment_alone(void **state)
{
    (void)state;
    set("LT_DEVICES", "2");
    set("LT_NUM_NODES", "3");
    set("LT_CLI_USED", "1");
    assert_true(fabric__connector_cli_used());
    fabric_strategy *s = good(RESOLVE(.num_nodes = 1));
    assert_int_equal(fabric_strategy_num_nodes(s), 3);
    is(s, "DDPStrategy", "cpu", 2);
    set("LT_PRECISION", "bf16");
    set("LT_DEVICES", "");
    assert_string_equal(precision_of(RESOLVE(.num_nodes = 1)), "bf16-mixed");
    set("LT_NUM_NODES", "many");
    fails(RESOLVE(.num_nodes = 1), TH_ERR_VALUE, "LT_NUM_NODES", "many");
}

/* Upstream's order: the strategy's name is looked at before the accelerator's, that before precision, plugins, counts, hardware. */
static void order_of_errors(void **state)
{
    (void)state;
    struct fabric_new_args args = {FABRIC_NEW_DEFAULTS, .strategy = "s", .accelerator = "a", .precision = "p", .num_nodes = 0,
                                   .devices = "0"};
    fails(fabric__connector_resolve(&args), TH_ERR_VALUE, "strategy 's'", NULL);
    args.strategy = "ddp";
    fails(fabric__connector_resolve(&args), TH_ERR_VALUE, "accelerator 'a'", NULL);
    args.accelerator = "cuda";
    fails(fabric__connector_resolve(&args), TH_ERR_VALUE, "precision 'p'", NULL);
    args.precision = "transformer-engine";
    args.plugins = (fabric_plugins){(const fabric_plugin[]){{FABRIC_PLUGIN_NONE, NULL}}, 1};
    fails(fabric__connector_resolve(&args), TH_ERR_TYPE, "plugin", NULL);
    args.plugins = (fabric_plugins){NULL, 0};
    fails(fabric__connector_resolve(&args), TH_ERR_VALUE, "num_nodes", NULL);
    args.num_nodes = 1;
    fails(fabric__connector_resolve(&args), TH_ERR_VALUE, "devices", NULL);
    args.devices = "x";
    fails(fabric__connector_resolve(&args), TH_ERR_UNAVAILABLE, "CUDAAccelerator", NULL);
    args.accelerator = "cpu";
    fails(fabric__connector_resolve(&args), TH_ERR_TYPE, "devices='x'", NULL);
    args.devices = "1";
    set("SLURM_NTASKS", "2");
    fails(fabric__connector_resolve(&args), TH_ERR_RUNTIME, "--ntasks=2", NULL);
    unsetenv("SLURM_NTASKS");
    fails(fabric__connector_resolve(&args), TH_ERR_UNAVAILABLE, "transformer-engine", NULL);
}

/* 21.17 */
static const char *environment_of(fabric_strategy *s)
{
    static char name[32];
    snprintf(name, sizeof name, "%s", fabric_environment_name(fabric_strategy_environment(good(s))));
    fabric_strategy_free(s);
    return name;
}

static void environments(void **state)
{
    (void)state;
    assert_string_equal(environment_of(RESOLVE(.num_nodes = 1)), "lightning");
    set("SLURM_NTASKS", "2");
    set("SLURM_NTASKS_PER_NODE", "2");
    assert_string_equal(environment_of(RESOLVE(.num_nodes = 1)), "slurm");
    set("SLURM_JOB_NAME", "bash");
    assert_string_equal(environment_of(RESOLVE(.num_nodes = 1)), "lightning");
    unsetenv("SLURM_JOB_NAME");
    set("TORCHELASTIC_RUN_ID", "1");
    assert_string_equal(environment_of(RESOLVE(.num_nodes = 1)), "torchelastic");
    assert_string_equal(environment_of(RESOLVE(.plugins = FABRIC_PLUGINS(fabric_plugin(kubeflow())))), "kubeflow");
}

/* Objects are consumed also when an error was pending before. */
static void pending_errors(void **state)
{
    (void)state;
    struct fabric_new_args args = {FABRIC_NEW_DEFAULTS, .strategy_object = fake_ddp(NULL),
                                   .accelerator_object = fabric_accelerator_create("cpu")};
    fabric_plugin list[] = {fabric_plugin(kubeflow()), fabric_plugin(io())};
    args.plugins = (fabric_plugins){list, 2};
    th_error_set(TH_ERR_KEY, "before");
    fails(fabric__connector_resolve(&args), TH_ERR_KEY, "before", NULL);
    assert_int_equal(th__objects_live(NULL), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, clean, leak_check)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(cpu_defaults), TEST(gpus), TEST(tpu_is_preferred), TEST(mps), TEST(nodes), TEST(strategy_names),
        TEST(strategies_that_are_missing), TEST(accelerator_names), TEST(users_accelerators), TEST(device_counts), TEST(precisions),
        TEST(half_on_the_cpu_falls_back), TEST(precisions_that_are_missing), TEST(plugins), TEST(strategies_with_parts),
        TEST(strategies_with_devices), TEST(fallbacks), TEST(environment_overrides), TEST(environment_alone), TEST(order_of_errors),
        TEST(environments), TEST(pending_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
