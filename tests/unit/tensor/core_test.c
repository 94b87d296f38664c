/* The door: operators, scopes, errors, autograd. */
#include <cfabric/autograd.h>
#include <cfabric/error.h>
#include <cfabric/ops.h>
#include <cfabric/value.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int setup(void **state)
{
    (void)state;
    th_error_clear();
    return 0;
}

static int no_leaks(void **state)
{
    (void)state;
    th_error_clear();
    return th_scope_live() == 0 ? 0 : -1;
}

static void operators_with_keywords(void **state)
{
    (void)state;
    TH_SCOPE();
    th_tensor *x = th_tensor_from((float[]){1, -2, 3, -4}, TH_INTS(2, 2), TH_FLOAT32);
    th_tensor *y = th_add(x, th_ones(TH_INTS(2, 2)), .alpha = TH_S(2));
    float out[4];
    assert_int_equal(th_copy_to(th_relu(y), out, sizeof out, TH_FLOAT32), TH_OK);
    assert_true(out[0] == 3.0f && out[1] == 0.0f && out[2] == 5.0f && out[3] == 0.0f);
    struct th_max_dim_result m = th_max_dim(x, 1);
    assert_true(th_item(th_select_int(m.values, 0, 1)) == 3.0);
    assert_int_equal(th_item_int(th_select_int(m.indices, 0, 1)), 0);
    assert_int_equal(th_dtype_of(th_zeros(TH_INTS(3), .dtype = TH_FLOAT64)), TH_FLOAT64);
    th_tensors parts = th_split(th_arange(TH_S(10)), 3);
    assert_int_equal(parts.size, 4);
    assert_int_equal(th_numel(parts.data[3]), 1);
    assert_ptr_equal(th_add_(x, y), x);
    assert_true(th_equal(x, x));
    assert_int_equal(th_size(th_conv2d(th_ones(TH_INTS(1, 1, 8, 8)), th_ones(TH_INTS(2, 1, 3, 3)), .stride = TH_INTS(2)), -1), 3);
    assert_int_equal(th_error(), TH_OK);
}

static void errors_stick_and_pass_through(void **state)
{
    (void)state;
    TH_SCOPE();
    th_tensor *a = th_ones(TH_INTS(8, 3)), *b = th_ones(TH_INTS(4, 8));
    assert_null(th_relu(th_mm(a, b)));
    assert_int_equal(th_error(), TH_ERR_ENGINE);
    assert_non_null(strstr(th_error_message(), "8x3 and 4x8"));
    assert_null(strstr(th_error_message(), "\n"));
    assert_null(strstr(th_error_message(), "Exception raised"));
    char first[256];
    strncpy(first, th_error_message(), sizeof first - 1);
    first[255] = 0;
    assert_true(isnan(th_item(a)));
    assert_int_equal(th_backward(a), TH_ERR_ENGINE);
    assert_string_equal(th_error_message(), first);
    assert_int_equal(th_error_clear(), TH_ERR_ENGINE);
    assert_null(th_relu(NULL));
    assert_non_null(strstr(th_error_message(), "self"));
    th_error_clear();
    assert_null(th_call("aten::no_such_operator", TH_A(a)));
    assert_int_equal(th_error_clear(), TH_ERR_KEY);
}

static void scopes_keep_escape_assign(void **state)
{
    (void)state;
    th_tensor *slot = NULL, *kept;
    for (int i = 0; i < 5; i++) {
        TH_SCOPE();
        th_assign(&slot, th_full(TH_INTS(2), TH_S((double)i)));
        if (i == 2) continue;
        th_drop(th_ones(TH_INTS(3)));
    }
    assert_int_equal(th_scope_live(), 0);
    assert_true(th_item(th_select_int(slot, 0, 0)) == 4.0);
    int outer = th_scope_push();
    th_tensor *escaped;
    {
        TH_SCOPE();
        kept = th_keep(th_ones(TH_INTS(1)));
        th_ones(TH_INTS(1));
        escaped = th_escape(th_full(TH_INTS(1), TH_S(7)));
    }
    assert_true(th_item(escaped) == 7.0);
    th_scope_pop(outer);
    th_free(kept);
    th_free(slot);
    th_drop(NULL);
    th_free(NULL);
    /* th_select_int above went to the root scope */
    assert_int_equal(th_scope_live(), 1);
}

