/* script_test.c: a module exported by Python trains here as it trains there, and goes back. */
#include "checkpoint_python.h"

#include <cfabric/nn_modules.h>
#include <cfabric/optimizers.h>

static int count_names(const char *name, th_tensor *tensor, void *user)
{
    (void)tensor;
    *(bool *)user |= strcmp(name, "body.0.weight") == 0;
    return 0;
}

static void test_load_train_save(void **state)
{
    run_script("script_make", *state);
    th_module *net = th_nn_script_load(scratch(*state, "net.pt"));
    if (net == NULL) fail_msg("%s", th_error_message());
    assert_string_equal(th_module_class(net), "Net");
    assert_true(th_is_training(net));
    bool found = false;
    th_named_parameters(net, count_names, &found);
    assert_true(found);
    assert_false(th_requires_grad(th_module_parameter(net, "frozen")));
    assert_non_null(th_module_buffer(net, "body.1.running_mean"));
    TH_SCOPE();
    th_tensors all = th_parameters(net);
    assert_int_equal(all.size, 7);
    th_tensor *some[7];
    size_t n = 0;
    for (size_t i = 0; i < all.size; i++)
        if (th_requires_grad(all.data[i])) some[n++] = all.data[i];
    th_optimizer *optimizer = th_optim_sgd(((th_tensors){some, n}), .lr = 0.1);
    th_tensor *x = th_call("aten::linspace", TH_A_SCALAR(TH_S(-1)), TH_A_SCALAR(TH_S(1)), TH_A_INT(24));
    x = th_call("aten::view", TH_A(x), TH_A_INTS(TH_INTS(6, 4)));
    for (int step = 0; step < 3; step++) {
        th_optimizer_zero_grad(optimizer);
        th_tensor *loss = th_call("aten::mean", TH_A(th_call("aten::square", TH_A(th_forward(net, x)))));
        assert_int_equal(th_backward(loss), TH_OK);
        assert_int_equal(th_optimizer_step(optimizer), TH_OK);
    }
    th_value *expected = th_load(scratch(*state, "trained.pt")), *mine = th_module_state_dict(net);
    assert_int_equal(th_value_size(mine), th_value_size(expected));
    for (size_t i = 0; i < th_value_size(expected); i++) {
        const char *name = th_value_key_at(expected, i, NULL);
        th_tensor *have = th_value_as_tensor(th_value_get(mine, name));
        assert_non_null(have);
        th_tensor *gap = th_call("aten::sub.Tensor", TH_A(have), TH_A(th_value_as_tensor(th_value_at(expected, i))));
        assert_true(th_item(th_call("aten::max", TH_A(th_call("aten::abs", TH_A(gap))))) <= 1e-6);
    }
    th_eval(net);
    assert_int_equal(th_nn_script_save(net, scratch(*state, "again.pt")), TH_OK);
    run_script("script_check", *state);
    th_module *again = th_nn_script_load(scratch(*state, "again.pt"));
    assert_non_null(again);
    assert_false(th_is_training(again));
    th_module_free(again);
    th_value_free(mine);
    th_value_free(expected);
    th_optimizer_free(optimizer);
    th_module_free(net);
}

static void test_errors(void **state)
{
    char *path = scratch(*state, "bad.pt");
    assert_null(th_nn_script_load(scratch(*state, "absent.pt")));
    assert_int_equal(th_error_clear(), TH_ERR_NOT_FOUND);
    spit(path, "this is text", 12);
    assert_null(th_nn_script_load(path));
    assert_non_null(strstr(th_error_message(), "bad.pt"));
    th_error_clear();
    th_module *linear = th_nn_linear(2, 2);
    assert_int_equal(th_nn_script_save(linear, path), TH_ERR_TYPE);
    th_error_clear();
    th_module_free(linear);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(test_load_train_save), CASE(test_errors)};
    return cmocka_run_group_tests_name("script", tests, NULL, NULL);
}
