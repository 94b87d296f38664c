/* The registry, the order of detection, and the default environment (semantics 7; 21: 17, 31, 37). */
#include "clean_env.h"

static void lightning_without_variables(void **state)
{
    (void)state;
    fabric_environment *environment = detect_as("lightning");
    assert_string_equal(fabric_environment_type_name(environment), "LightningEnvironment");
    assert_false(fabric_environment_creates_processes_externally(environment));
    assert_string_equal(fabric_environment_main_address(environment), "127.0.0.1");
    int port = fabric_environment_main_port(environment);
    assert_in_range(port, 1, 65535);
    assert_int_equal(fabric_environment_main_port(environment), port); /* stable */
    assert_null(getenv("MASTER_PORT"));
    assert_int_equal(fabric_environment_world_size(environment), 1);
    assert_int_equal(fabric_environment_global_rank(environment), 0);
    assert_int_equal(fabric_environment_local_rank(environment), 0);
    assert_int_equal(fabric_environment_node_rank(environment), 0);
    assert_int_equal(fabric_environment_validate_settings(environment, 7, 3), TH_OK);
    fabric_environment_free(environment);
}

static void lightning_with_variables(void **state)
{
    (void)state;
    set("MASTER_ADDR", "1.2.3.4");
    set("MASTER_PORT", "500");
    set("LOCAL_RANK", "2");
    set("GROUP_RANK", "1");
    fabric_environment *environment = fabric_environment_create("lightning");
    assert_true(fabric_environment_creates_processes_externally(environment));
    assert_string_equal(fabric_environment_main_address(environment), "1.2.3.4");
    assert_int_equal(fabric_environment_main_port(environment), 500);
    assert_int_equal(fabric_environment_local_rank(environment), 2);
    assert_int_equal(fabric_environment_node_rank(environment), 1);
    set("NODE_RANK", "3");
    assert_int_equal(fabric_environment_node_rank(environment), 3);
    fabric_environment_free(environment);
}

static void lightning_setters_and_teardown(void **state)
{
    (void)state;
    fabric_environment *environment = fabric_environment_create("lightning");
    assert_int_equal(fabric_environment_set_world_size(environment, 100), TH_OK);
    assert_int_equal(fabric_environment_set_global_rank(environment, 99), TH_OK);
    assert_int_equal(fabric_environment_world_size(environment), 100);
    assert_int_equal(fabric_environment_global_rank(environment), 99);
    assert_int_equal(th__message_rank(), 99); /* messages show it from now on */
    assert_int_equal(fabric_environment_set_world_size(environment, 0), TH_ERR_VALUE);
    expect_error(TH_ERR_VALUE, "world size 0", NULL);
    set("WORLD_SIZE", "1");
    assert_int_equal(fabric_environment_teardown(environment), TH_OK);
    assert_null(getenv("WORLD_SIZE"));
    fabric_environment_free(environment);
}

static void lightning_ports(void **state)
{
    (void)state;
    set("STANDALONE_PORT", "1234");
    fabric_environment *environment = fabric_environment_create("lightning");
    assert_int_equal(fabric_environment_main_port(environment), 1234);
    fabric_environment_free(environment);
    assert_int_equal(fabric_find_free_network_port(), 1234);
    set("MASTER_PORT", "4321"); /* wins over STANDALONE_PORT */
    environment = fabric_environment_create("lightning");
    assert_int_equal(fabric_environment_main_port(environment), 4321);
    fabric_environment_free(environment);
    set("MASTER_PORT", "70000");
    environment = fabric_environment_create("lightning");
    assert_int_equal(fabric_environment_main_port(environment), -1);
    expect_error(TH_ERR_VALUE, "MASTER_PORT", "70000");
    fabric_environment_free(environment);
}

