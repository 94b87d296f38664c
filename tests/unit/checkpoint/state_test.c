/* state_test.c: what fabric_save and fabric_load do with states: live objects, filters, strictness, the rest; saves in the
 * background. */
#include "checkpoint_support.h"

#include "checkpoint/internal.h"
#include <cfabric/nn_modules.h>
#include <cfabric/optimizers.h>

/* ---------------------------------------------------------------- a stateful object of the user's own */

typedef struct counter {
    int64_t value;
    bool refuse;
} counter;

static th_value *counter_state(void *object)
{
    th_value *state = th_value_dict();
    th_value_set(state, "count", th_value_int(((counter *)object)->value));
    return state;
}

static th_status counter_load(void *object, th_value *state, bool strict)
{
    (void)strict;
    if (((counter *)object)->refuse) return TH_ERR_VALUE;
    ((counter *)object)->value = th_value_as_int(th_value_get(state, "count"), -1);
    return TH_OK;
}

static const th_stateful counter_ops = {sizeof(th_stateful), "counter", counter_state, counter_load};

static double first_weight(th_module *module) { return (double)((float *)th_data_ptr(th_module_parameter(module, "weight")))[0]; }

static void fill(th_module *module, double value)
{
    TH_SCOPE();
    TH_NO_GRAD();
    th_call("aten::fill_.Scalar", TH_A(th_module_parameter(module, "weight")), TH_A_SCALAR(TH_S(value)));
}

/* Saves and gives back what the file holds. */
static th_value *through_file(const char *path, th_value *state)
{
    th_value *plain = th__state_to_plain(state, NULL, 0);
    if (plain == NULL) fail_msg("%s", th_error_message());
    assert_int_equal(th__checkpoint_write(path, plain), TH_OK);
    th_value_free(plain);
    th_value *back = th__checkpoint_read(path);
    assert_non_null(back);
    return back;
}

/* ---------------------------------------------------------------- saving and loading */

static void test_in_place_load_and_nothing_left(void **state)
{
    counter c = {.value = 7};
    th_module *model = th_nn_linear(3, 2);
    th_optimizer *optimizer = th_optim_sgd(th_parameters(model), .lr = 0.5, .momentum = 0.9);
    fill(model, 1.5);
    th_value *mine = TH_STATE({"model", th_state(model)}, {"optimizer", th_state(optimizer)},
                              {"counter", th_value_object(&counter_ops, &c)}, {"epoch", th_state(4)}, {"name", th_state("run")});
    th_value *saved = through_file(scratch(*state, "all.pt"), mine);
    assert_int_equal(th_value_size(saved), 5);
    assert_non_null(th_value_get(th_value_get(saved, "model"), "weight")); /* a state dict without prefix */
    fill(model, -1.0);
    c.value = 0;
    th_optimizer_set(optimizer, 0, "lr", 0.1);
    th_value_set(mine, "epoch", th_value_int(0));
    assert_int_equal(th__state_from_plain(mine, saved, true), TH_OK);
    assert_true(first_weight(model) == 1.5);
    assert_true(th_optimizer_lr(optimizer) == 0.5);
    assert_int_equal(c.value, 7);
    assert_int_equal(th_value_as_int(th_value_get(mine, "epoch"), 0), 4);
    assert_string_equal(th_value_as_string(th_value_get(mine, "name"), ""), "run");
    assert_int_equal(th_value_size(saved), 0);
    th_value_free(saved);
    th_value_free(mine);
    th_optimizer_free(optimizer);
    th_module_free(model);
}

static void test_what_was_not_asked_for_is_returned(void **state)
{
    counter c = {.value = 7};
    th_module *model = th_nn_linear(3, 2);
    th_value *mine = TH_STATE({"model", th_state(model)}, {"counter", th_value_object(&counter_ops, &c)}, {"epoch", th_state(4)},
                              {"config", TH_STATE({"lr", th_state(0.1)})});
    th_value *saved = through_file(scratch(*state, "rest.pt"), mine), *only = TH_STATE({"model", th_state(model)});
    assert_int_equal(th__state_from_plain(only, saved, true), TH_OK);
    assert_int_equal(th_value_size(saved), 3);
    assert_int_equal(th_value_as_int(th_value_get(th_value_get(saved, "counter"), "count"), 0), 7);
    assert_true(th_value_as_double(th_value_get(th_value_get(saved, "config"), "lr"), 0) == 0.1);
    th_value_free(only);
    th_value_free(saved);
    th_value_free(mine);
    th_module_free(model);
}

