/* The launchers inside a program: "subprocess", "spawn", "fork". Semantics 24 to 26 and 29. */
#include "base/net.h"
#include "command.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static command c;

static void launch(const char *prefix, const char *arguments)
{
    char line[4096];
    snprintf(line, sizeof line, "env %s %s launch %s", prefix, RANK_PROGRAM, arguments);
    command_start(&c, line);
    command_wait(&c, 30);
}

static void expect(int code, const char *out, const char *err)
{
    if (c.code != code || c.seconds > 10 || (out != NULL && strstr(c.out, out) == NULL) ||
        (err != NULL && strstr(c.err, err) == NULL))
        fail_msg("code %d, expected %d, %.1f s; expected '%s' and '%s'\nout: %s\nerr: %s", c.code, code, c.seconds,
                 out ? out : "", err ? err : "", c.out, c.err);
    assert_int_equal(command_end(&c), 0);
}

static void starts_the_program_again(void **state)
{
    (void)state;
    launch("A=b", "subprocess 3");
    assert_int_equal(command_count(c.out, "goes on"), 3);
    assert_non_null(strstr(c.out, "rank 0 goes on"));
    assert_non_null(strstr(c.out, "rank 2 goes on"));
    expect(0, "rank 1 goes on", NULL);
    launch("CFABRIC_PROGRAM=/nonexistent", "subprocess 2"); /* no `fabric` to become: the supervisor runs in the program */
    assert_int_equal(command_count(c.out, "goes on"), 2);
    expect(0, "rank 1 goes on", NULL);
    launch("CFABRIC_PROGRAM=/bin/true", "subprocess 2"); /* another program of that name is not taken for it */
    assert_int_equal(command_count(c.out, "goes on"), 2);
    expect(0, "rank 0 goes on", NULL);
    launch("A=b", "subprocess 2 hello"); /* with a function each rank runs it */
    assert_non_null(strstr(c.out, "result: hello from rank 0 of 2"));
    expect(0, "result: hello from rank 1 of 2", NULL);
    launch("A=b", "subprocess 2 one two"); /* launched already: the second launch makes nothing new */
    assert_int_equal(command_count(c.out, "result: two from rank"), 2);
    expect(0, "result: one from rank 1 of 2", NULL);
}

static void joins_what_others_have_started(void **state)
{
    (void)state;
    launch("LOCAL_RANK=1 RANK=1 WORLD_SIZE=2", "subprocess 2 hello");
    assert_int_equal(command_count(c.out, "works"), 1);
    expect(0, "result: hello from rank 1 of 2", NULL);
    launch("TORCHELASTIC_RUN_ID=x LOCAL_RANK=0 RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1", "subprocess 2 hello");
    assert_int_equal(command_count(c.out, "works"), 1);
    expect(0, "result: hello from rank 0 of 2", NULL);
    launch("TORCHELASTIC_RUN_ID=x LOCAL_RANK=0 RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1",
           "subprocess 3"); /* sizes disagree */
    expect(1, NULL, "ValueError");
    launch("CFABRIC_LAUNCHER=subprocess LOCAL_RANK=0 RANK=0 WORLD_SIZE=2", "subprocess 3");
    expect(1, NULL, "this process is one of 2 that an earlier launch has made");
    launch("LOCAL_RANK=1", "spawn 2 hello");
    expect(1, NULL, "local rank 0");
}

static void tells_the_ranks(void **state)
{
    (void)state;
    launch("NODE_RANK=1 MASTER_ADDR=192.0.2.9 MASTER_PORT=777 WORLD_SIZE=9",
           "subprocess 2 hello"); /* left-over WORLD_SIZE is replaced */
    assert_non_null(strstr(c.err, "node 1 of 1"));
    assert_int_equal(c.code, 1);
    assert_int_equal(command_end(&c), 0);
    char line[1024];
    int port = th__net_free_port();
    snprintf(line, sizeof line,
             "%s __supervise 4 2 0 127.0.0.1 %d 1 %s x env RANK LOCAL_RANK WORLD_SIZE NODE_RANK MASTER_PORT "
             "TORCHELASTIC_RUN_ID",
             FABRIC, port, RANK_PROGRAM);
    command_start(&c, line);
    command_wait(&c, 10); /* 4 processes x 2 nodes */
    for (int i = 0; i < 4; i++) {
        char text[128];
        snprintf(text, sizeof text, "RANK=%d LOCAL_RANK=%d WORLD_SIZE=8 NODE_RANK=0 MASTER_PORT=%d TORCHELASTIC_RUN_ID=(unset)",
                 i, i, port);
        assert_non_null(strstr(c.out, text));
    }
    expect(0, NULL, NULL);
}