static void bad_numbers_are_errors(void **state)
{
    (void)state;
    set("LOCAL_RANK", "one");
    fabric_environment *environment = fabric_environment_create("lightning");
    assert_int_equal(fabric_environment_local_rank(environment), -1);
    expect_error(TH_ERR_VALUE, "LOCAL_RANK", "'one'");
    fabric_environment_free(environment);
}

/* 21.37: RANK over LOCAL_RANK over SLURM_PROCID over JSM_NAMESPACE_RANK. */
static void rank_of_messages(void **state)
{
    (void)state;
    assert_int_equal(th__message_rank(), -1);
    set("JSM_NAMESPACE_RANK", "4");
    assert_int_equal(th__message_rank(), 4);
    set("SLURM_PROCID", "3");
    assert_int_equal(th__message_rank(), 3);
    set("LOCAL_RANK", "2");
    assert_int_equal(th__message_rank(), 2);
    set("RANK", "1");
    assert_int_equal(th__message_rank(), 1);
}

static void order_of_detection(void **state)
{
    (void)state;
    set("OMPI_COMM_WORLD_RANK", "0");
    set("OMPI_COMM_WORLD_SIZE", "2");
    fabric_environment_free(detect_as("mpi"));
    char file[] = "/tmp/cfabric-rankfile-XXXXXX";
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    dprintf(fd, "batch\nhost0\n");
    fabric__environment_fake_hostname("host0");
    set("LSB_JOBID", "1");
    set("LSB_DJOB_RANKFILE", file);
    set("JSM_NAMESPACE_LOCAL_RANK", "0");
    set("JSM_NAMESPACE_SIZE", "2");
    fabric_environment_free(detect_as("lsf"));
    set("SLURM_NTASKS", "2");
    set("SLURM_NTASKS_PER_NODE", "2");
    fabric_environment_free(detect_as("slurm"));
    set("TORCHELASTIC_RUN_ID", ""); /* empty counts */
    fabric_environment_free(detect_as("torchelastic"));
    unlink(file);
    close(fd);
}

static void slurm_shells_are_not_slurm(void **state)
{
    (void)state;
    set("SLURM_NTASKS", "2");
    set("SLURM_NTASKS_PER_NODE", "2");
    set("SLURM_JOB_NAME", "bash");
    fabric_environment_free(detect_as("lightning"));
    set("SLURM_JOB_NAME", "interactive");
    fabric_environment_free(detect_as("lightning"));
    set("SLURM_JOB_NAME", "train");
    fabric_environment_free(detect_as("slurm"));
}

static void names(void **state)
{
    (void)state;
    assert_null(fabric_environment_create("slrum"));
    expect_error(TH_ERR_KEY, "'slrum'", "slurm");
    assert_null(fabric_environment_create("xla"));
    expect_error(TH_ERR_UNAVAILABLE, "XLA", NULL);
    const char *all[16];
    assert_int_equal(fabric_environment_list(all, 16), 6);
    assert_string_equal(all[0], "torchelastic");
    assert_string_equal(all[4], "lightning");
}

/* ---- a user's own environment */

static bool mine_detected;
static int destroyed;
static bool mine_detect(void) { return mine_detected; }
static void mine_destroy(void *self)
{
    (void)self;
    destroyed++;
}
static const char *mine_address(void *self)
{
    (void)self;
    return "node0";
}
static int mine_port(void *self)
{
    (void)self;
    return 4000;
}
static int mine_five(void *self)
{
    (void)self;
    return 5;
}
static int mine_negative(void *self)
{
    (void)self;
    return -3;
}
static const char *mine_no_address(void *self)
{
    (void)self;
    return NULL;
}

static const fabric_environment_ops mine = {
    .size = sizeof(fabric_environment_ops),
    .name = "mine",
    .detect = mine_detect,
    .destroy = mine_destroy,
    .main_address = mine_address,
    .main_port = mine_port,
    .world_size = mine_five,
    .global_rank = mine_five,
    .local_rank = mine_five,
};

