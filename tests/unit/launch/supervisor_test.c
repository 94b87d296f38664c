/* The supervisor as a library: environments of ranks, what an outcome says, late forks, the registry of launchers. */
#include "base/env.h"
#include "base/error.h"
#include "launch/internal.h"
#include "launch/launchers.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static const char *value_of(const th__strings *env, const char *name)
{
    size_t length = strlen(name), found = 0;
    const char *value = NULL;
    for (size_t i = 0; i < env->count; i++)
        if (strncmp(env->items[i], name, length) == 0 && env->items[i][length] == '=')
            value = env->items[i] + length + 1, found++;
    assert_true(found <= 1);
    return value;
}

/* Semantics 24: 4 processes x 2 nodes. */
static void makes_a_ranks_environment(void **state)
{
    (void)state;
    const char *const extra[] = {"MINE=1", NULL};
    fabric__job job = {.local_processes = 4,
                       .num_nodes = 2,
                       .node_rank = 1,
                       .main_address = "10.0.0.1",
                       .launcher = "run",
                       .run_id = "x",
                       .max_restarts = 3,
                       .extra_env = extra};
    th__env_set("RANK", "77"); /* what is there already is replaced */
    th__env_set("TORCHELASTIC_USE_AGENT_STORE", "True");
    th__env_unset("OMP_NUM_THREADS");
    th__strings env = {0};
    assert_int_equal(fabric__rank_environment(&env, &job, 3, 4711, 2, 9), TH_OK);
    static const char *const expected[][2] = {{"RANK", "7"},
                                              {"LOCAL_RANK", "3"},
                                              {"WORLD_SIZE", "8"},
                                              {"LOCAL_WORLD_SIZE", "4"},
                                              {"GROUP_RANK", "1"},
                                              {"NODE_RANK", "1"},
                                              {"MASTER_ADDR", "10.0.0.1"},
                                              {"MASTER_PORT", "4711"},
                                              {"TORCHELASTIC_RUN_ID", "x"},
                                              {"TORCHELASTIC_RESTART_COUNT", "2"},
                                              {"TORCHELASTIC_MAX_RESTARTS", "3"},
                                              {"MINE", "1"},
                                              {"CFABRIC_LAUNCHER", "run"}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_string_equal(value_of(&env, expected[i][0]), expected[i][1]);
    assert_null(value_of(&env, "TORCHELASTIC_USE_AGENT_STORE"));
    assert_non_null(value_of(&env, "OMP_NUM_THREADS"));
    assert_non_null(strstr(value_of(&env, "CFABRIC_ERROR_FILE"), "/fd/9"));
    assert_non_null(value_of(&env, "PATH"));
    th__strings_free(&env);
    job.run_id = NULL;
    th__env_set("OMP_NUM_THREADS", "5");
    assert_int_equal(fabric__rank_environment(&env, &job, 0, 4711, 0, -1), TH_OK);
    assert_null(value_of(&env, "TORCHELASTIC_RUN_ID"));
    assert_null(value_of(&env, "CFABRIC_ERROR_FILE"));
    assert_string_equal(value_of(&env, "OMP_NUM_THREADS"), "5");
    th__strings_free(&env);
    th__env_unset("RANK");
    th__env_unset("TORCHELASTIC_USE_AGENT_STORE");
}

static void expect_text(fabric__outcome outcome, const char *expected)
{
    char text[256];
    fabric__outcome_text(&outcome, text, sizeof text);
    assert_string_equal(text, expected);
}

static void says_what_happened(void **state)
{
    (void)state;
    expect_text((fabric__outcome){.rank = 1, .pid = 42, .code = 7, .error = "ValueError: x"},
                "rank 1 (pid 42) exited with code 7: ValueError: x");
    expect_text((fabric__outcome){.rank = 0, .pid = 42, .code = 139, .signal = SIGSEGV},
                "rank 0 (pid 42) was killed by signal 11 (Segmentation fault)");
    expect_text((fabric__outcome){.rank = -1, .relayed = SIGINT, .code = 130}, "ended by signal 2 (Interrupt)");
}

static int code_of_rank(void *user, int local_rank)
{
    const int *codes = user;
    if (codes[local_rank] < 0) raise(-codes[local_rank]);
    return codes[local_rank];
}

static void supervises_bodies(void **state)
{
    (void)state;
    int codes[] = {0, 0, 9};
    void (*before)(int) = signal(SIGUSR2, SIG_IGN);
    fabric__job job = {.local_processes = 3, .num_nodes = 1, .launcher = "fork", .body = code_of_rank, .user = codes};
    fabric__outcome outcome;
    assert_int_equal(fabric__supervise(&job, &outcome), TH_OK);
    assert_int_equal(outcome.code, 9);
    assert_int_equal(outcome.rank, 2);
    assert_true(outcome.pid > 0);
    codes[2] = 0;
    assert_int_equal(fabric__supervise(&job, &outcome), TH_OK);
    assert_int_equal(outcome.code, 0);
    assert_int_equal(outcome.rank, -1);
    codes[1] = -SIGKILL;
    assert_int_equal(fabric__supervise(&job, &outcome), TH_OK);
    assert_int_equal(outcome.code, 137);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody is left, not even a zombie */
    struct sigaction action;
    sigaction(SIGTERM, NULL, &action); /* handlers are back */
    assert_true(action.sa_handler == SIG_DFL);
    assert_true(signal(SIGUSR2, before) == SIG_IGN);
    job.local_processes = 0;
    assert_int_equal(fabric__supervise(&job, &outcome), TH_ERR_VALUE);
    th_error_clear();
    job.local_processes = 1;
    job.node_rank = 1;
    assert_int_equal(fabric__supervise(&job, &outcome), TH_ERR_VALUE);
    th_error_clear();
    job.node_rank = 0;
    job.program = "/no/such/program";
    char name[] = "x", *argv[] = {name, NULL};
    job.argv = argv;
    assert_int_equal(fabric__supervise(&job, &outcome), TH_ERR_RUNTIME);
    assert_non_null(strstr(th_error_message(), "/no/such/program: No such file or directory"));
    th_error_clear();
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static bool tensors_ran_answer;
static bool tensors_ran(void) { return tensors_ran_answer; }

/* BC-055: the child of a late fork gets errors, not a hang; and its error cannot be cleared. */
static void makes_late_forks_an_error(void **state)
{
    (void)state;
    fabric__fork_guard_install(tensors_ran);
    for (int late = 0; late < 2; late++) {
        tensors_ran_answer = late == 1;
        int status;
        pid_t child = fork();
        if (child == 0) {
            bool forked = th_error() == TH_ERR_FORKED && strstr(th_error_message(), "forked after libtorch had run") != NULL;
            th_error_clear();
            _exit(forked ? 10 + (th_error() == TH_ERR_FORKED) : th_error() == TH_OK ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(WEXITSTATUS(status), late == 1 ? 11 : 0);
        assert_int_equal(th_error(), TH_OK); /* the parent is well */
    }
}

static void leaves_its_error_for_the_supervisor(void **state)
{
    (void)state;
    char path[64], text[256] = "";
    int fd = fabric__result_open();
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getpid(), fd);
    th__env_set("CFABRIC_ERROR_FILE", path);
    th__fail(TH_ERR_VALUE, "th_linear_call", "line one\nline two");
    assert_true(pread(fd, text, sizeof text - 1, 0) > 0);
    assert_string_equal(text, "ValueError: th_linear: line one line two");
    th__saved_error saved;
    th__error_suspend(&saved);
    th__error_resume(&saved);
    assert_true(pread(fd, text, sizeof text - 1, 0) > 20);
    th_error_clear();
    assert_int_equal(pread(fd, text, sizeof text - 1, 0), 0); /* a cleared error is no cause of anything */
    th__env_unset("CFABRIC_ERROR_FILE");
    close(fd);
}

static th_status nothing(const fabric_launch_request *request, fabric_launch_result *result)
{
    (void)request;
    (void)result;
    return TH_OK;
}

static void keeps_a_registry(void **state)
{
    (void)state;
    static const fabric_launcher_ops mine = {.size = sizeof mine, .name = "mine", .launch = nothing};
    static const fabric_launcher_ops broken = {.size = sizeof broken, .name = "broken"};
    const char *names[8];
    assert_int_equal(fabric_launcher_list(names, 8), 3);
    assert_string_equal(names[0], "subprocess");
    assert_int_equal(fabric_launcher_register(&mine, false), TH_OK);
    assert_int_equal(fabric_launcher_register(&mine, false), TH_ERR_VALUE);
    th_error_clear();
    assert_ptr_equal(fabric_launcher_find("mine"), &mine);
    fabric_launch_request request = {
        .size = sizeof request, .num_processes = 2, .num_nodes = 1, .environment = fabric_environment_detect()};
    assert_int_equal(fabric_launcher_launch("mine", &request, NULL), TH_OK);
    request.num_processes = 0;
    assert_int_equal(fabric_launcher_launch("mine", &request, NULL), TH_ERR_VALUE);
    th_error_clear();
    fabric_environment_free(request.environment);
    assert_int_equal(fabric_launcher_unregister("mine"), TH_OK);
    assert_int_equal(fabric_launcher_register(&broken, false), TH_ERR_VALUE);
    th_error_clear();
    assert_null(fabric_launcher_find("mine"));
    assert_int_equal(th_error_clear(), TH_ERR_KEY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makes_a_ranks_environment),
        cmocka_unit_test(says_what_happened),
        cmocka_unit_test(supervises_bodies),
        cmocka_unit_test(makes_late_forks_an_error),
        cmocka_unit_test(leaves_its_error_for_the_supervisor),
        cmocka_unit_test(keeps_a_registry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
