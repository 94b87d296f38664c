/* Failure injection: whatever happens to a rank or to the supervisor, the job ends soon, says why, and leaves nothing. BC-020. */
#include "base/net.h"
#include "command.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define RANK " " RANK_PROGRAM " "
static command c;

static void begin(const char *arguments)
{
    char line[4096];
    snprintf(line, sizeof line, "%s run %s", FABRIC, arguments);
    command_start(&c, line);
}

static void run(const char *arguments)
{
    begin(arguments);
    command_wait(&c, 30);
}

/* The code, within 5 s, and a last line with all of `parts`. */
static void expect(int code, const char *part1, const char *part2)
{
    char err[1 << 16];
    strcpy(err, c.err);
    const char *last = command_last_line(err);
    if (c.code != code || c.seconds >= 5 || strstr(last, part1) == NULL || strstr(last, part2) == NULL)
        fail_msg("code %d (expected %d) after %.2f s\nlast line: %s\nexpected: %s %s\nall: %s", c.code, code, c.seconds, last,
                 part1, part2, c.err);
    assert_int_equal(command_end(&c), 0);
}

static void a_rank_exits(void **state)
{
    (void)state;
    run("--devices 2" RANK "exit 1 7");
    expect(7, "fabric: rank 1 (pid ", "exited with code 7");
    run("--devices 3" RANK "exit 0 255");
    expect(255, "rank 0 (pid ", "exited with code 255");
}

static void a_rank_crashes(void **state)
{
    (void)state;
    run("--devices 2" RANK "signal 1 11");
    expect(139, "rank 1 (pid ", "was killed by signal 11 (Segmentation fault)");
    run("--devices 2" RANK "abort 0");
    expect(134, "rank 0 (pid ", "was killed by signal 6 (Aborted)");
    run("--devices 2" RANK "signal 1 9");
    expect(137, "rank 1 (pid ", "killed by signal 9");
}

static void the_others_do_not_want_to_end(void **state)
{
    (void)state;
    run("--devices 3" RANK "stubborn 1 9");
    assert_true(c.seconds > 2.5); /* they had their time to end by themselves */
    expect(9, "rank 1", "code 9");
}

static void the_cause_is_the_last_line(void **state)
{
    (void)state;
    run("--devices 2" RANK "error 1"); /* rank 0 complains too, about its peer */
    expect(1, "rank 1", "ValueError: th_linear: the weight is 3 x 4, expected 3 x 5");
    run("--devices 4" RANK "error 0");
    expect(1, "rank 0", "ValueError: th_linear");
    run("--devices 2 --log-dir log"
        " /bin/sh -c 'echo first; echo the reason >&2; exit 4'"); /* not a program of ours: its last words */
    expect(4, "exited with code 4", "the reason");
}

static void signals_are_relayed(void **state)
{
    (void)state;
    static const struct {
        int signal, code;
    } cases[] = {{SIGINT, 130}, {SIGTERM, 143}, {SIGHUP, 129}};
    for (int i = 0; i < 3; i++) {
        char text[32];
        begin("--devices 2" RANK "trap 3");
        assert_true(command_says(&c, "rank 0 ready", 10) && command_says(&c, "rank 1 ready", 10));
        kill(c.pid, cases[i].signal);
        command_wait(&c, 20);
        snprintf(text, sizeof text, "caught %d", cases[i].signal);
        assert_int_equal(command_count(c.out, text), 2);
        expect(cases[i].code, "fabric: ended by signal", "");
    }
    begin("--devices 2" RANK "trap 0"); /* ranks that end well on request make a good end */
    assert_true(command_says(&c, "rank 0 ready", 10) && command_says(&c, "rank 1 ready", 10));
    kill(c.pid, SIGTERM);
    command_wait(&c, 20);
    expect(0, "", "");
    begin("--devices 1" RANK "trap 0"); /* passed on without ending anything */
    assert_true(command_says(&c, "rank 0 ready", 10));
    kill(c.pid, SIGUSR1);
    command_wait(&c, 20);
    expect(0, "", "");
}

static void a_second_request_is_final(void **state)
{
    (void)state;
    begin("--devices 2" RANK "stubborn 5 0");
    assert_true(command_says(&c, "rank 0 ready", 10) && command_says(&c, "rank 1 ready", 10));
    kill(c.pid, SIGINT);
    usleep(300000);
    assert_int_equal(waitpid(c.pid, NULL, WNOHANG), 0);
    kill(c.pid, SIGINT);
    command_wait(&c, 20);
    expect(130, "ended by signal 2", "");
}

static void patience_can_be_set(void **state)
{
    (void)state;
    setenv("CFABRIC_GRACE_SECONDS", "1", 1);
    begin("--devices 2" RANK "stubborn 5 0");
    assert_true(command_says(&c, "rank 0 ready", 10) && command_says(&c, "rank 1 ready", 10));
    kill(c.pid, SIGTERM);
    command_wait(&c, 20);
    expect(143, "ended by signal 15", "");
    setenv("CFABRIC_GRACE_SECONDS", "soon", 1);
    run(RANK "ok");
    expect(1, "CFABRIC_GRACE_SECONDS", "soon");
    unsetenv("CFABRIC_GRACE_SECONDS");
}

