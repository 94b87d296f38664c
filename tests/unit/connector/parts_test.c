/* The connector: plugins, strategy objects, fallbacks, LT_* variables, the order of errors (semantics 3; 21: 11-15, 17; BC-026).
 */
#include "resolve.h"

/* ---- plugins */

static th_status no_save(fabric_checkpoint_io *io, const char *path, const th_value *c)
{
    (void)io, (void)path, (void)c;
    return TH_OK;
}
static th_value *no_load(fabric_checkpoint_io *io, const char *path)
{
    (void)io, (void)path;
    return th_value_none();
}
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
    fails(RESOLVE(.precision = "32-true", .plugins = FABRIC_PLUGINS(fabric_plugin(fabric_precision_double()))), TH_ERR_VALUE,
          "32-true", "64-true");
    fails(RESOLVE(.plugins = FABRIC_PLUGINS(fabric_plugin(kubeflow()), fabric_plugin(kubeflow()))), TH_ERR_VALUE,
          "multiple values for ClusterEnvironment ", NULL);
    fails(RESOLVE(.plugins = FABRIC_PLUGINS(fabric_plugin(io()), fabric_plugin(io()))), TH_ERR_VALUE,
          "multiple values for CheckpointIO ", NULL);
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
    fabric_strategy *s =
        good(RESOLVE(.strategy_object = ddp_with(fabric_accelerator_create("cpu"), fabric_precision_double(), io(), kubeflow()),
                     .devices = "2"));
    assert_string_equal(fabric_precision_name(fabric_strategy_precision(s)), "64-true");
    assert_string_equal(fabric_environment_name(fabric_strategy_environment(s)), "kubeflow");
    is(s, "DDPStrategy", "cpu", 2);
    fails(RESOLVE(.accelerator = "cpu", .strategy_object = ddp_with(fabric_accelerator_create("cpu"), NULL, NULL, NULL)),
          TH_ERR_VALUE, "accelerator set through both", NULL);
    fails(RESOLVE(.strategy_object = ddp_with(NULL, fabric_precision_double(), NULL, NULL),
                  .plugins = FABRIC_PLUGINS(fabric_plugin(fabric_precision_double()))),
          TH_ERR_VALUE, "precision set through both", NULL);
    fails(RESOLVE(.strategy_object = ddp_with(NULL, NULL, io(), NULL), .plugins = FABRIC_PLUGINS(fabric_plugin(io()))),
          TH_ERR_VALUE, "checkpoint_io set through both", NULL);
    fails(
        RESOLVE(.strategy_object = ddp_with(NULL, NULL, NULL, kubeflow()), .plugins = FABRIC_PLUGINS(fabric_plugin(kubeflow()))),
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
    is(RESOLVE(.strategy_object = ddp_on(TH_CPU), .accelerator_object = fabric_accelerator_create("cpu")), "DDPStrategy", "cpu",
       2);
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
    static const struct {
        const char *variable, *value, *word;
        struct fabric_new_args code;
    } cases[] = {
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

/* Upstream's order: the strategy's name is looked at before the accelerator's, that before precision, plugins, counts, hardware.
 */
static void order_of_errors(void **state)
{
    (void)state;
    struct fabric_new_args args = {FABRIC_NEW_DEFAULTS, .strategy = "s", .accelerator = "a",
                                   .precision = "p",    .num_nodes = 0,  .devices = "0"};
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

/* Whichever allocation fails, the error is that, nothing leaks and the next try works. */
static void memory_runs_out(void **state)
{
    (void)state;
    long n = 1;
    for (;; n++) {
        th__fail_allocation(n);
        fabric_strategy *s = RESOLVE(.accelerator = "cpu", .strategy = "DDP", .devices = "70", .precision = "bf16",
                                     .plugins = FABRIC_PLUGINS(fabric_plugin(kubeflow()), fabric_plugin(io())));
        th__fail_allocation(0);
        if (s != NULL) {
            fabric_strategy_free(s);
            break;
        }
        assert_int_equal(th_error(), TH_ERR_MEMORY);
        th_error_clear();
        assert_int_equal(th__objects_live(NULL), 0);
    }
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(plugins),         TEST(strategies_with_parts), TEST(strategies_with_devices),
        TEST(fallbacks),       TEST(environment_overrides), TEST(environment_alone),
        TEST(order_of_errors), TEST(environments),          TEST(pending_errors),
        TEST(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
