/* MPI launchers by their variables (semantics 7; BC-025). */
#include "clean_env.h"

typedef struct mpi_case {
    const char *rank, *size, *local_rank, *local_size;
} mpi_case;

static const mpi_case cases[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"PMIX_RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static void set_all(const mpi_case *c, const char *rank, const char *size, const char *local_rank, const char *local_size)
{
    set(c->rank, rank);
    set(c->size, size);
    set(c->local_rank, local_rank);
    set(c->local_size, local_size);
}

static void every_family_on_one_host(void **state)
{
    for (size_t i = 0; i < CASES; i++) {
        clean(state);
        set_all(&cases[i], "1", "2", "1", "2");
        set("PMIX_NAMESPACE", "prterun-host-4711@1");
        fabric_environment *environment = detect_as("mpi");
        assert_true(fabric_environment_creates_processes_externally(environment));
        assert_int_equal(fabric_environment_world_size(environment), 2);
        assert_int_equal(fabric_environment_global_rank(environment), 1);
        assert_int_equal(th__message_rank(), 1);
        assert_int_equal(fabric_environment_local_rank(environment), 1);
        assert_int_equal(fabric_environment_node_rank(environment), 0);
        assert_string_equal(fabric_environment_main_address(environment), "127.0.0.1");
        int port = fabric_environment_main_port(environment);
        assert_in_range(port, 20000, 29999);
        assert_int_equal(fabric_environment_main_port(environment), port);
        assert_int_equal(fabric_environment_set_world_size(environment, 9), TH_OK); /* ignored */
        assert_int_equal(fabric_environment_world_size(environment), 2);
        fabric_environment_free(environment);
    }
}

static void one_process_is_no_mpi_job(void **state)
{
    for (size_t i = 0; i < CASES; i++) {
        clean(state);
        set_all(&cases[i], "0", "1", "0", "1");
        unsetenv("LOCAL_RANK");
        fabric_environment_free(detect_as("lightning"));
    }
}

static void several_hosts_need_an_address(void **state)
{
    (void)state;
    set_all(&cases[0], "2", "4", "0", "2");
    fabric_environment *environment = detect_as("mpi");
    assert_null(fabric_environment_main_address(environment));
    expect_error(TH_ERR_RUNTIME, "MASTER_ADDR", "mpirun");
    set("MASTER_ADDR", "node0");
    assert_string_equal(fabric_environment_main_address(environment), "node0");
    assert_int_equal(fabric_environment_main_port(environment), 12910);
    set("MASTER_PORT", "2222");
    assert_int_equal(fabric_environment_main_port(environment), 2222);
    fabric_environment_free(environment);
}

static void jobs_have_ports_of_their_own(void **state)
{
    (void)state;
    set_all(&cases[0], "0", "2", "0", "2");
    fabric_environment *environment = detect_as("mpi");
    set("PMIX_NAMESPACE", "job-a");
    int a = fabric_environment_main_port(environment);
    set("PMIX_NAMESPACE", "job-b");
    assert_int_not_equal(fabric_environment_main_port(environment), a);
    fabric_environment_free(environment);
}

static int node_rank_of(const char *rank, const char *size, const char *local_rank, const char *local_size)
{
    set_all(&cases[0], rank, size, local_rank, local_size);
    fabric_environment *environment = detect_as("mpi");
    int node = fabric_environment_node_rank(environment);
    fabric_environment_free(environment);
    return node;
}

static void node_ranks(void **state)
{
    (void)state;
    assert_int_equal(node_rank_of("5", "6", "1", "2"), 2); /* filled: 0 1 | 2 3 | 4 5 */
    assert_int_equal(node_rank_of("4", "6", "1", "2"), 1); /* dealt out: 0 3 | 1 4 | 2 5 */
    assert_int_equal(node_rank_of("3", "5", "0", "2"), -1);
    expect_error(TH_ERR_RUNTIME, "NODE_RANK", NULL);
    set("NODE_RANK", "1");
    assert_int_equal(node_rank_of("3", "5", "0", "2"), 1);
    unsetenv("NODE_RANK");
    clean(state);
    set_all(&cases[2], "3", "4", "1", "2");
    set("PALS_NODEID", "7");
    fabric_environment *environment = detect_as("mpi");
    assert_int_equal(fabric_environment_node_rank(environment), 7);
    fabric_environment_free(environment);
}

/* A launcher that says nothing but the rank: an MPI job whose missing facts are errors, never several jobs of one process. */
static void pmix_rank_alone(void **state)
{
    (void)state;
    set("PMIX_RANK", "1");
    fabric_environment *environment = detect_as("mpi");
    assert_int_equal(fabric_environment_global_rank(environment), 1);
    assert_int_equal(fabric_environment_world_size(environment), -1);
    expect_error(TH_ERR_KEY, "WORLD_SIZE", "PMIx");
    assert_int_equal(fabric_environment_local_rank(environment), -1);
    expect_error(TH_ERR_KEY, "LOCAL_RANK", "PMIx");
    fabric_environment_free(environment);
}

static void validation(void **state)
{
    (void)state;
    set_all(&cases[3], "0", "4", "0", "4");
    fabric_environment *environment = detect_as("mpi");
    assert_int_equal(fabric_environment_validate_settings(environment, 4, 1), TH_OK);
    assert_int_equal(fabric_environment_validate_settings(environment, 2, 1), TH_ERR_VALUE);
    expect_error(TH_ERR_VALUE, "PMI_SIZE=4", "devices=2");
    fabric_environment_free(environment);
}

static void without_mpi(void **state)
{
    (void)state;
    assert_false(fabric_environment_detects("mpi"));
    assert_null(fabric_environment_create("mpi"));
    expect_error(TH_ERR_RUNTIME, "mpirun", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_family_on_one_host),
        TEST(one_process_is_no_mpi_job),
        TEST(several_hosts_need_an_address),
        TEST(jobs_have_ports_of_their_own),
        TEST(node_ranks),
        TEST(pmix_rank_alone),
        TEST(validation),
        TEST(without_mpi),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
