/* `fabric run`: options, what the ranks are told, output, stdin, ports. */
#include "base/net.h"
#include "command.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static command c;

static void run(const char *arguments)
{
    char line[4096];
    snprintf(line, sizeof line, "%s run %s", FABRIC, arguments);
    command_start(&c, line);
    command_wait(&c, 30);
}

#define RANK " " RANK_PROGRAM " "
static void expect(int code, const char *out, const char *err)
{
    if (c.code != code || (out != NULL && strstr(c.out, out) == NULL) || (err != NULL && strstr(c.err, err) == NULL))
        fail_msg("code %d, expected %d; expected '%s' and '%s'\nout: %s\nerr: %s", c.code, code, out ? out : "", err ? err : "",
                 c.out, c.err);
    assert_int_equal(command_end(&c), 0);
}

/* Semantics 20. */
static void tells_a_single_rank(void **state)
{
    (void)state;
    char line[512], expected[256];
    int port = th__net_free_port();
    run(RANK "env LT_CLI_USED LT_DEVICES LT_NUM_NODES LT_ACCELERATOR LT_STRATEGY LT_PRECISION");
    expect(0, "LT_CLI_USED=1 LT_DEVICES=1 LT_NUM_NODES=1 LT_ACCELERATOR=(unset) LT_STRATEGY=(unset) LT_PRECISION=(unset)", NULL);
    snprintf(line, sizeof line,
             "--main-port %d" RANK "env RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK "
             "MASTER_ADDR MASTER_PORT",
             port);
    snprintf(expected, sizeof expected,
             "RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 LOCAL_WORLD_SIZE=1 GROUP_RANK=0 NODE_RANK=0 "
             "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d ",
             port);
    run(line);
    expect(0, expected, NULL);
    run(RANK "env TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_USE_AGENT_STORE");
    expect(0,
           "TORCHELASTIC_RUN_ID=cfabric TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 "
           "TORCHELASTIC_USE_AGENT_STORE=(unset)",
           NULL);
}

static void tells_several_ranks_on_several_nodes(void **state)
{
    (void)state;
    run("--devices 2 --num_nodes=3 --node-rank 1 --main_address 192.0.2.7 --main-port 4711 --accelerator cpu --strategy=ddp "
        "--precision bf16-mixed" RANK
        "env WORLD_SIZE GROUP_RANK LOCAL_RANK MASTER_ADDR MASTER_PORT LT_ACCELERATOR LT_STRATEGY LT_PRECISION "
        "LT_NUM_NODES LT_DEVICES");
    const char *rest =
        "MASTER_ADDR=192.0.2.7 MASTER_PORT=4711 LT_ACCELERATOR=cpu LT_STRATEGY=ddp LT_PRECISION=bf16-mixed LT_NUM_NODES=3 "
        "LT_DEVICES=2";
    assert_non_null(strstr(c.out, "rank 2 WORLD_SIZE=6 GROUP_RANK=1 LOCAL_RANK=0"));
    assert_non_null(strstr(c.out, "rank 3 WORLD_SIZE=6 GROUP_RANK=1 LOCAL_RANK=1"));
    expect(0, rest, NULL);
}

static void divides_the_threads(void **state)
{
    (void)state;
    unsetenv("OMP_NUM_THREADS");
    run("--devices 64" RANK "env OMP_NUM_THREADS");
    assert_int_equal(command_count(c.out, "OMP_NUM_THREADS=1 "), 64);
    expect(0, NULL, NULL);
    setenv("OMP_NUM_THREADS", "3", 1);
    run("--devices 2" RANK "env OMP_NUM_THREADS");
    assert_int_equal(command_count(c.out, "OMP_NUM_THREADS=3 "), 2);
    expect(0, NULL, NULL);
    unsetenv("OMP_NUM_THREADS");
}

static void takes_options_anywhere(void **state)
{
    (void)state;
    run(RANK "args one --devices=2 --lr 0.1 -x -- --devices 7 --help");
    assert_int_equal(command_count(c.out, "args one --lr 0.1 -x --devices 7 --help\n"), 2);
    expect(0, NULL, NULL);
    run("--unknown=3 --devices 1 -- /bin/echo args --strategy nonsense");
    expect(0, "--unknown=3 args --strategy nonsense\n", NULL);
}