static void test_missing_keys(void **state)
{
    th_module *model = th_nn_linear(3, 2);
    fill(model, 1.0);
    th_value *mine = TH_STATE({"model", th_state(model)});
    th_value *saved = through_file(scratch(*state, "missing.pt"), mine);
    fill(model, 2.0);
    th_value *more = TH_STATE({"model", th_state(model)}, {"absent", th_state(42)});
    assert_int_equal(th__state_from_plain(more, saved, true), TH_ERR_KEY);
    assert_non_null(strstr(th_error_message(), "'absent'"));
    th_error_clear();
    assert_true(first_weight(model) == 2.0); /* checked before anything is loaded */
    assert_int_equal(th__state_from_plain(more, saved, false), TH_OK);
    assert_true(first_weight(model) == 1.0);
    assert_int_equal(th_value_as_int(th_value_get(more, "absent"), 0), 42); /* the old value stays */
    th_value_free(more);
    th_value_free(saved);
    th_value_free(mine);
    th_module_free(model);
}

static void test_objects_inside_containers(void **state)
{
    counter a = {.value = 1}, b = {.value = 2};
    th_value *list = th_value_list(), *wrong = th_value_list();
    th_value_append(list, th_value_object(&counter_ops, &a));
    th_value_append(list, th_value_object(&counter_ops, &b));
    th_value *mine =
        TH_STATE({"counters", list}, {"deep", TH_STATE({"a", th_value_object(&counter_ops, &a)}, {"n", th_state(3)})});
    th_value *saved = through_file(scratch(*state, "nested.pt"), mine);
    a.value = b.value = 0;
    assert_int_equal(th__state_from_plain(mine, saved, true), TH_OK);
    assert_int_equal(a.value, 1);
    assert_int_equal(b.value, 2);
    th_value_free(saved);
    saved = through_file(scratch(*state, "nested.pt"), mine);
    th_value_append(wrong, th_value_object(&counter_ops, &a));
    th_value *other = TH_STATE({"counters", wrong});
    assert_int_equal(th__state_from_plain(other, saved, true), TH_ERR_VALUE);
    th_error_clear();
    th_value_free(other);
    th_value_free(saved);
    th_value_free(mine);
}

static void test_failing_objects_name_their_key(void **state)
{
    counter c = {.value = 1};
    th_value *mine = TH_STATE({"mine", th_value_object(&counter_ops, &c)});
    th_value *saved = through_file(scratch(*state, "fail.pt"), mine);
    c.refuse = true;
    assert_int_equal(th__state_from_plain(mine, saved, true), TH_ERR_CALLBACK);
    assert_non_null(strstr(th_error_message(), "'mine'"));
    th_error_clear();
    th_value_free(saved);
    th_value_free(mine);
}

static void test_empty_state_and_bare_state(void **state)
{
    th_value *empty = th_value_dict(), *saved = through_file(scratch(*state, "empty.pt"), empty);
    assert_int_equal(th_value_size(saved), 0);
    th_value_free(saved);
    th_value_free(empty);
    th_module *model = th_nn_linear(3, 2);
    fill(model, 3.0);
    th_value *bare = th_state(model);
    saved = through_file(scratch(*state, "bare.pt"), bare);
    fill(model, 0.0);
    assert_int_equal(th__state_load_raw(bare, saved, true), TH_OK);
    assert_true(first_weight(model) == 3.0);
    assert_int_equal(th__state_load_raw(saved, saved, true), TH_ERR_TYPE);
    th_error_clear();
    th_value_free(saved);
    th_value_free(bare);
    th_module_free(model);
}

/* ---------------------------------------------------------------- filters */

static bool none(const char *name, th_value *item, void *user)
{
    (void)name;
    (void)item;
    (void)user;
    return false;
}
static bool weights(const char *name, th_value *item, void *user)
{
    (void)item;
    (void)user;
    return strstr(name, "weight") != NULL;
}

