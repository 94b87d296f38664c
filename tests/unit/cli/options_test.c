/* The command line's parser: options anywhere, unknown ones passed on, numbers, device counts. */
#include "base/device_ids.h"
#include "base/error.h"
#include "cli/cli.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static const char *devices, *num_nodes, *tee_flag, *strategy;
static const char *const strategies[] = {"ddp", "fsdp", NULL};
static const cli_option options[] = {{"--devices", "TEXT", "", NULL, NULL, &devices},
                                     {"--num-nodes", "INTEGER", "", NULL, NULL, &num_nodes},
                                     {"--strategy", "NAME", "", strategies, NULL, &strategy},
                                     {"--tee", NULL, "", NULL, NULL, &tee_flag},
                                     {0}};
static char said[4096];

/* Parses a line of words; what is said on stderr lands in `said`. Returns the rest, joined, or NULL. */
static char *parse(const char *line, int *code)
{
    static char *joined;
    char copy[512], *argv[32] = {NULL}, command[] = "run";
    int argc = 0;
    argv[argc++] = command;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *save, *word = strtok_r(copy, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) argv[argc++] = word;
    th__strings rest = {0};
    int file = open("/tmp", O_TMPFILE | O_RDWR, 0600), before = dup(2);
    assert_true(file >= 0);
    devices = num_nodes = tee_flag = strategy = NULL;
    fflush(stderr);
    dup2(file, 2);
    bool ok = cli_parse(argc, argv, options, "fabric run", "about", &rest, code);
    fflush(stderr);
    dup2(before, 2);
    close(before);
    ssize_t got = pread(file, said, sizeof said - 1, 0);
    said[got > 0 ? got : 0] = '\0';
    close(file);
    free(joined);
    joined = ok ? th__join((const char *const *)rest.items, rest.count, " ") : NULL;
    static char values[512]; /* option values point into `copy` */
    char *at = values;
    const char **all[] = {&devices, &num_nodes, &strategy};
    for (int i = 0; i < 3; i++)
        if (*all[i] != NULL) {
            strcpy(at, *all[i]);
            *all[i] = at;
            at += strlen(at) + 1;
        }
    th__strings_free(&rest);
    return joined;
}

static void finds_options_anywhere(void **state)
{
    (void)state;
    int code;
    assert_string_equal(parse("./train --devices 2 a --num_nodes=3 --lr 0.1", &code), "./train a --lr 0.1");
    assert_string_equal(devices, "2");
    assert_string_equal(num_nodes, "3");
    assert_string_equal(parse("--tee --strategy=ddp ./train", &code), "./train");
    assert_string_equal(strategy, "ddp");
    assert_non_null(tee_flag);
    assert_string_equal(parse("--devices= ./train", &code), "./train");
    assert_string_equal(devices, "");
    assert_string_equal(parse("--devices 1 --devices 2 p", &code), "p"); /* the last one counts */
    assert_string_equal(devices, "2");
    assert_string_equal(parse("--devices -1 p", &code), "p");
    assert_string_equal(devices, "-1");
}

static void passes_the_rest_on(void **state)
{
    (void)state;
    int code;
    assert_string_equal(parse("--foo -x ./train b", &code), "./train --foo -x b");
    assert_string_equal(parse("./train -- --devices 7 -- --help", &code), "./train --devices 7 -- --help");
    assert_null(devices);
    assert_string_equal(parse("-- --odd-program --devices 7", &code), "--odd-program --devices 7");
    assert_string_equal(parse("p --devices-per-node 2", &code), "p --devices-per-node 2"); /* no abbreviations either way */
    assert_string_equal(parse("p --device 2", &code), "p --device 2");
    assert_null(devices);
    assert_string_equal(parse("", &code), "");
}

static void refuses(void **state)
{
    (void)state;
    int code;
    assert_null(parse("p --devices", &code));
    assert_int_equal(code, CLI_USAGE);
    assert_non_null(strstr(said, "Error: Option '--devices' requires an argument."));
    assert_non_null(strstr(said, "Usage: fabric run\nTry 'fabric run --help' for help.\n"));
    assert_null(parse("p --tee=1", &code));
    assert_non_null(strstr(said, "'--tee' does not take a value"));
    assert_null(parse("p --strategy fdsp", &code));
    assert_int_equal(code, CLI_USAGE);
    assert_non_null(strstr(said, "'fdsp' is not one of 'ddp', 'fsdp'. Did you mean 'fsdp'?"));
    assert_null(parse("p --strategy cocofruit", &code));
    assert_null(strstr(said, "Did you mean"));
}

