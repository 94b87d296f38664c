/* TorchElastic, SLURM, LSF, Kubeflow (semantics 7; 21: 32-36; BC-022). */
#include "clean_env.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- torchelastic */

static void torchelastic_defaults(void **state)
{
    (void)state;
    fabric_environment *environment = fabric_environment_create("torchelastic");
    assert_true(fabric_environment_creates_processes_externally(environment));
    assert_string_equal(fabric_environment_main_address(environment), "127.0.0.1");
    assert_int_equal(warnings, 1);
    assert_int_equal(fabric_environment_main_port(environment), 12910);
    assert_int_equal(warnings, 2);
    assert_string_equal(getenv("MASTER_ADDR"), "127.0.0.1");
    assert_string_equal(getenv("MASTER_PORT"), "12910");
    assert_int_equal(fabric_environment_main_port(environment), 12910);
    assert_int_equal(warnings, 2); /* said once */
    assert_int_equal(fabric_environment_node_rank(environment), 0);
    assert_int_equal(fabric_environment_world_size(environment), -1);
    expect_error(TH_ERR_KEY, "WORLD_SIZE", NULL);
    assert_int_equal(fabric_environment_global_rank(environment), -1);
    expect_error(TH_ERR_KEY, "'RANK'", NULL);
    assert_int_equal(fabric_environment_local_rank(environment), -1);
    expect_error(TH_ERR_KEY, "LOCAL_RANK", NULL);
    fabric_environment_free(environment);
}

static void torchelastic_variables(void **state)
{
    (void)state;
    set("MASTER_ADDR", "1.2.3.4");
    set("MASTER_PORT", "500");
    set("WORLD_SIZE", "20");
    set("RANK", "1");
    set("LOCAL_RANK", "2");
    set("GROUP_RANK", "3");
    fabric_environment *environment = fabric_environment_create("torchelastic");
    assert_string_equal(fabric_environment_main_address(environment), "1.2.3.4");
    assert_int_equal(fabric_environment_main_port(environment), 500);
    assert_int_equal(fabric_environment_world_size(environment), 20);
    assert_int_equal(fabric_environment_global_rank(environment), 1);
    assert_int_equal(fabric_environment_local_rank(environment), 2);
    assert_int_equal(fabric_environment_node_rank(environment), 3);
    fabric_environment_set_global_rank(environment, 100); /* ignored */
    fabric_environment_set_world_size(environment, 100);
    assert_int_equal(fabric_environment_global_rank(environment), 1);
    assert_int_equal(fabric_environment_world_size(environment), 20);
    assert_int_equal(warnings, 0);
    fabric_environment_free(environment);
}

static void torchelastic_validation(void **state)
{
    (void)state;
    set("WORLD_SIZE", "8");
    fabric_environment *environment = fabric_environment_create("torchelastic");
    assert_int_equal(fabric_environment_validate_settings(environment, 4, 2), TH_OK);
    assert_int_equal(fabric_environment_validate_settings(environment, 2, 2), TH_ERR_VALUE);
    expect_error(TH_ERR_VALUE, "devices=2", "world size (8)");
    fabric_environment_free(environment);
}

/* ---- slurm */

static void slurm_defaults(void **state)
{
    (void)state;
    fabric_environment *environment = fabric_environment_create("slurm");
    assert_true(fabric_environment_creates_processes_externally(environment));
    assert_string_equal(fabric_environment_main_address(environment), "127.0.0.1");
    assert_int_equal(fabric_environment_main_port(environment), 12910);
    assert_string_equal(getenv("MASTER_ADDR"), "127.0.0.1");
    assert_string_equal(getenv("MASTER_PORT"), "12910");
    assert_int_equal(fabric_environment_world_size(environment), -1);
    expect_error(TH_ERR_KEY, "SLURM_NTASKS", "srun");
    assert_int_equal(fabric_environment_global_rank(environment), -1);
    expect_error(TH_ERR_KEY, "SLURM_PROCID", NULL);
    assert_int_equal(fabric_environment_local_rank(environment), -1);
    expect_error(TH_ERR_KEY, "SLURM_LOCALID", NULL);
    assert_int_equal(fabric_environment_node_rank(environment), -1);
    expect_error(TH_ERR_KEY, "SLURM_NODEID", NULL);
    assert_null(fabric_slurm_job_name());
    assert_int_equal(fabric_slurm_job_id(), -1);
    fabric_environment_free(environment);
}

