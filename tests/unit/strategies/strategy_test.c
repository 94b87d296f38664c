/* The strategy object: parts, defaults of the slots, names: semantics 10.1-10.3. */
#include "fabric_support.h"

#include "base/object.h"

static const fabric_strategy_ops bare_ops = {.size = sizeof bare_ops, .name = "BareStrategy"};

static void defaults_of_an_empty_table(void **state)
{
    (void)state;
    fabric_strategy *s = fabric_strategy_new(&bare_ops, NULL);
    int replicas = -1, rank = -1;
    assert_string_equal(fabric_strategy_name(s), "BareStrategy");
    assert_string_equal(fabric_strategy_launcher(s), "");
    assert_int_equal(fabric_strategy_global_rank(s), 0);
    assert_int_equal(fabric_strategy_local_rank(s), 0);
    assert_int_equal(fabric_strategy_node_rank(s), 0);
    assert_int_equal(fabric_strategy_world_size(s), 1);
    assert_int_equal(fabric_strategy_root_device(s).type, TH_DEVICE_CPU);
    assert_false(fabric_strategy_sampler_args(s, &replicas, &rank));
    assert_int_equal(fabric_strategy_validate(s), TH_OK);
    assert_int_equal(fabric_strategy_setup_environment(s), TH_OK);
    assert_int_equal(fabric_strategy_barrier(s, NULL), TH_OK);
    assert_int_equal(fabric_strategy_infinite_barrier(s), TH_OK);
    th_tensor *x = th_ones(TH_INTS(2));
    assert_ptr_equal(fabric_strategy_all_reduce(s, x, "sum", NULL), x);
    assert_ptr_equal(fabric_strategy_all_gather(s, x, false, NULL), x);
    assert_true(fabric_strategy_reduce_boolean_decision(s, true, true));
    assert_false(fabric_strategy_reduce_boolean_decision(s, false, false));
    th_value *value = th_value_int(3), *same = fabric_strategy_broadcast(s, value, 0);
    assert_ptr_equal(same, value);
    th_value_free(same), th_value_free(value);
    assert_int_equal(fabric_strategy_teardown(s), TH_OK);
    fabric_strategy_free(s);
}

static int freed;
static void note_free(void *self) { freed += *(int *)self; }

/* A table from before most slots existed: only what lies within its size is read. */
static void older_tables(void **state)
{
    (void)state;
    fabric_strategy_ops old = {.name = "OldStrategy"};
    memset((char *)&old + offsetof(fabric_strategy_ops, validate), 0x5a, sizeof old - offsetof(fabric_strategy_ops, validate));
    old.size = offsetof(fabric_strategy_ops, validate);
    fabric_strategy *s = fabric_strategy_new(&old, NULL);
    assert_int_equal(fabric_strategy_validate(s), TH_OK);
    assert_int_equal(fabric_strategy_barrier(s, NULL), TH_OK);
    fabric_strategy_free(s);
    fabric_strategy_ops bad = {.size = 4, .name = "x"};
    assert_null(fabric_strategy_new(&bad, NULL));
    assert_raised(TH_ERR_VALUE, "table");
    assert_null(fabric_strategy_new(NULL, NULL));
    assert_raised(TH_ERR_VALUE, "table");
}

static void parts(void **state)
{
    (void)state;
    static const fabric_strategy_ops freeing = {.size = sizeof freeing, .name = "Freeing", .free = note_free};
    int one = 1;
    freed = 0;
    size_t before = th__objects_live(NULL);
    fabric_strategy *s = fabric_strategy_new(&freeing, &one);
    assert_ptr_equal(fabric_strategy_self(s), &one);
    assert_ptr_equal(fabric_strategy_ops_of(s), &freeing);
    struct watch watch = {0};
    fabric_precision *precision = fabric_precision_new(&watch_ops, &watch);
    assert_int_equal(fabric_strategy_set_precision(s, precision), TH_OK);
    assert_ptr_equal(fabric_strategy_precision(s), precision);
    assert_int_equal(fabric_strategy_set_precision(s, fabric_precision_new(&watch_ops, &watch)), TH_OK); /* frees the first */
    const th_device devices[] = {{TH_DEVICE_CPU, 0}, {TH_DEVICE_CPU, 0}};
    assert_int_equal(fabric_strategy_set_parallel_devices(s, (fabric_devices){devices, 2}), TH_OK);
    assert_int_equal(fabric_strategy_parallel_devices(s).size, 2);
    assert_int_equal(fabric_strategy_num_nodes(s), 1);
    assert_int_equal(fabric_strategy_set_num_nodes(s, 0), TH_ERR_VALUE);
    assert_raised(TH_ERR_VALUE, "num_nodes is 0");
    fabric_strategy_free(s);
    assert_int_equal(freed, 1);
    assert_int_equal(th__objects_live(NULL), before);
}

static fabric_strategy *make(const char *preset)
{
    return strcmp(preset, "mine") == 0 ? fabric_strategy_new(&bare_ops, NULL) : NULL;
}

static void names(void **state)
{
    (void)state;
    static const fabric_strategy_entry mine = {sizeof mine, "Mine", "for tests", make, "mine", false};
    static const fabric_strategy_entry again = {sizeof again, "mine", "for tests", make, "mine", true};
    assert_int_equal(fabric_strategy_register(&mine), TH_OK);
    assert_int_equal(fabric_strategy_register(&mine), TH_ERR_VALUE);
    assert_raised(TH_ERR_VALUE, "mine");
    assert_int_equal(fabric_strategy_register(&again), TH_OK);
    fabric_strategy *s = fabric_strategy_create("MINE");
    assert_string_equal(fabric_strategy_name(s), "BareStrategy");
    fabric_strategy_free(s);
    bool listed = false;
    for (size_t i = 0; fabric_strategy_registered(i) != NULL; i++) listed = listed || strcmp(fabric_strategy_registered(i), "mine") == 0;
    assert_true(listed);
    assert_int_equal(fabric_strategy_unregister("mine"), TH_OK);
    assert_int_equal(fabric_strategy_unregister("mine"), TH_ERR_KEY);
    assert_raised(TH_ERR_KEY, "mine");
    assert_null(fabric_strategy_create("dpp"));
    assert_raised(TH_ERR_VALUE, "did you mean 'ddp'");
    assert_null(fabric_strategy_find("cocofruit"));
    assert_ok();
    assert_non_null(fabric_strategy_find("DDP"));
}

static void single_device(void **state)
{
    (void)state;
    fabric_strategy *s = fabric_strategy_single_device((th_device){TH_DEVICE_NONE, 0});
    assert_int_equal(fabric_strategy_root_device(s).type, TH_DEVICE_CPU); /* the default */
    int replicas, rank;
    assert_false(fabric_strategy_sampler_args(s, &replicas, &rank));
    assert_int_equal(fabric_strategy_no_backward_sync(s, NULL, NULL, true), TH_OK);
    assert_int_equal(support_message_count, 0);
    fabric_strategy_free(s);
    s = fabric_strategy_single_device(TH_CUDA(1));
    assert_int_equal(fabric_strategy_root_device(s).index, 1);
    fabric_strategy_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FABRIC_CASE(defaults_of_an_empty_table),
        FABRIC_CASE(older_tables),
        FABRIC_CASE(parts),
        FABRIC_CASE(names),
        FABRIC_CASE(single_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