static void reads_numbers(void **state)
{
    (void)state;
    int64_t number = 0;
    int before = dup(2), null = open("/dev/null", O_WRONLY);
    dup2(null, 2);
    assert_true(cli_number("u", "run", "--x", "29400", 1, 65535, &number));
    assert_int_equal(number, 29400);
    assert_false(cli_number("u", "run", "--x", "0", 1, 65535, &number));
    assert_false(cli_number("u", "run", "--x", "65536", 1, 65535, &number));
    assert_false(cli_number("u", "run", "--x", "1.5", 1, 65535, &number));
    fflush(stderr);
    dup2(before, 2);
    close(before);
    close(null);
}

static void expect_processes(const char *accelerator, const char *device_text, const char *name, int expected,
                             const char *exported)
{
    cli_run_options o = {.accelerator = accelerator, .devices = device_text, .strategy = name};
    int processes = 0;
    char *text = NULL;
    bool ok = cli_count_processes(&o, &processes, &text);
    if (expected < 0) {
        assert_false(ok);
        assert_int_equal(th_error_clear(), expected);
    } else {
        assert_true(ok);
        assert_int_equal(processes, expected);
        assert_string_equal(text, exported);
    }
    free(text);
}

static void counts_processes(void **state)
{
    (void)state;
    expect_processes("cpu", "3", NULL, 3, "3");
    expect_processes("cpu", "auto", NULL, 1, "1");
    expect_processes("cpu", "4", "dp", 1, "4");
    expect_processes(NULL, "2", NULL, 2, "2");
    expect_processes("auto", "auto", NULL, 1, "1");
    expect_processes("cpu", "-1", NULL, TH_ERR_TYPE, NULL);
    expect_processes("cpu", "1,2", NULL, TH_ERR_TYPE, NULL);
    expect_processes("cpu", "0", NULL, TH_ERR_VALUE, NULL);
    expect_processes("tpu", "1", NULL, TH_ERR_VALUE, NULL);
    expect_processes("mps", "1", NULL, TH_ERR_RUNTIME, NULL);
}

/* Semantics 18 and 19, with 16 devices. */
static void parses_device_ids(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int count, first, last;
    } good[] = {{"3", 3, 0, 2},      {"2,", 1, 2, 2}, {"1, 3", 2, 1, 3}, {"-1", 16, 0, 15}, {"0,", 1, 0, 0},
                {" 16 ", 16, 0, 15}, {"0", 0, 0, 0},  {"", 0, 0, 0},     {"[]", 0, 0, 0}};
    int ids[16];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int count = th__parse_gpu_ids(good[i].text, 16, "cuda", false, ids, 16);
        assert_int_equal(count, good[i].count);
        if (count == 0) continue;
        assert_int_equal(ids[0], good[i].first);
        assert_int_equal(ids[count - 1], good[i].last);
    }
    static const struct {
        const char *text;
        th_status status;
    } bad[] = {{"0.1", TH_ERR_TYPE},  {"a", TH_ERR_TYPE},       {"0,x", TH_ERR_TYPE}, {"-2", TH_ERR_VALUE},
               {"0,0", TH_ERR_VALUE}, {"1,2,19", TH_ERR_VALUE}, {"17", TH_ERR_VALUE}, {"1,-1", TH_ERR_VALUE}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(th__parse_gpu_ids(bad[i].text, 16, "cuda", false, ids, 16) < 0);
        assert_int_equal(th_error_clear(), bad[i].status);
    }
    assert_true(th__parse_gpu_ids("-1", 0, "cuda", false, ids, 16) < 0);
    th_error_clear();
    assert_int_equal(th__parse_gpu_ids("2", 1, "cuda", true, ids, 16), 2); /* torchelastic shows one of several */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_options_anywhere), cmocka_unit_test(passes_the_rest_on), cmocka_unit_test(refuses),
        cmocka_unit_test(reads_numbers),          cmocka_unit_test(counts_processes),   cmocka_unit_test(parses_device_ids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