/* Semantics 22 and the errors of the command line. */
static void refuses_what_is_wrong(void **state)
{
    (void)state;
    static const char *const hidden[] = {"ddp_spawn", "ddp_fork", "ddp_notebook",    "deepspeed_stage_3_offload",
                                         "auto",      "xla",      "fsdp_cpu_offload"};
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        char line[128];
        snprintf(line, sizeof line, "--strategy %s" RANK "ok", hidden[i]);
        run(line);
        expect(2, NULL, "Invalid value for '--strategy'");
    }
    run("--strategy dpp" RANK "ok");
    expect(2, NULL, "Did you mean 'ddp'?");
    run("--accelerator CPU" RANK "ok");
    expect(2, NULL, "Did you mean 'cpu'?");
    run("--precision 8" RANK "ok");
    expect(2, NULL, "Invalid value for '--precision'");
    run("");
    expect(2, NULL, "Missing argument 'PROGRAM'");
    run("--devices");
    expect(2, NULL, "Option '--devices' requires an argument");
    run("--num-nodes two" RANK "ok");
    expect(2, NULL, "'two' is not a whole number");
    run("--num-nodes 2 --node-rank 2" RANK "ok");
    expect(2, NULL, "Invalid value for '--node-rank'");
    run("--main-port 70000" RANK "ok");
    expect(2, NULL, "Invalid value for '--main-port'");
    run("--tee" RANK "ok");
    expect(2, NULL, "needs '--log-dir'");
    run("./missing");
    expect(2, NULL, "'./missing' does not exist");
    run("/tmp");
    expect(2, NULL, "'/tmp' is not a file");
    run("/etc/passwd");
    expect(126, NULL, "'/etc/passwd' is not executable");
    run("--accelerator tpu" RANK "ok");
    expect(1, NULL, "'tpu' cannot be launched");
    run("--accelerator cpu --devices -1" RANK "ok");
    expect(1, NULL, "devices='-1'");
    run("--accelerator cpu --devices 0" RANK "ok");
    expect(1, NULL, "devices='0' selects no device");
}

static void refuses_what_is_no_program(void **state)
{
    (void)state;
    command_start(&c, "sh -c 'echo text >p; chmod +x p; " FABRIC " run ./p; r=$?; rm p; exit $r'");
    command_wait(&c, 10);
    expect(1, NULL, "'./p' is not a program");
    command_start(&c, "sh -c 'printf \"#!/no/such/interpreter\\n\" >p; chmod +x p; " FABRIC " run p; r=$?; rm p; exit $r'");
    command_wait(&c, 10);
    expect(1, NULL, "interpreter");
}

/* Semantics 21, with a driver that pretends. */
static void counts_gpus(void **state)
{
    (void)state;
    static const struct {
        const char *gpus, *options;
        int processes;
    } cases[] = {{"5", "--devices '0,'", 1},
                 {"5", "--devices 1,0,2", 3},
                 {"5", "--devices -1", 5},
                 {"5", "--accelerator gpu --devices 3", 3},
                 {"5", "--accelerator cuda --devices auto", 1},
                 {"5", "--strategy dp --devices 4", 1},
                 {"5", "--accelerator cpu --devices 2", 2},
                 {"0", "--devices 3", 3},
                 {"0", "--devices auto", 1}};
    setenv("LD_LIBRARY_PATH", FAKE_DRIVER, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[256], world[64];
        setenv("FAKE_CUDA_COUNT", cases[i].gpus, 1);
        snprintf(line, sizeof line, "%s" RANK "env WORLD_SIZE", cases[i].options);
        snprintf(world, sizeof world, "WORLD_SIZE=%d ", cases[i].processes);
        run(line);
        assert_int_equal(command_count(c.out, world), cases[i].processes);
        expect(0, NULL, NULL);
    }
    setenv("FAKE_CUDA_COUNT", "2", 1);
    run("--accelerator cuda --devices 3" RANK "ok");
    expect(1, NULL, "only has: [0, 1]");
    run("--accelerator cuda --devices 1,1" RANK "ok");
    expect(1, NULL, "names GPU 1 twice");
    setenv("FAKE_CUDA_COUNT", "0", 1);
    run("--accelerator gpu" RANK "ok");
    expect(1, NULL, "accelerator 'gpu' was asked for, but this machine has none");
    run("--devices auto" RANK "env LT_DEVICES");
    expect(0, "LT_DEVICES=1 ", NULL);
    unsetenv("LD_LIBRARY_PATH");
    unsetenv("FAKE_CUDA_COUNT");
}

static void hands_stdin_to_rank_0(void **state)
{
    (void)state;
    command_start(&c, "sh -c 'printf 12345 | " FABRIC " run --devices 2" RANK "read'");
    command_wait(&c, 10);
    assert_non_null(strstr(c.out, "rank 1 read 0"));
    expect(0, "rank 0 read 5", NULL);
    command_start(&c, FABRIC " run --devices 2" RANK "read <&-"); /* closed */
    command_wait(&c, 10);
    assert_non_null(strstr(c.out, "rank 1 read 0"));
    expect(0, "rank 0 read 0", NULL);
    command_start(&c, FABRIC " run --devices 2" RANK "meet <&- >&- 2>&-");
    command_wait(&c, 10);
    expect(0, NULL, NULL);
}