static void registering(void **state)
{
    (void)state;
    mine_detected = true;
    destroyed = 0;
    assert_int_equal(fabric_environment_register(&mine, false), TH_OK);
    assert_int_equal(fabric_environment_register(&mine, false), TH_ERR_VALUE);
    expect_error(TH_ERR_VALUE, "mine", "override");
    assert_int_equal(fabric_environment_register(&mine, true), TH_OK);
    set("TORCHELASTIC_RUN_ID", "x"); /* registered ones are asked first */
    fabric_environment *environment = detect_as("mine");
    assert_string_equal(fabric_environment_type_name(environment), "mine");
    assert_true(fabric_environment_creates_processes_externally(environment));   /* the default */
    assert_int_equal(fabric_environment_node_rank(environment), 0);              /* the default */
    assert_int_equal(fabric_environment_set_global_rank(environment, 1), TH_OK); /* ignored */
    assert_int_equal(fabric_environment_global_rank(environment), 5);
    assert_int_equal(fabric_environment_validate_settings(environment, 1, 1), TH_OK);
    assert_int_equal(fabric_environment_teardown(environment), TH_OK);
    assert_ptr_equal(fabric_environment_retain(environment), environment);
    fabric_environment_free(environment);
    assert_int_equal(destroyed, 0);
    fabric_environment_free(environment);
    assert_int_equal(destroyed, 1);
    mine_detected = false;
    fabric_environment_free(detect_as("torchelastic"));
    assert_int_equal(fabric_environment_unregister("mine"), TH_OK);
    assert_int_equal(fabric_environment_unregister("mine"), TH_ERR_KEY);
    expect_error(TH_ERR_KEY, "mine", NULL);
}

static void broken_tables(void **state)
{
    (void)state;
    fabric_environment_ops table = mine;
    table.world_size = NULL;
    assert_null(fabric_environment_new(&table, NULL));
    expect_error(TH_ERR_VALUE, "world_size", NULL);
    table = mine;
    table.size = 8;
    assert_null(fabric_environment_new(&table, NULL));
    expect_error(TH_ERR_VALUE, "size", NULL);
    table = mine;
    table.world_size = mine_negative;
    table.main_address = mine_no_address;
    table.destroy = NULL;
    fabric_environment *environment = fabric_environment_new(&table, NULL);
    assert_int_equal(fabric_environment_world_size(environment), -1);
    expect_error(TH_ERR_RUNTIME, "world size", "-3");
    assert_null(fabric_environment_main_address(environment));
    expect_error(TH_ERR_RUNTIME, "main address", NULL);
    assert_int_equal(fabric_environment_world_size(NULL), -1);
    expect_error(TH_ERR_TYPE, "environment", NULL);
    fabric_environment_free(environment);
}

/* An older caller's table ends early: what it does not have is the default. */
static void short_tables(void **state)
{
    (void)state;
    fabric_environment_ops table = mine;
    table.destroy = NULL;
    table.node_rank = mine_negative;
    table.size = offsetof(fabric_environment_ops, node_rank);
    fabric_environment *environment = fabric_environment_new(&table, NULL);
    assert_int_equal(fabric_environment_node_rank(environment), 0);
    fabric_environment_free(environment);
}

static void pending_errors_pass_through(void **state)
{
    (void)state;
    th_error_set(TH_ERR_RUNTIME, "before");
    assert_null(fabric_environment_detect());
    assert_null(fabric_environment_create("lightning"));
    assert_int_equal(fabric_find_free_network_port(), -1);
    expect_error(TH_ERR_RUNTIME, "before", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lightning_without_variables),
        TEST(lightning_with_variables),
        TEST(lightning_setters_and_teardown),
        TEST(lightning_ports),
        TEST(bad_numbers_are_errors),
        TEST(rank_of_messages),
        TEST(order_of_detection),
        TEST(slurm_shells_are_not_slurm),
        TEST(names),
        TEST(registering),
        TEST(broken_tables),
        TEST(short_tables),
        TEST(pending_errors_pass_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
