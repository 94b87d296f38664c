/* What happens when ranks are late, stopped, killed or missing: an error within the timeout that says who and in which call. */
#include "ranks.h"
#include <cfabric/dist.h>
#include <cfabric/autograd.h>
#include <cfabric/error.h>
#include <cfabric/nn_modules.h>
#include <cfabric/ops.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>

static void say_error(void)
{
    printf("status %d: %s\n", (int)th_error(), th_error_message());
    fflush(stdout);
}

/* Trains on and on; rank 1 is stopped from outside. */
static void stopped(int rank, int world)
{
    (void)rank, (void)world;
    RANK_CHECK(th_dist_init_process_group(.timeout = 4) == TH_OK);
    for (int i = 0; i < 100000 && th_error() == TH_OK; i++) {
        TH_SCOPE();
        if (i == 20) printf("running\n"), fflush(stdout);
        th_dist_all_reduce(th_ones(TH_INTS(100)));
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    say_error();
    th_error_clear();
    /* the group says that it cannot be used any more, and ending it does not hang */
    RANK_CHECK(th_dist_barrier(NULL) == TH_ERR_DISTRIBUTED && strstr(th_error_message(), "unusable"));
    th_error_clear();
    th_dist_destroy_process_group(NULL);
    exit(3);
}

static void absent_call(int rank, int world)
{
    (void)world;
    RANK_CHECK(th_dist_init_process_group(.timeout = 2) == TH_OK);
    TH_SCOPE();
    th_dist_barrier(NULL);
    if (rank == 1) {
        nanosleep(&(struct timespec){5, 0}, NULL);
        exit(0);
    }
    th_dist_all_reduce(th_ones(TH_INTS(3)));
    say_error();
    exit(3);
}

static void pending_error(int rank, int world)
{
    (void)world;
    RANK_CHECK(th_dist_init_process_group(.timeout = 3) == TH_OK);
    TH_SCOPE();
    th_tensor *t = th_ones(TH_INTS(3));
    if (rank == 1) th_error_set(TH_ERR_VALUE, "something went wrong here");
    double start = ranks_now();
    th_status status = th_dist_all_reduce(t);
    if (rank == 1) {
        RANK_CHECK(status == TH_ERR_VALUE && ranks_now() - start < 0.5);
        th_dist_destroy_process_group(NULL);
        exit(5);
    }
    RANK_CHECK(status == TH_ERR_DISTRIBUTED || status == TH_ERR_TIMEOUT);
    say_error();
    exit(3);
}

static void missing(int rank, int world)
{
    if (rank == world - 1) exit(0); /* never comes */
    double start = ranks_now();
    RANK_CHECK(th_dist_init_process_group(.timeout = 3) == TH_ERR_TIMEOUT);
    RANK_CHECK(ranks_now() - start < 9);
    say_error();
    exit(3);
}

static void no_main(int rank, int world)
{
    (void)world;
    if (rank == 0) exit(0);
    double start = ranks_now();
    RANK_CHECK(th_dist_init_process_group(.timeout = 2) != TH_OK);
    RANK_CHECK(ranks_now() - start < 9);
    say_error();
    exit(3);
}

static void dies_in_call(int rank, int world)
{
    (void)world;
    RANK_CHECK(th_dist_init_process_group(.timeout = 10) == TH_OK);
    th_dist_barrier(NULL);
    if (rank == 1) abort();
    TH_SCOPE();
    th_dist_all_reduce(th_ones(TH_INTS(3)));
    say_error();
    exit(th_error() == TH_OK ? 0 : 3);
}

static void late_monitored(int rank, int world)
{
    (void)world;
    RANK_CHECK(th_dist_init_process_group(.timeout = 20) == TH_OK);
    if (rank == 1) nanosleep(&(struct timespec){3, 0}, NULL), exit(0);
    RANK_CHECK(th_dist_monitored_barrier(NULL, 1) == TH_ERR_TIMEOUT);
    say_error();
    exit(3);
}

static void bad_settings(int rank, int world)
{
    (void)rank, (void)world;
    const struct { struct th_dist_init_args args; const char *text; } cases[] = {
        {{.rank = 5}, "rank 5"}, {{.rank = 0, .world_size = -2}, "world size -2"}, {{.rank = 0, .backend = "smoke"}, "smoke"},
        {{.rank = 0, .init_method = "carrier-pigeon://"}, "carrier-pigeon"}, {{.rank = 0, .init_method = "tcp://nowhere"}, "nowhere"},
        {{.rank = 0, .master_port = 70000}, "70000"}, {{.rank = 0, .timeout = -1}, "-1"}, {{.rank = 0, .world_size = 2, .interface = "^lo"}, "^lo"},
        {{.rank = 0, .backend = "nccl"}, "nccl"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        RANK_CHECK(th_dist_init_process_group_call(cases[i].args) != TH_OK);
        if (!strstr(th_error_message(), cases[i].text)) say_error();
        RANK_CHECK(strstr(th_error_message(), cases[i].text));
        th_error_clear();
        RANK_CHECK(!th_dist_is_initialized());
    }
    setenv("WORLD_SIZE", "2x", 1);
    RANK_CHECK(th_dist_init_process_group() == TH_ERR_VALUE && strstr(th_error_message(), "WORLD_SIZE"));
    th_error_clear();
    /* without a group everything is a world of one */
    TH_SCOPE();
    th_tensor *t = th_ones(TH_INTS(2));
    RANK_CHECK(th_dist_all_reduce(t) == TH_OK && th_dist_barrier(NULL) == TH_OK && th_dist_get_rank(NULL) == 0);
    RANK_CHECK(th_dist_all_gather(t).size == 1 && th_numel(th_dist_reduce_scatter_tensor(t)) == 2);
    RANK_CHECK(th_dist_new_group() == NULL && th_error_clear() == TH_ERR_RUNTIME);
    th_reduce_op op;
    RANK_CHECK(th_reduce_op_parse("invalid", &op) == TH_ERR_VALUE && th_error_clear() == TH_ERR_VALUE);
    RANK_CHECK(th_reduce_op_parse("BoR", &op) == TH_OK && op == TH_REDUCE_BOR);
}

static void port_taken(int rank, int world)
{
    (void)rank, (void)world;
    int fd, port = ranks_free_port(&fd);
    RANK_CHECK(listen(fd, 4) == 0);
    double start = ranks_now();
    RANK_CHECK(th_dist_init_process_group(.rank = 0, .world_size = 2, .master_port = port, .timeout = 10) == TH_ERR_DISTRIBUTED);
    char number[16];
    snprintf(number, sizeof number, "port %d", port);
    RANK_CHECK(strstr(th_error_message(), number) && ranks_now() - start < 5);
}

static void interface_named(int rank, int world)
{
    (void)rank;
    setenv("GLOO_SOCKET_IFNAME", "lo", 1);
    RANK_CHECK(th_dist_init_process_group(.timeout = 10) == TH_OK);
    TH_SCOPE();
    th_tensor *t = th_ones(TH_INTS(2));
    RANK_CHECK(th_dist_all_reduce(t) == TH_OK && th_item(th_sum(t)) == 2 * world);
}

static void through_file(int rank, int world)
{
    char method[300];
    snprintf(method, sizeof method, "file:///tmp/cfabric_store_%s", getenv("MASTER_PORT"));
    RANK_CHECK(th_dist_init_process_group(.init_method = method, .timeout = 10) == TH_OK);
    TH_SCOPE();
    th_tensor *t = th_ones(TH_INTS(2));
    RANK_CHECK(th_dist_all_reduce(t) == TH_OK && th_item(th_sum(t)) == 2 * world);
    th_dist_barrier(NULL);
    if (rank == 0) unlink(method + strlen("file://"));
}

static th_status failing_hook(th_tensor *leaf, void *user)
{
    (void)leaf, (void)user;
    return th_error_set(TH_ERR_VALUE, "a user's hook has failed");
}

/* An error in the middle of a backward, with reductions on their way that the peer will not finish: ending the group does not wait. */
static void error_in_backward(int rank, int world)
{
    (void)world;
    RANK_CHECK(th_dist_init_process_group(.timeout = 30) == TH_OK);
    TH_SCOPE();
    th_module *m = th_nn_sequential(th_nn_linear(4, 64), th_nn_linear(64, 64), th_nn_linear(64, 64));
    th_ddp *ddp = th_ddp_new(m, .bucket_cap_mb = 0.001);
    for (int i = 0; i < 2; i++) RANK_CHECK(th_backward(th_sum(th_forward(m, th_ones(TH_INTS(2, 4))))) == TH_OK);
    /* rank 1 agrees to the backward and then never reduces; rank 0 has begun to */
    const char *const names[] = {rank ? "2.bias" : "0.weight", rank ? "2.weight" : "0.bias"};
    th_hook *hooks[2];
    for (int i = 0; i < 2; i++) hooks[i] = th_register_post_accumulate_grad_hook(th_module_parameter(m, names[i]), failing_hook, NULL);
    RANK_CHECK(th_backward(th_sum(th_forward(m, th_ones(TH_INTS(2, 4))))) == TH_ERR_VALUE);
    double start = ranks_now();
    for (int i = 0; i < 2; i++) th_hook_remove(hooks[i]);
    th_ddp_free(ddp);
    th_dist_destroy_process_group(NULL);
    th_module_free(m);
    RANK_CHECK(ranks_now() - start < 2);
    exit(3);
}

static const ranks_case cases[] = {{"error_in_backward", error_in_backward},
    {"stopped", stopped}, {"absent_call", absent_call}, {"pending_error", pending_error}, {"missing", missing}, {"no_main", no_main},
    {"dies", dies_in_call}, {"monitored", late_monitored}, {"settings", bad_settings}, {"port_taken", port_taken},
    {"interface", interface_named}, {"file", through_file}};

static void expect(const char *name, int world, const ranks_result *r, int rank, int code, const char *a, const char *b)
{
    bool ok = r->code[rank] == code && strstr(r->text[rank], a) && strstr(r->text[rank], b);
    if (!ok) {
        fprintf(stderr, "%s: rank %d should exit with %d and say '%s' and '%s'\n", name, rank, code, a, b);
        ranks_show(r, world);
    }
    assert_true(ok);
}

static void stop_one(pid_t *pids, int world, double seconds, void *user)
{
    double *since = user;
    (void)world;
    if (*since == 0 && seconds > 4) {
        kill(pids[1], SIGSTOP);
        *since = seconds;
    }
    if (pids[0] == 0 && pids[1] > 0) kill(pids[1], SIGKILL); /* rank 0 has said what it had to say */
}

static void test_stopped(void **state)
{
    (void)state;
    ranks_result r;
    double since = 0;
    ranks_run_hooked("stopped", 2, 40, &r, stop_one, &since);
    expect("stopped", 2, &r, 0, 3, "all_reduce (call", "timed out after 4 s; ranks that did not enter it: 1");
    assert_true(r.seconds < since + 15);
}

static void test_absent_call(void **state)
{
    (void)state;
    ranks_result r;
    ranks_run("absent_call", 3, 40, &r);
    expect("absent_call", 3, &r, 0, 3, "all_reduce (call", "ranks that did not enter it: 1");
    expect("absent_call", 3, &r, 2, 3, "all_reduce (call", "1");
}

static void test_pending_error(void **state)
{
    (void)state;
    ranks_result r;
    ranks_run("pending_error", 2, 40, &r);
    expect("pending_error", 2, &r, 0, 3, "all_reduce (call", "ranks that did not enter it: 1");
    assert_int_equal(r.code[1], 5);
}

static void test_missing(void **state)
{
    (void)state;
    ranks_result r;
    ranks_run("missing", 3, 40, &r);
    expect("missing", 3, &r, 0, 3, "2 of 3 ranks arrived", "missing: 2");
    expect("missing", 3, &r, 1, 3, "missing", "2");
}

static void test_no_main(void **state)
{
    (void)state;
    ranks_result r;
    ranks_run("no_main", 2, 40, &r);
    expect("no_main", 2, &r, 1, 3, "rank 1 could not reach the store of rank 0 at 127.0.0.1", "within 2 s");
}

static void test_dies(void **state)
{
    (void)state;
    ranks_result r;
    ranks_run("dies", 2, 40, &r);
    expect("dies", 2, &r, 0, 3, "all_reduce (call", "ranks that did not enter it: 1");
    assert_int_equal(r.code[1], 128 + SIGABRT);
    assert_true(r.seconds < 15);
}

static void test_error_in_backward(void **state)
{
    (void)state;
    ranks_result r;
    ranks_run("error_in_backward", 2, 25, &r);
    if (r.code[0] != 3 || r.code[1] != 3) ranks_show(&r, 2);
    assert_true(r.code[0] == 3 && r.code[1] == 3);
}

static void test_monitored(void **state)
{
    (void)state;
    ranks_result r;
    ranks_run("monitored", 3, 40, &r);
    expect("monitored", 3, &r, 0, 3, "did not arrive within 1 s", ": 1");
    expect("monitored", 3, &r, 2, 3, "did not arrive within 1 s", ": 1");
}

static void fine(const char *name, int world)
{
    ranks_result r;
    ranks_run(name, world, 40, &r);
    if (!r.ok) ranks_show(&r, world);
    assert_true(r.ok);
}

static void test_settings(void **state) { (void)state; fine("settings", 1); fine("port_taken", 1); }
static void test_ways(void **state) { (void)state; fine("interface", 2); fine("file", 2); }

int main(void)
{
    ranks_main(cases, sizeof cases / sizeof *cases);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stopped), cmocka_unit_test(test_absent_call), cmocka_unit_test(test_pending_error),
        cmocka_unit_test(test_missing), cmocka_unit_test(test_no_main), cmocka_unit_test(test_dies), cmocka_unit_test(test_error_in_backward), cmocka_unit_test(test_monitored),
        cmocka_unit_test(test_settings), cmocka_unit_test(test_ways)};
    return cmocka_run_group_tests_name("dist_failures", tests, NULL, NULL);
}
