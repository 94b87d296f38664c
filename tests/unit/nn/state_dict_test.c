/* State dicts: key names and order, strict loading and its report, prefixes, sharing. */
#include "nn_support.h"

#include <stdio.h>

static th_module *small(void) { return th_nn_sequential(th_nn_linear(2, 3), th_nn_batch_norm1d(3), th_nn_linear(3, 1)); }

static void keys_are_pytorchs(void **state)
{
    (void)state;
    th_module *m = small();
    th_value *dict = th_module_state_dict(m);
    static const char *const keys[] = {
        "0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked",
        "2.weight", "2.bias"};
    assert_int_equal(th_value_size(dict), 9);
    for (size_t i = 0; i < 9; i++) assert_string_equal(th_value_key_at(dict, i, NULL), keys[i]);
    th_tensor *weight = th_value_as_tensor(th_value_get(dict, "0.weight"));
    assert_false(th_requires_grad(weight));
    assert_ptr_equal(th_storage_id(weight), th_storage_id(th_module_parameter(m, "0.weight")));
    th_value_free(dict);
    th_module_free(m);
}

static void loading_copies_the_values(void **state)
{
    (void)state;
    TH_SCOPE();
    th_module *a = small(), *b = small();
    th_value *dict = th_module_state_dict(a);
    th_tensor *before = th_module_parameter(b, "2.weight");
    assert_int_equal(th_module_load_state_dict(b, dict, true), TH_OK);
    assert_ptr_equal(th_module_parameter(b, "2.weight"), before);
    th_value *loaded = th_module_state_dict(b);
    assert_true(th_value_equal(dict, loaded));
    assert_ptr_not_equal(th_storage_id(before), th_storage_id(th_module_parameter(a, "2.weight")));
    assert_true(th_requires_grad(before));
    th_value_free(dict);
    th_value_free(loaded);
    th_module_free(a);
    th_module_free(b);
}

static void strict_errors_name_the_keys(void **state)
{
    (void)state;
    TH_SCOPE();
    th_module *m = small();
    th_value *dict = th_module_state_dict(m), *whole = th_value_copy(dict, true);
    th_value_remove(dict, "0.bias");
    th_value_set(dict, "0.biass", th_value_tensor(th_zeros(TH_INTS(3))));
    th_value_set(dict, "2.weight", th_value_tensor(th_zeros(TH_INTS(1, 4))));
    th_value_set(dict, "1.weight", th_value_int(3));
    expect_error(th_module_load_state_dict(m, dict, true) != TH_OK, TH_ERR_RUNTIME, "missing: 0.bias (the state has '0.biass')");
    th_module_load_state_dict(m, dict, true);
    assert_non_null(strstr(th_error_message(), "unexpected: 0.biass"));
    assert_non_null(strstr(th_error_message(), "2.weight is [1, 4] in the state, [1, 3] in the module"));
    assert_non_null(strstr(th_error_message(), "1.weight is int"));
    assert_null(strchr(th_error_message(), '\n'));
    th_error_clear();
    th_value *after = th_module_state_dict(m); /* nothing was changed */
    assert_true(th_value_equal(whole, after));
    th_value_free(after);
    th_value_free(whole);
    th_value_free(dict);
    th_module_free(m);
}

static void not_strict_loads_what_is_there(void **state)
{
    (void)state;
    TH_SCOPE();
    th_module *m = small();
    th_value *dict = th_value_dict();
    th_value_set(dict, "0.bias", th_value_tensor(th_full(TH_INTS(3), TH_S(9.0))));
    th_value_set(dict, "other", th_value_tensor(th_zeros(TH_INTS(1))));
    assert_int_equal(th_module_load_state_dict(m, dict, false), TH_OK);
    assert_true(th_item(th_select_int(th_module_parameter(m, "0.bias"), 0, 2)) == 9.0);
    th_value_set(dict, "0.bias", th_value_tensor(th_zeros(TH_INTS(4))));
    expect_error(th_module_load_state_dict(m, dict, false) != TH_OK, TH_ERR_RUNTIME, "mismatched: 0.bias");
    th_value_free(dict);
    th_module_free(m);
}

/* BC-062: a state with another prefix loads nothing, which must not look like success. */
static void no_key_in_common_is_an_error(void **state)
{
    (void)state;
    th_module *m = small();
    th_value *dict = th_module_state_dict(m), *prefixed = th_state_dict_renamed(dict, "", "module.");
    assert_string_equal(th_value_key_at(prefixed, 0, NULL), "module.0.weight");
    expect_error(th_module_load_state_dict(m, prefixed, false) != TH_OK, TH_ERR_KEY, "with 'module.' in front");
    expect_error(th_module_load_state_dict(m, prefixed, true) != TH_OK, TH_ERR_KEY, "th_state_dict_renamed");
    th_value *back = th_state_dict_renamed(prefixed, "module.", "");
    assert_true(th_value_equal(dict, back));
    assert_int_equal(th_module_load_state_dict(m, back, true), TH_OK);
    th_value *nothing = th_value_dict();
    expect_error(th_module_load_state_dict(m, nothing, false) != TH_OK, TH_ERR_KEY, "no key of the state fits Sequential");
    expect_error(th_module_load_state_dict(m, NULL, true) != TH_OK, TH_ERR_TYPE, "expected a dict");
    th_module *stateless = th_nn_relu();
    assert_int_equal(th_module_load_state_dict(stateless, nothing, true), TH_OK);
    th_module_free(stateless);
    th_value_free(nothing);
    th_value_free(back);
    th_value_free(prefixed);
    th_value_free(dict);
    th_module_free(m);
}

static void long_reports_are_counted(void **state)
{
    (void)state;
    th_module *m = th_nn_sequential();
    for (int i = 0; i < 20; i++) th_nn_append(m, th_nn_prelu());
    th_value *dict = th_module_state_dict(m);
    for (int i = 1; i < 20; i++) {
        char key[32];
        snprintf(key, sizeof key, "%d.weight", i);
        th_value_remove(dict, key);
    }
    expect_error(th_module_load_state_dict(m, dict, true) != TH_OK, TH_ERR_RUNTIME, "and 11 more");
    th_value_free(dict);
    th_module_free(m);
}

static void a_module_is_a_stateful_object(void **state)
{
    (void)state;
    TH_SCOPE();
    th_module *a = small(), *b = small();
    th_value *live = th_state(a);
    void *object = NULL;
    const th_stateful *ops = th_value_as_object(live, &object);
    assert_ptr_equal(object, a);
    assert_string_equal(ops->type, "module");
    th_value *dict = ops->state_dict(object);
    assert_int_equal(ops->load_state_dict(b, dict, true), TH_OK);
    assert_true(th_item(th_all(th_eq(th_module_parameter(a, "0.weight"), th_module_parameter(b, "0.weight")))) == 1.0);
    th_value_free(dict);
    th_value_free(live);
    th_module_free(a);
    th_module_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(keys_are_pytorchs),
        TEST(loading_copies_the_values),
        TEST(strict_errors_name_the_keys),
        TEST(not_strict_loads_what_is_there),
        TEST(no_key_in_common_is_an_error),
        TEST(long_reports_are_counted),
        TEST(a_module_is_a_stateful_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