static void ignored_signals_stay_ignored(void **state)
{
    (void)state;
    command_start(&c, "sh -c 'trap \"\" HUP; exec " FABRIC " run --devices 1" RANK "trap 0'"); /* as nohup does */
    assert_true(command_says(&c, "rank 0 ready", 10));
    kill(c.pid, SIGHUP);
    usleep(200000);
    assert_int_equal(waitpid(c.pid, NULL, WNOHANG), 0);
    kill(c.pid, SIGTERM);
    command_wait(&c, 10);
    expect(0, "", "");
}

static void the_supervisor_is_killed(void **state)
{
    (void)state;
    begin("--devices 2" RANK "chain"); /* ranks with children and grandchildren */
    assert_true(command_says(&c, "rank 0 ready", 10) && command_says(&c, "rank 1 ready", 10));
    assert_true(command_processes(&c, 0) >= 7);
    kill(c.pid, SIGKILL);
    command_wait(&c, 10);
    assert_int_equal(c.code, 137);
    assert_int_equal(command_end(&c), 0);
    begin("--devices 2 --log-dir log --tee" RANK "stubborn 7 0");
    assert_true(command_says(&c, "rank 0] rank 0 ready", 10) && command_says(&c, "rank 1] rank 1 ready", 10));
    kill(c.pid, SIGKILL);
    command_wait(&c, 10);
    assert_int_equal(command_end(&c), 0);
}

static void a_rank_has_children(void **state)
{
    (void)state;
    begin("--devices 2" RANK "chain");
    assert_true(command_says(&c, "rank 0 ready", 10) && command_says(&c, "rank 1 ready", 10));
    kill(c.pid, SIGTERM);
    command_wait(&c, 10);
    expect(143, "ended by signal 15", "");
    run("--devices 2 /bin/sh -c 'sleep 100 & sleep 101 & exit $RANK'"); /* ends and leaves its children */
    expect(1, "rank 1", "code 1");
    run("--devices 2 /bin/sh -c 'sleep 100 & exit 0'");
    expect(0, "", "");
}

static void a_rank_is_stopped(void **state)
{
    (void)state;
    run("--devices 2 /bin/sh -c '[ $RANK = 0 ] && kill -STOP $$; sleep 0.3; exit 6'");
    expect(6, "rank 1", "code 6");
}

static void restarts_the_group(void **state)
{
    (void)state;
    run("--devices 2 --max-restarts 3" RANK "restart 2");
    assert_int_equal(command_count(c.err, "restarting all ranks"), 2);
    assert_non_null(strstr(c.err, "exited with code 5; restarting all ranks (1 of 3)"));
    assert_non_null(strstr(c.err, "restarting all ranks (2 of 3)"));
    assert_int_equal(c.code, 0);
    assert_int_equal(command_end(&c), 0);
    run("--devices 2 --max-restarts 1" RANK "restart 2");
    assert_int_equal(command_count(c.err, "restarting all ranks"), 1);
    expect(5, "rank 1", "code 5");
    char line[256];
    snprintf(line, sizeof line, "--devices 2 --max-restarts 2 --main-port %d" RANK "restart 1", th__net_free_port());
    run(line); /* the same port again at once */
    assert_int_equal(c.code, 0);
    assert_int_equal(command_end(&c), 0);
    run("--devices 1 --max-restarts 1 --log-dir log" RANK "env TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS");
    assert_int_equal(c.code, 0);
    assert_int_equal(command_end(&c), 0);
    begin("--devices 2 --max-restarts 100" RANK "trap 1"); /* asked to end: no restart */
    assert_true(command_says(&c, "rank 0 ready", 10) && command_says(&c, "rank 1 ready", 10));
    kill(c.pid, SIGTERM);
    command_wait(&c, 20);
    assert_null(strstr(c.err, "restarting"));
    expect(143, "ended by signal 15", "");
}

static void the_reader_goes_away(void **state)
{
    (void)state;
    command_start(&c, "sh -c '" FABRIC " run --devices 2 --log-dir log --tee" RANK "write 3000 2>log/e | head -1'");
    command_wait(&c, 20);
    assert_int_equal(c.code, 0);
    assert_int_equal(command_count(c.out, "\n"), 1);
    assert_int_equal(command_end(&c), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_exits),
        cmocka_unit_test(a_rank_crashes),
        cmocka_unit_test(the_others_do_not_want_to_end),
        cmocka_unit_test(the_cause_is_the_last_line),
        cmocka_unit_test(signals_are_relayed),
        cmocka_unit_test(a_second_request_is_final),
        cmocka_unit_test(patience_can_be_set),
        cmocka_unit_test(ignored_signals_stay_ignored),
        cmocka_unit_test(the_supervisor_is_killed),
        cmocka_unit_test(a_rank_has_children),
        cmocka_unit_test(a_rank_is_stopped),
        cmocka_unit_test(restarts_the_group),
        cmocka_unit_test(the_reader_goes_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