static int hook_calls;
static th_tensor *double_it(th_tensor *grad, void *user)
{
    (void)user;
    hook_calls++;
    return th_mul_scalar(grad, TH_S(2.0));
}

static th_status count_leaf(th_tensor *leaf, void *user)
{
    (void)leaf;
    ++*(int *)user;
    return TH_OK;
}

static th_status refuse(th_tensor *leaf, void *user)
{
    (void)leaf;
    (void)user;
    return th_error_set(TH_ERR_VALUE, "no more of %d", 3);
}

static void gradients_and_hooks(void **state)
{
    (void)state;
    TH_SCOPE();
    int leaves = 0;
    th_tensor *w = th_requires_grad_(th_ones(TH_INTS(3)), true);
    th_hook *h1 = th_register_hook(w, double_it, NULL);
    th_hook *h2 = th_register_post_accumulate_grad_hook(w, count_leaf, &leaves);
    assert_int_equal(th_backward(th_sum(th_mul(w, w)), .retain_graph = TH_SOME_BOOL(false)), TH_OK);
    assert_int_equal(hook_calls, 1);
    assert_int_equal(leaves, 1);
    assert_true(th_item(th_select_int(th_grad(w), 0, 0)) == 4.0);
    th_hook_remove(h1);
    th_hook_remove(h2);
    th_set_grad(w, NULL);
    th_backward(th_sum(th_mul(w, w)));
    assert_int_equal(hook_calls, 1);
    th_hook *h3 = th_register_post_accumulate_grad_hook(w, refuse, NULL);
    assert_int_equal(th_backward(th_sum(w)), TH_ERR_VALUE);
    assert_string_equal(th_error_message(), "no more of 3");
    th_error_clear();
    th_hook_remove(h3);
    th_tensors g = th_autograd_grad(TH_TENSORS(th_sum(th_pow_tensor_scalar(w, TH_S(3)))), TH_TENSORS(w), .create_graph = true);
    assert_true(th_item(th_select_int(g.data[0], 0, 0)) == 3.0 && th_requires_grad(g.data[0]));
    {
        TH_NO_GRAD();
        assert_false(th_requires_grad(th_mul(w, w)));
    }
    assert_true(th_is_grad_enabled());
}

static th_tensors cube_forward(th_function_ctx *ctx, th_tensors in, void *user)
{
    (void)user;
    th_save_for_backward(ctx, TH_TENSORS(in.data[0]));
    return th_list(TH_TENSORS(th_mul(in.data[0], th_mul(in.data[0], in.data[0]))));
}

static th_tensors cube_backward(th_function_ctx *ctx, th_tensors grads, void *user)
{
    (void)user;
    th_tensor *x = th_saved_tensors(ctx).data[0];
    return th_list(TH_TENSORS(th_mul(grads.data[0], th_mul_scalar(th_mul(x, x), TH_S(3.0))), NULL));
}

static void count_free(void *user) { ++*(int *)user; }

static void functions_in_c(void **state)
{
    (void)state;
    static const th_function cube = {sizeof(th_function), "Cube", cube_forward, cube_backward, count_free};
    int freed = 0;
    {
        TH_SCOPE();
        th_tensor *x = th_requires_grad_(th_full(TH_INTS(2), TH_S(2.0)), true);
        th_tensors y = th_function_apply(&cube, TH_TENSORS(x, NULL), &freed);
        assert_int_equal(y.size, 1);
        assert_int_equal(th_backward(th_sum(y.data[0])), TH_OK);
        assert_true(th_item(th_select_int(th_grad(x), 0, 1)) == 12.0);
    }
    assert_int_equal(freed, 1);
}