static void test_filters(void **state)
{
    (void)state;
    th_module *model = th_nn_linear(3, 2);
    th_value *mine = TH_STATE({"model", th_state(model)}, {"int", th_state(1)}, {"config", TH_STATE({"a", th_state(1)})});
    th__state_filter all_false[] = {{"model", none, NULL}, {"int", none, NULL}, {"config", none, NULL}};
    th_value *plain = th__state_to_plain(mine, all_false, 3);
    assert_int_equal(th_value_size(plain), 1); /* what is no dict ignores its filter */
    assert_non_null(th_value_get(plain, "int"));
    th_value_free(plain);
    th__state_filter weight[] = {{"model", weights, NULL}};
    plain = th__state_to_plain(mine, weight, 1);
    assert_int_equal(th_value_size(th_value_get(plain, "model")), 1);
    assert_non_null(th_value_get(th_value_get(plain, "model"), "weight"));
    assert_int_equal(th_value_size(plain), 3);
    th_value_free(plain);
    th__state_filter unknown[] = {{"modle", weights, NULL}}, empty[] = {{"model", NULL, NULL}};
    assert_null(th__state_to_plain(mine, unknown, 1));
    assert_int_equal(th_error_clear(), TH_ERR_VALUE);
    assert_null(th__state_to_plain(mine, empty, 1));
    assert_int_equal(th_error_clear(), TH_ERR_TYPE);
    th_value_free(mine);
    th_module_free(model);
}

/* ---------------------------------------------------------------- in the background */

static void test_background_saves_are_snapshots(void **state)
{
    char *path = scratch(*state, "async.pt");
    TH_SCOPE();
    th_tensor *t = th_call("aten::ones", TH_A_INTS(TH_INTS(1 << 20)));
    th_value *v =
        TH_STATE({"t", th_state(t)}, {"view", th_state(th_call("aten::narrow", TH_A(t), TH_A_INT(0), TH_A_INT(5), TH_A_INT(2)))});
    assert_int_equal(th__checkpoint_write_async(path, v), TH_OK);
    th_call("aten::zero_", TH_A(t)); /* training goes on at once */
    assert_int_equal(th__checkpoint_wait(), TH_OK);
    assert_int_equal(th__checkpoint_wait(), TH_OK);
    th_value *back = th_load(path);
    assert_true(th_item(th_call("aten::sum", TH_A(th_value_as_tensor(th_value_get(back, "t"))))) == 1 << 20);
    assert_ptr_equal(th_storage_id(th_value_as_tensor(th_value_get(back, "t"))),
                     th_storage_id(th_value_as_tensor(th_value_get(back, "view"))));
    th_value_free(back);
    for (int i = 0; i < 5; i++) assert_int_equal(th__checkpoint_write_async(path, v), TH_OK); /* one after the other */
    assert_int_equal(th__checkpoint_wait(), TH_OK);
    th_value_free(v);
}

static void test_background_errors_come_at_the_next_call(void **state)
{
    char *good = scratch(*state, "good.pt");
    th_value *v = th_value_int(1);
    assert_int_equal(th__checkpoint_write_async("/proc/never/x.pt", v), TH_OK);
    assert_int_equal(th__checkpoint_wait(), TH_ERR_IO);
    assert_non_null(strstr(th_error_message(), "/proc/never"));
    th_error_clear();
    assert_int_equal(th__checkpoint_wait(), TH_OK); /* told once */
    assert_int_equal(th__checkpoint_write_async("/proc/never/x.pt", v), TH_OK);
    assert_int_equal(th__checkpoint_write_async(good, v), TH_ERR_IO); /* the next save tells it, too */
    th_error_clear();
    assert_int_equal(th__checkpoint_write_async(good, v), TH_OK);
    assert_int_equal(th__checkpoint_wait(), TH_OK);
    assert_true(exists(good));
    th_value_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_in_place_load_and_nothing_left),
        CASE(test_what_was_not_asked_for_is_returned),
        CASE(test_missing_keys),
        CASE(test_objects_inside_containers),
        CASE(test_failing_objects_name_their_key),
        CASE(test_empty_state_and_bare_state),
        CASE(test_filters),
        CASE(test_background_saves_are_snapshots),
        CASE(test_background_errors_come_at_the_next_call),
    };
    return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}