static void slurm_variables(void **state)
{
    (void)state;
    set("SLURM_NODELIST", "1.1.1.1, 1.1.1.2");
    set("SLURM_JOB_ID", "0001234");
    set("SLURM_NTASKS", "20");
    set("SLURM_NTASKS_PER_NODE", "10");
    set("SLURM_PROCID", "1");
    set("SLURM_LOCALID", "2");
    set("SLURM_NODEID", "3");
    set("SLURM_JOB_NAME", "JOB");
    fabric_environment *environment = detect_as("slurm");
    assert_string_equal(fabric_environment_main_address(environment), "1.1.1.1");
    assert_int_equal(fabric_environment_main_port(environment), 16234);
    assert_string_equal(getenv("MASTER_ADDR"), "1.1.1.1");
    assert_string_equal(getenv("MASTER_PORT"), "16234");
    assert_int_equal(fabric_environment_world_size(environment), 20);
    assert_int_equal(fabric_environment_global_rank(environment), 1);
    assert_int_equal(fabric_environment_local_rank(environment), 2);
    assert_int_equal(fabric_environment_node_rank(environment), 3);
    assert_string_equal(fabric_slurm_job_name(), "JOB");
    assert_int_equal(fabric_slurm_job_id(), 1234);
    set("SLURM_JOB_NAME", "interactive");
    assert_int_equal(fabric_slurm_job_id(), -1);
    fabric_environment_free(environment);
}

static void slurm_user_address_wins(void **state)
{
    (void)state;
    set("SLURM_NODELIST", "node[1-4]");
    set("SLURM_JOB_ID", "77");
    set("MASTER_ADDR", "head");
    set("MASTER_PORT", "888");
    fabric_environment *environment = fabric_environment_create("slurm");
    assert_string_equal(fabric_environment_main_address(environment), "head");
    assert_int_equal(fabric_environment_main_port(environment), 888);
    fabric_environment_free(environment);
}

static void slurm_bad_values(void **state)
{
    (void)state;
    set("SLURM_JOB_ID", "12ab");
    set("SLURM_NODELIST", "");
    fabric_environment *environment = fabric_environment_create("slurm");
    assert_int_equal(fabric_environment_main_port(environment), -1);
    expect_error(TH_ERR_VALUE, "SLURM_JOB_ID", "12ab");
    assert_null(fabric_environment_main_address(environment));
    expect_error(TH_ERR_VALUE, "SLURM_NODELIST", NULL);
    assert_int_equal(fabric_slurm_job_id(), -1);
    fabric_environment_free(environment);
}

static void slurm_node_lists(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"alpha", "alpha"},
        {"alpha beta gamma", "alpha"},
        {"alpha,beta,gamma", "alpha"},
        {"1.2.3.[100-110]", "1.2.3.100"},
        {"1.2.3.[089, 100-110]", "1.2.3.089"},
        {"host[22]", "host22"},
        {"host[1,5-9]", "host1"},
        {"host[5-9,1]", "host5"},
        {"alpha, host[5-9], gamma", "alpha"},
        {"alpha[3,1], beta", "alpha3"},
        {"host[001-3]", "host001"},
        {"host[22],other[1-3]", "host22"},
        {"rack[1-2]-ib[0-1]", "rack1-ib0"},
        {"127.0.0.1", "127.0.0.1"},
        {"", ""},
        {"host[", "host"},
        {"host[7", "host7"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[64];
        fabric__slurm_root_node(cases[i][0], out, sizeof out);
        assert_string_equal(out, cases[i][1]);
    }
    char tiny[4];
    fabric__slurm_root_node("longname", tiny, sizeof tiny);
    assert_string_equal(tiny, "lon");
}