static void memory_in_and_out(void **state)
{
    (void)state;
    int freed = 0;
    static float data[6] = {1, 2, 3, 4, 5, 6};
    {
        TH_SCOPE();
        th_tensor *t = th_from_blob(data, TH_INTS(2, 3), TH_FLOAT32, .deleter = NULL);
        th_mul_scalar_(t, TH_S(2));
        assert_true(data[5] == 12.0f);
        struct th_from_blob_args a = {.data = data, .sizes = TH_INTS(3, 2), .dtype = TH_FLOAT32, .strides = TH_INTS(1, 3)};
        assert_true(th_item(th_select_int(th_select_int(th_from_blob_call(a), 0, 2), 0, 1)) == 12.0);
        float small[2];
        assert_int_equal(th_copy_to(t, small, sizeof small, TH_FLOAT32), TH_ERR_VALUE);
        th_error_clear();
        assert_null(th_tensor_from(NULL, TH_INTS(2), TH_FLOAT32));
        th_error_clear();
    }
    (void)freed;
}

static void random_numbers(void **state)
{
    (void)state;
    TH_SCOPE();
    th_manual_seed(7);
    th_tensor *rng = th_get_rng_state();
    th_tensor *a = th_rand(TH_INTS(4));
    th_set_rng_state(rng);
    assert_true(th_equal(a, th_rand(TH_INTS(4))));
    th_generator *g = th_generator_new(TH_CPU);
    th_generator_manual_seed(g, 1);
    int64_t order[8];
    th_copy_to(th_randperm_generator(8, g), order, sizeof order, TH_INT64);
    assert_memory_equal(order, ((int64_t[]){5, 4, 2, 6, 7, 3, 1, 0}), sizeof order);
    th_generator_free(g);
}

static void values(void **state)
{
    (void)state;
    TH_SCOPE();
    th_value *v = TH_STATE({"a", th_state(1)}, {"b", th_state(2.5)}, {"name", th_state("x")}, {"t", th_state(th_ones(TH_INTS(2)))});
    th_value *list = th_value_list();
    th_value_append(list, th_value_none());
    th_value_set(v, "list", list);
    th_value_set_int(v, 3, th_value_bool(true));
    th_value *w = th_value_copy(v, true);
    assert_true(th_value_equal(v, w));
    th_value_set(w, "a", th_value_int(2));
    assert_false(th_value_equal(v, w));
    assert_true(th_value_remove(w, "b"));
    assert_int_equal(th_value_size(w), 5);
    char *text = th_value_to_string(v);
    assert_string_equal(text, "{'a': 1, 'b': 2.5, 'name': 'x', 't': tensor(float32, [2]), 'list': [None], 3: True}");
    free(text);
    assert_int_equal(th_value_append(v, th_value_int(1)), TH_ERR_TYPE);
    th_error_clear();
    th_value_free(v);
    th_value_free(w);
}

int main(void)
{
    th_set_error_policy(TH_ERROR_RETURN, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(operators_with_keywords, setup, no_leaks),
        cmocka_unit_test_setup_teardown(errors_stick_and_pass_through, setup, no_leaks),
        cmocka_unit_test_setup_teardown(gradients_and_hooks, setup, no_leaks),
        cmocka_unit_test_setup_teardown(functions_in_c, setup, no_leaks),
        cmocka_unit_test_setup_teardown(memory_in_and_out, setup, no_leaks),
        cmocka_unit_test_setup_teardown(random_numbers, setup, no_leaks),
        cmocka_unit_test_setup_teardown(values, setup, no_leaks),
        cmocka_unit_test_setup(scopes_keep_escape_assign, setup),
    };
    return cmocka_run_group_tests_name("tensor", tests, NULL, NULL);
}