static void passes_failures_on(void **state)
{
    (void)state;
    launch("A=b", "subprocess 2 fail");
    expect(1, NULL, "fabric: rank 1 (pid ");
    launch("CFABRIC_PROGRAM=/nonexistent", "subprocess 2 die");
    expect(139, NULL, "was killed by signal 11");
    launch("MASTER_PORT=1x", "subprocess 2");
    expect(1, NULL, "MASTER_PORT");
    static const char *const launchers[] = {"spawn", "fork"};
    for (int i = 0; i < 2; i++) {
        char line[64];
        snprintf(line, sizeof line, "%s 2 fail", launchers[i]);
        launch("A=b", line);
        expect(1, NULL, "ValueError: work: no luck");
        snprintf(line, sizeof line, "%s 2 die", launchers[i]);
        launch("A=b", line);
        expect(1, NULL, "DistributedError: launch: rank 1 (pid");
        snprintf(line, sizeof line, "%s 2", launchers[i]);
        launch("A=b", line);
        expect(1, NULL, "TypeError");
    }
}

static void brings_results_back(void **state)
{
    (void)state;
    launch("A=b", "spawn 2 hello");
    assert_int_equal(command_count(c.out, "works"), 2);
    assert_int_equal(command_count(c.out, "result:"), 1);
    expect(0, "result: hello from rank 0 of 2", NULL);
    launch("A=b", "spawn 2 one two three"); /* later workers pass the earlier launches with their results */
    assert_int_equal(command_count(c.out, "works"), 6);
    assert_non_null(strstr(c.out, "result: one from rank 0 of 2"));
    assert_non_null(strstr(c.out, "result: two from rank 0 of 2"));
    expect(0, "result: three from rank 0 of 2", NULL);
    launch("A=b", "fork 2 one two");
    assert_int_equal(command_count(c.out, "works"), 4);
    assert_int_equal(command_count(c.out, "result:"), 2);
    expect(0, "result: two from rank 0 of 2", NULL);
}

/* BC-055 */
static void refuses_a_late_fork(void **state)
{
    (void)state;
    launch("TENSORS_RAN=1", "fork 2 hello");
    expect(1, NULL, "processes cannot be forked any more");
    launch("TENSORS_RAN=1", "spawn 2 hello");
    expect(0, "result: hello from rank 0 of 2", NULL);
}

static void knows_its_names(void **state)
{
    (void)state;
    launch("A=b", "subproces 2");
    expect(1, NULL, "launcher 'subproces' is not known; did you mean 'subprocess'? known: subprocess, spawn, fork");
    launch("A=b", "subprocess 0");
    expect(1, NULL, "ValueError");
}

static void survives_the_supervisor(void **state)
{
    (void)state;
    static const char *const lines[] = {" launch subprocess 2 sleep", " launch spawn 2 sleep", " launch fork 2 sleep"};
    for (int i = 0; i < 3; i++) {
        char line[512];
        snprintf(line, sizeof line, "%s%s", RANK_PROGRAM, lines[i]);
        command_start(&c, line);
        assert_true(command_says(&c, "rank 0 works", 10) && command_says(&c, "rank 1 works", 10));
        kill(c.pid, SIGKILL);
        command_wait(&c, 10);
        assert_int_equal(command_end(&c), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_the_program_again), cmocka_unit_test(joins_what_others_have_started),
        cmocka_unit_test(tells_the_ranks),          cmocka_unit_test(passes_failures_on),
        cmocka_unit_test(brings_results_back),      cmocka_unit_test(refuses_a_late_fork),
        cmocka_unit_test(knows_its_names),          cmocka_unit_test(survives_the_supervisor),
    };
    unsetenv("CFABRIC_ON_ERROR");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