static void slurm_ntasks_without_per_node(void **state)
{
    (void)state;
    set("SLURM_NTASKS", "2");
    assert_null(fabric_environment_detect());
    expect_error(TH_ERR_RUNTIME, "--ntasks=2", "--ntasks-per-node=2");
    set("SLURM_NTASKS", "1");
    fabric_environment_free(detect_as("slurm"));
}

static void slurm_validation(void **state)
{
    (void)state;
    set("SLURM_NTASKS", "4");
    set("SLURM_NTASKS_PER_NODE", "4");
    set("SLURM_NNODES", "1");
    fabric_environment *environment = detect_as("slurm");
    assert_int_equal(fabric_environment_validate_settings(environment, 4, 1), TH_OK);
    fabric_environment_validate_settings(environment, 2, 1);
    expect_error(TH_ERR_VALUE, "--ntasks-per-node=4", "Set devices=4");
    fabric_environment_validate_settings(environment, 4, 2);
    expect_error(TH_ERR_VALUE, "--nodes=1", "Set num_nodes=1");
    set("SLURM_JOB_NAME", "interactive");
    assert_int_equal(fabric_environment_validate_settings(environment, 2, 7), TH_OK);
    fabric_environment_free(environment);
}

/* BC-022: counts that contradict each other are never believed; a missing count is derived. */
static void slurm_contradicting_counts(void **state)
{
    (void)state;
    set("SLURM_NTASKS", "1");
    set("SLURM_NTASKS_PER_NODE", "2");
    fabric_environment *environment = detect_as("slurm");
    fabric_environment_validate_settings(environment, 2, 1);
    expect_error(TH_ERR_VALUE, "SLURM_NTASKS=1", "SLURM_NTASKS_PER_NODE=2");
    fabric_environment_validate_settings(environment, 1, 1);
    expect_error(TH_ERR_VALUE, "--ntasks-per-node=2", NULL);
    unsetenv("SLURM_NTASKS");
    set("SLURM_NNODES", "3");
    assert_int_equal(fabric_environment_world_size(environment), 6);
    fabric_environment_free(environment);
}

static void slurm_settings(void **state)
{
    (void)state;
    fabric_environment *environment = fabric_environment_slurm();
    assert_true(fabric_environment_slurm_auto_requeue(environment));
    assert_int_equal(fabric_environment_slurm_requeue_signal(environment), SIGUSR1);
    fabric_environment_free(environment);
    environment = fabric_environment_slurm(.auto_requeue = false, .requeue_signal = SIGUSR2);
    assert_false(fabric_environment_slurm_auto_requeue(environment));
    assert_int_equal(fabric_environment_slurm_requeue_signal(environment), SIGUSR2);
    fabric_environment_free(environment);
    environment = fabric_environment_create("lightning");
    assert_int_equal(fabric_environment_slurm_requeue_signal(environment), -1);
    expect_error(TH_ERR_TYPE, "lightning", NULL);
    fabric_environment_free(environment);
}