static char *file_text(const char *name)
{
    static char text[1 << 16];
    char path[256];
    snprintf(path, sizeof path, "%s/%s", c.folder, name);
    FILE *file = fopen(path, "r");
    text[file != NULL ? fread(text, 1, sizeof text - 1, file) : 0] = '\0';
    if (file != NULL) fclose(file);
    return text;
}

static void writes_logs(void **state)
{
    (void)state;
    run("--devices 2 --log-dir log/ranks/deep" RANK "write 2");
    assert_string_equal(c.out, "");
    assert_string_equal(c.err, "");
    assert_string_equal(file_text("log/ranks/deep/rank_0.log") + 0, "stderr of rank 0line 0 of rank 0\nline 1 of rank 0\n");
    assert_non_null(strstr(file_text("log/ranks/deep/rank_1.log"), "line 1 of rank 1"));
    expect(0, NULL, NULL);
    run("--devices 2 --log-dir log/ranks --tee" RANK "write 300");
    assert_int_equal(command_count(c.out, "\n"), 600);
    assert_int_equal(command_count(c.out, "[rank 0] line "), 300);
    assert_int_equal(command_count(c.out, "[rank 1] line "), 300);
    assert_int_equal(command_count(file_text("log/ranks/rank_1.log"), "\n"), 300);
    assert_non_null(strstr(file_text("log/ranks/rank_1.log"), "stderr of rank 1"));
    assert_non_null(strstr(c.err, "[rank 1] stderr of rank 1"));
    expect(0, "[rank 1] line 299 of rank 1\n", "[rank 0] stderr of rank 0");
    run("--log-dir /dev/null/x" RANK "ok");
    expect(1, NULL, "/dev/null");
}

/* BC-019 */
static void names_a_port_that_is_taken(void **state)
{
    (void)state;
    th__port_hold hold;
    int port = th__net_hold_free_port(&hold);
    char line[256], text[64];
    snprintf(line, sizeof line, "--devices 2 --main-port %d" RANK "meet", port);
    snprintf(text, sizeof text, "port %d on 127.0.0.1 is taken", port);
    run(line);
    assert_true(c.seconds < 2);
    expect(1, NULL, text);
    th__net_release_port(&hold);
    run(line);
    expect(0, NULL, NULL);
    bool held = th__net_hold_port(29400, &hold); /* the default gives way */
    run("--devices 2" RANK "meet");
    expect(0, NULL, NULL);
    if (held) th__net_release_port(&hold);
}

static void runs_eight_jobs_side_by_side(void **state)
{
    (void)state;
    static command jobs[8];
    for (int i = 0; i < 8; i++) command_start(&jobs[i], FABRIC " run --devices 2" RANK "meet");
    for (int i = 0; i < 8; i++) {
        command_wait(&jobs[i], 30);
        if (jobs[i].code != 0) fail_msg("job %d: code %d, %s", i, jobs[i].code, jobs[i].err);
        assert_int_equal(command_end(&jobs[i]), 0);
    }
}

static void launches_twenty_times_in_a_row(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        run("--devices 2" RANK "meet");
        expect(0, NULL, NULL);
    }
}

static void has_help_and_version(void **state)
{
    (void)state;
    run("--help");
    assert_int_equal(strncmp(c.out, "Usage: fabric run [OPTIONS] PROGRAM [PROGRAM_ARGS]...", 53), 0);
    static const char *const words[] = {"--accelerator",  "--strategy",     "--devices",   "--num-nodes",
                                        "--node-rank",    "--main-address", "--main-port", "--precision",
                                        "--max-restarts", "--log-dir",      "--tee",       "[default: 29400]"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) assert_non_null(strstr(c.out, words[i]));
    expect(0, NULL, NULL);
    command_start(&c, FABRIC " --version");
    command_wait(&c, 5);
    expect(0, "0.1.0", NULL);
    command_start(&c, FABRIC " help run");
    command_wait(&c, 5);
    expect(0, "Usage: fabric run", NULL);
    command_start(&c, FABRIC " runn");
    command_wait(&c, 5);
    expect(2, NULL, "Did you mean 'run'?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_a_single_rank),
        cmocka_unit_test(tells_several_ranks_on_several_nodes),
        cmocka_unit_test(divides_the_threads),
        cmocka_unit_test(takes_options_anywhere),
        cmocka_unit_test(refuses_what_is_wrong),
        cmocka_unit_test(refuses_what_is_no_program),
        cmocka_unit_test(counts_gpus),
        cmocka_unit_test(hands_stdin_to_rank_0),
        cmocka_unit_test(writes_logs),
        cmocka_unit_test(names_a_port_that_is_taken),
        cmocka_unit_test(runs_eight_jobs_side_by_side),
        cmocka_unit_test(launches_twenty_times_in_a_row),
        cmocka_unit_test(has_help_and_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
