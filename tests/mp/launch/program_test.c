/* Programs on cfabric through both doors: started plainly and under `fabric run`. */
#include "command.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static command c;

static void run(const char *line)
{
    command_start(&c, line);
    command_wait(&c, 100);
}

static void expect(int code, const char *out, const char *err)
{
    if (c.code != code || (out != NULL && strstr(c.out, out) == NULL) || (err != NULL && strstr(c.err, err) == NULL))
        fail_msg("code %d, expected %d, %.1f s; expected '%s' and '%s'\nout: %s\nerr: %s", c.code, code, c.seconds,
                 out ? out : "", err ? err : "", c.out, c.err);
    assert_int_equal(command_end(&c), 0);
}

static void starts_itself_twice(void **state)
{
    (void)state;
    run(PROGRAM " plain");
    assert_int_equal(command_count(c.out, "rank 0 of 2: total 3"), 1);
    expect(0, "rank 1 of 2: total 3", NULL);
    run("env CFABRIC_PROGRAM=/nonexistent " PROGRAM " plain"); /* the supervisor stays in the program */
    expect(0, "rank 1 of 2: total 3", NULL);
}

static void runs_under_the_command_line(void **state)
{
    (void)state;
    run(FABRIC " run --accelerator cpu --devices 2 --strategy ddp " PROGRAM " run");
    assert_int_equal(command_count(c.out, "of 2: total 3"), 2);
    expect(0, NULL, NULL);
    run(FABRIC " run --devices 2 " PROGRAM " plain"); /* it launches: not under fabric run. And devices=2 agrees */
    expect(1, NULL, "was started by 'fabric run'");
    run(FABRIC " run " PROGRAM " plain"); /* --devices defaults to 1, the code says 2 */
    expect(1, NULL, "devices");
}

/* The settings are checked against the job although nothing is launched: upstream forgets that here. */
static void checks_the_size_of_the_job(void **state)
{
    (void)state;
    run(FABRIC " run --accelerator cpu --devices 2 env WORLD_SIZE=3 " PROGRAM " run");
    expect(1, NULL, "world");
}

static void brings_results_back(void **state)
{
    (void)state;
    run(PROGRAM " twice ddp_spawn");
    assert_non_null(strstr(c.out, "result 3\n"));
    assert_int_equal(command_count(c.out, "of 2: total 3"), 4);
    expect(0, "second result 3\n", NULL);
    run(PROGRAM " plain ddp_fork");
    assert_int_equal(command_count(c.out, "of 2: total 3"), 2);
    expect(0, "result 3\n", NULL);
}

/* BC-055 */
static void has_used_tensors_before(void **state)
{
    (void)state;
    run("env OMP_NUM_THREADS=2 " PROGRAM " tensors-first ddp");
    assert_int_equal(command_count(c.out, "of 2: total 3"), 2);
    expect(0, "sum 6537216", NULL);
    run("env OMP_NUM_THREADS=2 " PROGRAM " tensors-first ddp_spawn");
    expect(0, "result 3\n", NULL);
    run("env OMP_NUM_THREADS=2 " PROGRAM " tensors-first ddp_fork");
    expect(1, NULL, "processes cannot be forked any more");
    run("env OMP_NUM_THREADS=2 " PROGRAM " fork-late");
    assert_int_equal(command_count(c.out, "sum 6537216"), 2);
    expect(0, NULL, NULL);
}

/* A rank that fails before a collective ends the job; the last line says why. */
static void a_rank_fails(void **state)
{
    (void)state;
    static const char *const lines[] = {PROGRAM " error",
                                        FABRIC " run --devices 2 --accelerator cpu --strategy ddp " PROGRAM " run-error"};
    for (int i = 0; i < 2; i++) {
        char err[1 << 16];
        run(lines[i]);
        strcpy(err, c.err);
        const char *last = command_last_line(err);
        if (strstr(last, "fabric: rank 1 (pid ") == NULL || strstr(last, "exited with code 1: ValueError") == NULL ||
            strstr(last, "rank 1 does not like its data") == NULL)
            fail_msg("last line: %s", last);
        expect(1, NULL, NULL);
    }
    run(PROGRAM " crash");
    expect(134, NULL, "was killed by signal 6");
    run(PROGRAM " error ddp_spawn");
    expect(1, NULL, "rank 1 does not like its data");
    run(PROGRAM " error ddp_fork");
    expect(1, NULL, "rank 1 does not like its data");
}

/* BC-037 */
static void shares_the_processors(void **state)
{
    (void)state;
    unsetenv("OMP_NUM_THREADS");
    run("taskset -c 0 " PROGRAM " plain");
    assert_int_equal(command_count(c.out, "threads 1\n"), 2);
    expect(0, NULL, NULL);
    if (sysconf(_SC_NPROCESSORS_ONLN) >= 2) { /* the user's choice stands (MKL never takes more than there are) */
        run("env OMP_NUM_THREADS=2 " PROGRAM " plain");
        assert_int_equal(command_count(c.out, "threads 2\n"), 2);
        expect(0, NULL, NULL);
    }
    run("taskset -c 0 " PROGRAM " plain ddp_fork");
    assert_int_equal(command_count(c.out, "threads 1\n"), 2);
    expect(0, NULL, NULL);
}

/* BC-019 */
static void jobs_run_side_by_side(void **state)
{
    (void)state;
    static command jobs[4];
    for (int i = 0; i < 4; i++)
        command_start(&jobs[i], i % 2 == 0 ? PROGRAM " plain" : FABRIC " run --devices 2 " PROGRAM " run");
    for (int i = 0; i < 4; i++) {
        command_wait(&jobs[i], 100);
        if (jobs[i].code != 0 || command_count(jobs[i].out, "of 2: total 3") != 2)
            fail_msg("job %d: code %d\n%s%s", i, jobs[i].code, jobs[i].out, jobs[i].err);
        assert_int_equal(command_end(&jobs[i]), 0);
    }
}

/* BC-043: neither the host's name nor a network is needed on one machine. */
static void needs_no_network(void **state)
{
    (void)state;
    if (system("unshare -u -n sh -c 'hostname bogus-xyz && ip link set lo up' >/dev/null 2>&1") != 0) {
        print_message("skipped: no namespaces of its own on this machine (unshare, hostname and ip are needed)\n");
        return;
    }
    run("unshare -u -n sh -c 'hostname bogus-xyz; ip link set lo up; exec " PROGRAM " plain'");
    assert_int_equal(command_count(c.out, "of 2: total 3"), 2);
    expect(0, NULL, NULL);
}

static void the_doctor_reports(void **state)
{
    (void)state;
    run(FABRIC " doctor");
    static const char *const words[] = {"cfabric",
                                        "processors",
                                        "libtorch",
                                        "built with",
                                        "BLAS",
                                        "threads",
                                        "devices          cpu",
                                        "backends         gloo",
                                        "first operator   ran",
                                        "environment"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(c.out, words[i]) == NULL) fail_msg("'%s' is missing in: %s%s", words[i], c.out, c.err);
    expect(0, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_itself_twice),        cmocka_unit_test(runs_under_the_command_line),
        cmocka_unit_test(checks_the_size_of_the_job), cmocka_unit_test(brings_results_back),
        cmocka_unit_test(has_used_tensors_before),    cmocka_unit_test(a_rank_fails),
        cmocka_unit_test(shares_the_processors),      cmocka_unit_test(jobs_run_side_by_side),
        cmocka_unit_test(needs_no_network),           cmocka_unit_test(the_doctor_reports),
    };
    unsetenv("CFABRIC_ON_ERROR");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
