/* Resolving flags in a test: a clean environment, stand-ins for ddp and dp, and checks of what came out. */
#ifndef TEST_RESOLVE_H
#define TEST_RESOLVE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/memory.h"
#include "base/object.h"
#include "fabric/connector.h"
#include "fake_accelerator.h"
#include "strategies/internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char warnings[4096];
static inline void keep_line(const char *line, void *user)
{
    (void)user;
    snprintf(warnings + strlen(warnings), sizeof warnings - strlen(warnings), "%s\n", line);
}

/* ---- stand-ins for ddp and dp, which need no processes here */

static inline const char *subprocess(fabric_strategy *s)
{
    (void)s;
    return "subprocess";
}
static const fabric_strategy_ops ddp_ops = {.size = sizeof(fabric_strategy_ops), .name = "DDPStrategy", .launcher = subprocess};
static inline fabric_strategy *fake_ddp(const char *preset) { return fabric_strategy_new(&ddp_ops, (void *)preset); }
static const fabric_strategy_ops dp_ops = {
    .size = sizeof(fabric_strategy_ops), .name = "DataParallelStrategy", .single_process = true};
static inline fabric_strategy *fake_dp(const char *preset) { return fabric_strategy_new(&dp_ops, (void *)preset); }
static const fabric_strategy_entry stand_ins[] = {
    {sizeof(fabric_strategy_entry), "ddp", "", fake_ddp, "ddp", true},
    {sizeof(fabric_strategy_entry), "ddp_spawn", "", fake_ddp, "ddp_spawn", true},
    {sizeof(fabric_strategy_entry), "dp", "", fake_dp, "dp", true},
};

static inline int clean(void **state)
{
    (void)state;
    static const char *const names[] = {
        "LT_CLI_USED",
        "LT_ACCELERATOR",
        "LT_STRATEGY",
        "LT_DEVICES",
        "LT_NUM_NODES",
        "LT_PRECISION",
        "TORCHELASTIC_RUN_ID",
        "SLURM_NTASKS",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_JOB_NAME",
        "LSB_JOBID",
        "OMPI_COMM_WORLD_RANK",
        "PMI_RANK",
        "PMIX_RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "RANK",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unsetenv(names[i]);
    setenv("POSSIBLE_USER_WARNINGS", "off", 1); /* this machine may have an srun */
    th_error_clear();
    th__set_message_sink(keep_line, NULL);
    warnings[0] = '\0';
    fabric__accelerators_fake(0, 0);
    fake_tpu_count = 0;
    fake_accelerator_unused();
    for (size_t i = 0; i < sizeof stand_ins / sizeof stand_ins[0]; i++) fabric_strategy_register(&stand_ins[i]);
    return th_error();
}

static inline int leak_check(void **state)
{
    (void)state;
    th_error_clear();
    return th__objects_live(NULL) == 0 ? 0 : -1;
}

#define RESOLVE(...) fabric__connector_resolve(&(struct fabric_new_args){FABRIC_NEW_DEFAULTS, __VA_ARGS__})

static inline fabric_strategy *good(fabric_strategy *strategy)
{
    if (strategy == NULL) fail_msg("not resolved: %s", th_error_message());
    return strategy;
}

/* Ends a resolved strategy after comparing class, accelerator and number of devices. */
static inline void is(fabric_strategy *strategy, const char *name, const char *accelerator, size_t devices)
{
    good(strategy);
    assert_string_equal(fabric_strategy_name(strategy), name);
    assert_string_equal(fabric_accelerator_name(fabric_strategy_accelerator(strategy)), accelerator);
    assert_int_equal(fabric_strategy_parallel_devices(strategy).size, devices);
    assert_non_null(fabric_strategy_environment(strategy));
    assert_non_null(fabric_strategy_precision(strategy));
    fabric_strategy_free(strategy);
}

static inline void fails(fabric_strategy *strategy, th_status status, const char *word, const char *word2)
{
    if (strategy != NULL) fail_msg("was accepted, expected an error with '%s'", word);
    if (th_error() != status) fail_msg("expected status %d, got %d: %s", (int)status, (int)th_error(), th_error_message());
    if (strstr(th_error_message(), word) == NULL) fail_msg("'%s' is not in: %s", word, th_error_message());
    if (word2 != NULL && strstr(th_error_message(), word2) == NULL) fail_msg("'%s' is not in: %s", word2, th_error_message());
    th_error_clear();
}

static inline void set(const char *name, const char *value) { assert_int_equal(setenv(name, value, 1), 0); }

/* The name of the precision that was chosen. */
static inline const char *precision_of(fabric_strategy *strategy)
{
    static char name[32];
    good(strategy);
    snprintf(name, sizeof name, "%s", fabric_precision_name(fabric_strategy_precision(strategy)));
    fabric_strategy_free(strategy);
    return name;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, clean, leak_check)

#endif
