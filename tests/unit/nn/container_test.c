/* Containers: what Sequential drops and what it leaves alone, who owns the modules; and every allocation failing once. */
#include "nn_support.h"

static size_t live_in_layer;
static th_tensor *watch(th_module *self, th_tensor *input)
{
    (void)self;
    live_in_layer = th_scope_live();
    return th_add_scalar(input, TH_S(1.0));
}

static void sequential_drops_the_previous_output(void **state)
{
    (void)state;
    TH_SCOPE();
    TH_NO_GRAD();
    th_module *m = th_nn_sequential();
    for (int i = 0; i < 6; i++) th_nn_append(m, th_module_new("Watch", .forward = watch));
    th_tensor *x = th_zeros(TH_INTS(1));
    size_t before = th_scope_live();
    th_tensor *y = th_forward(m, x);
    assert_true(th_item(y) == 6.0);
    assert_int_equal(live_in_layer, before + 1); /* only the last layer's own input */
    assert_true(th_item(x) == 0.0);
    th_module_free(m);
}

static th_tensor *outer;
static th_tensor *gives_outer(th_module *self, th_tensor *input) { return (void)self, (void)input, outer; }

static void sequential_leaves_tensors_of_outer_scopes_alone(void **state)
{
    (void)state;
    TH_SCOPE();
    outer = th_full(TH_INTS(1), TH_S(4.0));
    th_module *m =
        th_nn_sequential(th_nn_identity(), th_module_new("Outer", .forward = gives_outer), th_nn_relu(true), th_nn_identity());
    assert_true(th_item(th_forward(m, th_zeros(TH_INTS(1)))) == 4.0);
    assert_true(th_item(outer) == 4.0);
    th_module_free(m);
}

static void containers_own_what_they_are_given(void **state)
{
    (void)state;
    expect_error(th_nn_sequential(th_nn_relu(), NULL, th_nn_relu()) == NULL, TH_ERR_TYPE, "module 1 is NULL");
    assert_int_equal(live_modules(), 0);
    expect_error(th_nn_sequential(th_nn_relu(), th_nn_dropout(2.0), th_nn_relu()) == NULL, TH_ERR_VALUE, "p 2");
    assert_int_equal(live_modules(), 0);
    th_module *list = th_nn_module_list(th_nn_relu());
    TH_SCOPE();
    expect_error(th_forward(list, th_zeros(TH_INTS(1))) == NULL, TH_ERR_NOT_IMPLEMENTED, "ModuleList has no forward");
    th_module_free(list);
}

static void allocation_failures_leak_nothing(void **state)
{
    (void)state;
    bool complete = false;
    for (long n = 1; !complete; n++) {
        {
            TH_SCOPE();
            th__fail_allocation(n);
            th_module *m = th_nn_sequential(th_nn_linear(2, 2), th_nn_batch_norm1d(2), th_nn_lstm(2, 2), th_nn_embedding(3, 2));
            th_module *t = th_nn_transformer(2, 1, 1, 1, 2);
            th_value *dict = th_module_state_dict(m);
            char *text = th_module_to_string(m);
            if (m != NULL) th_module_load_state_dict(m, dict, true);
            th__fail_allocation(0);
            complete = th_error() == TH_OK;
            assert_true(complete || th_error() == TH_ERR_MEMORY);
            free(text);
            th_value_free(dict);
            th_module_free(m);
            th_module_free(t);
        }
        th_error_clear();
        assert_int_equal(live_modules(), 0);
        assert_int_equal(th_scope_live(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sequential_drops_the_previous_output),
        TEST(sequential_leaves_tensors_of_outer_scopes_alone),
        TEST(containers_own_what_they_are_given),
        TEST(allocation_failures_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