static void slurm_srun_hint(void **state)
{
    (void)state;
    char folder[] = "/tmp/cfabric-srun-XXXXXX", file[64], path[64];
    char *old = strdup(getenv("PATH"));
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/srun", folder);
    FILE *srun = fopen(file, "w");
    assert_non_null(srun);
    fclose(srun);
    chmod(file, 0755);
    snprintf(path, sizeof path, "%s", folder);
    set("PATH", path);
    fabric_environment_free(detect_as("lightning"));
    assert_int_equal(warnings, 0);
    unsetenv("POSSIBLE_USER_WARNINGS");
    set("SLURM_NTASKS", "1"); /* used: no warning */
    fabric_environment_free(detect_as("slurm"));
    assert_int_equal(warnings, 0);
    unsetenv("SLURM_NTASKS");
    set("PMI_RANK", "0"); /* mpirun made this process */
    fabric_environment_free(detect_as("mpi"));
    unsetenv("PMI_RANK");
    th__set_message_rank(-1);
    assert_int_equal(warnings, 0);
    fabric_environment_free(detect_as("lightning"));
    fabric_environment_free(detect_as("lightning"));
    assert_int_equal(warnings, 1);
    const char *hint = strstr(last_warning, "like so: srun ");
    assert_non_null(hint);
    assert_true(strlen(hint) <= strlen("like so: ") + 64 + strlen(" ..."));
    set("PATH", old);
    free(old);
    unlink(file);
    rmdir(folder);
}

/* ---- lsf */

static void lsf_setup(char *file, const char *text)
{
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (int)strlen(text));
    close(fd);
    set("LSB_DJOB_RANKFILE", file);
    set("LSB_JOBID", "1234");
    set("JSM_NAMESPACE_SIZE", "4");
    set("JSM_NAMESPACE_RANK", "3");
    set("JSM_NAMESPACE_LOCAL_RANK", "1");
}

static void lsf_job(void **state)
{
    (void)state;
    char file[] = "/tmp/cfabric-rankfile-XXXXXX";
    lsf_setup(file, "batch\n10.10.10.0\n10.10.10.1\n10.10.10.2\n10.10.10.2\n10.10.10.3\n");
    fabric__environment_fake_hostname("10.10.10.2");
    fabric_environment *environment = detect_as("lsf");
    assert_true(fabric_environment_creates_processes_externally(environment));
    assert_string_equal(fabric_environment_main_address(environment), "10.10.10.0");
    assert_int_equal(fabric_environment_main_port(environment), 10234);
    assert_string_equal(getenv("MASTER_ADDR"), "10.10.10.0");
    assert_string_equal(getenv("MASTER_PORT"), "10234");
    assert_int_equal(fabric_environment_world_size(environment), 4);
    assert_int_equal(fabric_environment_global_rank(environment), 3);
    assert_int_equal(fabric_environment_local_rank(environment), 1);
    assert_int_equal(fabric_environment_node_rank(environment), 2);
    fabric_environment_set_world_size(environment, 9); /* ignored */
    assert_int_equal(fabric_environment_world_size(environment), 4);
    fabric_environment_free(environment);
    set("MASTER_PORT", "4321");
    environment = fabric_environment_create("lsf");
    assert_int_equal(fabric_environment_main_port(environment), 4321);
    fabric_environment_free(environment);
    unlink(file);
}

static void lsf_errors(void **state)
{
    (void)state;
    assert_null(fabric_environment_create("lsf"));
    expect_error(TH_ERR_VALUE, "LSB_DJOB_RANKFILE", "did not find");
    set("LSB_DJOB_RANKFILE", "");
    assert_null(fabric_environment_create("lsf"));
    expect_error(TH_ERR_VALUE, "LSB_DJOB_RANKFILE", "empty");
    set("LSB_DJOB_RANKFILE", "/does/not/exist");
    assert_null(fabric_environment_create("lsf"));
    expect_error(TH_ERR_NOT_FOUND, "/does/not/exist", NULL);
    char file[] = "/tmp/cfabric-rankfile-XXXXXX", empty[] = "/tmp/cfabric-rankfile-XXXXXX";
    lsf_setup(empty, "batch\n");
    assert_null(fabric_environment_create("lsf"));
    expect_error(TH_ERR_VALUE, "no compute host", NULL);
    lsf_setup(file, "batch\nhost0\n");
    fabric__environment_fake_hostname("elsewhere");
    assert_null(fabric_environment_create("lsf"));
    expect_error(TH_ERR_VALUE, "elsewhere", "host0");
    fabric__environment_fake_hostname("host0");
    unsetenv("LSB_JOBID");
    assert_null(fabric_environment_create("lsf"));
    expect_error(TH_ERR_VALUE, "LSB_JOBID", NULL);
    set("LSB_JOBID", "7");
    fabric_environment *environment = fabric_environment_create("lsf");
    static const char *const names[] = {"JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_LOCAL_RANK"};
    for (int i = 0; i < 3; i++) unsetenv(names[i]);
    assert_int_equal(fabric_environment_world_size(environment), -1);
    expect_error(TH_ERR_VALUE, names[0], "jsrun");
    assert_int_equal(fabric_environment_global_rank(environment), -1);
    expect_error(TH_ERR_VALUE, names[1], "jsrun");
    assert_int_equal(fabric_environment_local_rank(environment), -1);
    expect_error(TH_ERR_VALUE, names[2], "jsrun");
    fabric_environment_free(environment);
    unlink(file);
    unlink(empty);
}

