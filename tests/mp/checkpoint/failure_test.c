/* Saving and loading when it fails on one of two ranks (BC-053): both get an error, the old file stays, and both can go on. */
#include "ranks.h"

#include <cfabric/cfabric.h>
#include <setjmp.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <cmocka.h>

static fabric *launched(void)
{
    fabric *fab = fabric_new(.accelerator = "cpu", .devices = "2", .strategy = "ddp");
    RANK_CHECK(fab != NULL);
    RANK_CHECK(fabric_launch(fab) == TH_OK);
    return fab;
}

static void save_number(fabric *fab, const char *path, int number, th_status expected)
{
    RANK_CHECK(fabric_save(fab, path, TH_STATE({"number", th_state(number)})) == expected);
    if (expected != TH_OK) RANK_CHECK(th_error_message()[0] != '\0');
    th_error_clear();
}

static int load_number(fabric *fab, const char *path)
{
    th_value *all = fabric_load(fab, path, NULL);
    int number = (int)th_value_as_int(th_value_get(all, "number"), -1);
    th_value_free(all);
    return number;
}

static void failures(int rank, int world)
{
    (void)world;
    char here[300], good[400];
    fabric *fab = launched();
    snprintf(good, sizeof good, "%s/good.pt", getenv("T_FOLDER"));
    save_number(fab, good, 1, TH_OK);

    save_number(fab, "/proc/never/x.pt", 2, TH_ERR_IO); /* only rank 0 tried */

    /* rank 0 may not write: the old file stays, and the next save works */
    struct rlimit old, none;
    getrlimit(RLIMIT_FSIZE, &old);
    none = old;
    none.rlim_cur = 1;
    if (rank == 0) setrlimit(RLIMIT_FSIZE, &none);
    save_number(fab, good, 3, TH_ERR_IO);
    if (rank == 0) setrlimit(RLIMIT_FSIZE, &old);
    RANK_CHECK(load_number(fab, good) == 1);
    save_number(fab, good, 4, TH_OK);
    RANK_CHECK(load_number(fab, good) == 4);

    /* a file that only rank 0 can see */
    snprintf(here, sizeof here, "%s/%d", getenv("T_FOLDER"), rank);
    RANK_CHECK(mkdir(here, 0777) == 0 && chdir(here) == 0);
    save_number(fab, "mine.pt", 5, TH_OK);
    RANK_CHECK(load_number(fab, "mine.pt") == -1);
    RANK_CHECK(th_error() == (rank == 0 ? TH_ERR_DISTRIBUTED : TH_ERR_NOT_FOUND));
    th_error_clear();

    /* a background save that fails is told by rank 0 where it waits */
    RANK_CHECK(fabric_save(fab, "/proc/never/x.pt", TH_STATE({"number", th_state(6)}), .async = true) == TH_OK);
    RANK_CHECK(fabric_save_wait(fab) == (rank == 0 ? TH_ERR_IO : TH_OK));
    th_error_clear();
    RANK_CHECK(load_number(fab, good) == 4);
    RANK_CHECK(fabric_finish(fab) == 0);
}

static const ranks_case cases[] = {{"failures", failures}};

static void test_failures(void **state)
{
    (void)state;
    char folder[] = "/tmp/cfabric-test-XXXXXX", command[100];
    assert_non_null(mkdtemp(folder));
    setenv("T_FOLDER", folder, 1);
    ranks_result *r = calloc(1, sizeof *r);
    ranks_run("failures", 2, 60, r);
    if (!r->ok) ranks_show(r, 2);
    bool ok = r->ok;
    free(r);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
    assert_true(ok);
}

int main(void)
{
    ranks_main(cases, sizeof cases / sizeof *cases);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_failures)};
    return cmocka_run_group_tests_name("checkpoint failures", tests, NULL, NULL);
}
