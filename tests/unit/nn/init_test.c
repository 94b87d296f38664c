/* Initialisers: gains, fans, wrong arguments, and orthogonality. Their numbers are compared with PyTorch in the golden test. */
#include "nn_support.h"

#include <math.h>

static void gains_are_pytorchs(void **state)
{
    (void)state;
    assert_true(th_nn_init_calculate_gain("linear") == 1.0);
    assert_true(th_nn_init_calculate_gain("tanh") == 5.0 / 3);
    assert_true(th_nn_init_calculate_gain("relu") == sqrt(2.0));
    assert_true(th_nn_init_calculate_gain("leaky_relu") == sqrt(2.0 / (1 + 0.01 * 0.01)));
    assert_true(th_nn_init_calculate_gain("leaky_relu", TH_DOUBLE(0.2)) == sqrt(2.0 / (1 + pow(0.2, 2))));
    assert_true(th_nn_init_calculate_gain("selu") == 0.75);
    expect_error(isnan(th_nn_init_calculate_gain("swish")), TH_ERR_VALUE, "'swish' is not known");
}

static void fans_need_two_dimensions(void **state)
{
    (void)state;
    TH_SCOPE();
    int64_t in = 0, out = 0;
    assert_true(th_nn_init_fans(th_zeros(TH_INTS(6, 4, 3, 5)), &in, &out));
    assert_int_equal(in, 60);
    assert_int_equal(out, 90);
    expect_error(!th_nn_init_fans(th_zeros(TH_INTS(6)), &in, &out), TH_ERR_VALUE, "1 dimensions");
    expect_error(th_nn_init_xavier_uniform_(th_zeros(TH_INTS(6))) == NULL, TH_ERR_VALUE, "at least 2");
    expect_error(th_nn_init_kaiming_uniform_(th_zeros(TH_INTS(6, 2)), .mode = "fan") == NULL, TH_ERR_VALUE, "'fan'");
    expect_error(th_nn_init_orthogonal_(th_zeros(TH_INTS(6))) == NULL, TH_ERR_VALUE, "at least 2");
}

static void they_work_on_parameters_and_return_them(void **state)
{
    (void)state;
    TH_SCOPE();
    th_module *m = th_nn_linear(3, 4);
    th_tensor *w = th_module_parameter(m, "weight");
    size_t before = th_scope_live();
    assert_ptr_equal(th_nn_init_constant_(w, 2.5), w);
    assert_true(th_item(th_select_int(th_select_int(w, 0, 1), 0, 1)) == 2.5);
    assert_ptr_equal(th_nn_init_uniform_(w, 2.0, 3.0), w);
    assert_ptr_equal(th_nn_init_trunc_normal_(w, .std = 3.0), w);
    assert_true(th_requires_grad(w) && th_is_leaf_of(w));
    assert_true(th_scope_live() >= before);
    th_module_free(m);
}

static void orthogonal_rows(void **state)
{
    (void)state;
    TH_SCOPE();
    th_tensor *w = th_nn_init_orthogonal_(th_zeros(TH_INTS(3, 5), .dtype = TH_FLOAT64), .gain = 2.0);
    th_tensor *gram = th_matmul(w, th_t(w)), *wanted = th_mul_scalar(th_eye(3, .dtype = TH_FLOAT64), TH_S(4.0));
    assert_true(th_item(th_max(th_abs(th_sub(gram, wanted)))) < 1e-12);
}

static void an_own_generator_is_used(void **state)
{
    (void)state;
    TH_SCOPE();
    th_generator *g = th_generator_new(TH_CPU);
    th_generator_manual_seed(g, 5);
    th_tensor *a = th_nn_init_normal_(th_zeros(TH_INTS(4)), .generator = g);
    th_manual_seed(5);
    th_tensor *b = th_nn_init_normal_(th_zeros(TH_INTS(4)));
    assert_true(th_item(th_all(th_eq(a, b))) == 1.0);
    th_generator_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gains_are_pytorchs), TEST(fans_need_two_dimensions), TEST(they_work_on_parameters_and_return_them),
        TEST(orthogonal_rows),    TEST(an_own_generator_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
