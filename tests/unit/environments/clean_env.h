/* A known environment for each test, warnings counted, errors cleared. */
#ifndef TEST_CLEAN_ENV_H
#define TEST_CLEAN_ENV_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/object.h"
#include "environments/internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char last_warning[1024];
static int warnings;

static void count_warning(const char *line, void *user)
{
    (void)user;
    warnings++;
    snprintf(last_warning, sizeof last_warning, "%s", line);
}

static int clean(void **state)
{
    (void)state;
    static const char *const names[] = {
        "MASTER_ADDR",
        "MASTER_PORT",
        "STANDALONE_PORT",
        "RANK",
        "LOCAL_RANK",
        "GROUP_RANK",
        "NODE_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "TORCHELASTIC_RUN_ID",
        "SLURM_NTASKS",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_NNODES",
        "SLURM_NODELIST",
        "SLURM_JOB_ID",
        "SLURM_JOB_NAME",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "LSB_JOBID",
        "LSB_DJOB_RANKFILE",
        "JSM_NAMESPACE_RANK",
        "JSM_NAMESPACE_SIZE",
        "JSM_NAMESPACE_LOCAL_RANK",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "PMIX_RANK",
        "PMIX_NAMESPACE",
        "PMI_RANK",
        "PMI_SIZE",
        "PMI_LOCAL_RANK",
        "PMI_LOCAL_SIZE",
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
        "MVP_COMM_WORLD_RANK",
        "PALS_RANKID",
        "PALS_SIZE",
        "PALS_LOCAL_RANKID",
        "PALS_LOCAL_SIZE",
        "PALS_NODEID",
        "PALS_APID",
        "OMPI_MCA_ess_base_jobid",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unsetenv(names[i]);
    setenv("POSSIBLE_USER_WARNINGS", "off", 1); /* this machine may have an srun */
    th_error_clear();
    th__set_message_rank(-1);
    th__set_message_sink(count_warning, NULL);
    warnings = 0;
    last_warning[0] = '\0';
    fabric__environment_fake_hostname(NULL);
    return 0;
}

static int leak_check(void **state)
{
    (void)state;
    return th__objects_live(NULL) == 0 ? 0 : -1;
}

/* The pending error has this status and mentions each of the words; clears it. */
static void expect_error(th_status status, const char *a, const char *b)
{
    assert_int_equal(th_error(), status);
    if (a != NULL && strstr(th_error_message(), a) == NULL) fail_msg("'%s' is not in: %s", a, th_error_message());
    if (b != NULL && strstr(th_error_message(), b) == NULL) fail_msg("'%s' is not in: %s", b, th_error_message());
    th_error_clear();
}

static void set(const char *name, const char *value) { assert_int_equal(setenv(name, value, 1), 0); }

static fabric_environment *detect_as(const char *name)
{
    fabric_environment *environment = fabric_environment_detect();
    if (environment == NULL) fail_msg("nothing detected: %s", th_error_message());
    assert_string_equal(fabric_environment_name(environment), name);
    return environment;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, clean, leak_check)

#endif