static void memory_runs_out(void **state)
{
    (void)state;
    char file[] = "/tmp/cfabric-rankfile-XXXXXX";
    lsf_setup(file, "batch\na\nb\nc\nd\ne\nf\ng\nh\ni\nj\n");
    fabric__environment_fake_hostname("j");
    static const char *const names[] = {"torchelastic", "slurm", "lsf", "lightning", "kubeflow"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fabric_environment *environment = NULL;
        for (long n = 1; environment == NULL; n++) {
            th__fail_allocation(n);
            environment = fabric_environment_create(names[i]);
            th__fail_allocation(0);
            if (environment != NULL) continue;
            expect_error(TH_ERR_MEMORY, NULL, NULL);
            assert_int_equal(th__objects_live(NULL), 0);
        }
        fabric_environment_free(environment);
    }
    unlink(file);
}

/* ---- kubeflow */

static void kubeflow(void **state)
{
    (void)state;
    assert_false(fabric_environment_detects("kubeflow"));
    expect_error(TH_ERR_NOT_IMPLEMENTED, "kubeflow", "detected");
    fabric_environment *environment = fabric_environment_create("kubeflow");
    assert_null(fabric_environment_main_address(environment));
    expect_error(TH_ERR_KEY, "MASTER_ADDR", NULL);
    assert_int_equal(fabric_environment_main_port(environment), -1);
    expect_error(TH_ERR_KEY, "MASTER_PORT", NULL);
    assert_int_equal(fabric_environment_world_size(environment), -1);
    expect_error(TH_ERR_KEY, "WORLD_SIZE", NULL);
    assert_int_equal(fabric_environment_global_rank(environment), -1);
    expect_error(TH_ERR_KEY, "'RANK'", NULL);
    set("MASTER_ADDR", "1.2.3.4");
    set("MASTER_PORT", "500");
    set("WORLD_SIZE", "20");
    set("RANK", "1");
    assert_string_equal(fabric_environment_main_address(environment), "1.2.3.4");
    assert_int_equal(fabric_environment_main_port(environment), 500);
    assert_int_equal(fabric_environment_world_size(environment), 20);
    assert_int_equal(fabric_environment_global_rank(environment), 1);
    assert_int_equal(fabric_environment_local_rank(environment), 0);
    assert_int_equal(fabric_environment_node_rank(environment), 1);
    fabric_environment_free(environment);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(torchelastic_defaults),
        TEST(torchelastic_variables),
        TEST(torchelastic_validation),
        TEST(slurm_defaults),
        TEST(slurm_variables),
        TEST(slurm_user_address_wins),
        TEST(slurm_bad_values),
        TEST(slurm_node_lists),
        TEST(slurm_ntasks_without_per_node),
        TEST(slurm_validation),
        TEST(slurm_contradicting_counts),
        TEST(slurm_settings),
        TEST(slurm_srun_hint),
        TEST(lsf_job),
        TEST(lsf_errors),
        TEST(memory_runs_out),
        TEST(kubeflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
