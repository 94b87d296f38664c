/* The scaler in a precision: overflows, other ranks, state (semantics 11.3; BC-032, BC-049). */
#include "looking_model.h"

/* ---- the scaler in a precision */

typedef struct training {
    fabric_precision *precision;
    th_module *model;
    th_optimizer *sgd;
} training;

static bool training_start(training *t)
{
    if (!th__half_works_on_cpu()) {
        assert_null(fabric_precision_mixed("16-mixed", .device = TH_DEVICE_CPU));
        expect_error(TH_ERR_UNAVAILABLE, "16-mixed");
        return false;
    }
    t->precision =
        fabric_precision_mixed("16-mixed", .device = TH_DEVICE_CPU, .scaler = th_grad_scaler_new(.init_scale = 1024.0));
    t->model = model_new();
    t->sgd = th_optim_sgd(th_parameters(t->model), .lr = 0.1);
    return true;
}

static void training_end(training *t)
{
    th_optimizer_free(t->sgd);
    th_module_free(t->model);
    fabric_precision_free(t->precision);
}

static void training_backward(training *t)
{
    th_optimizer_zero_grad(t->sgd);
    struct th_backward_args args = {.tensor = th_sum(forward(t->precision, t->model, th_ones(TH_INTS(1, 32))))};
    assert_int_equal(fabric_precision_backward(t->precision, t->model, &args), TH_OK);
}

static double first_weight(training *t)
{
    return th_item(th_select_int(th_flatten_using_ints(th_module_parameter(t->model, "weight")), 0, 0));
}

/* BC-032: unscale, clip, step; an overflow skips the step and lowers the scale, the next step is normal. */
static void overflow_skips_one_step(void **state)
{
    (void)state;
    TH_SCOPE();
    training t;
    if (!training_start(&t)) return;
    th_grad_scaler *scaler = fabric_precision_scaler(t.precision);
    th_tensor *weight = th_module_parameter(t.model, "weight");
    training_backward(&t);
    assert_true(th_item(th_max(th_grad(weight))) == 1024.0); /* scaled */
    assert_int_equal(fabric_precision_unscale_gradients(t.precision, t.sgd), TH_OK);
    assert_true(th_item(th_max(th_grad(weight))) == 1.0);
    assert_false(fabric__precision_found_overflow(t.precision, t.sgd));
    th_tensor *norm = th_nn_utils_clip_grad_norm_(TH_TENSORS(weight), 4.0);
    assert_true(fabs(th_item(norm) - 8.0) < 1e-5); /* 64 gradients of 1 */
    fabric_precision_optimizer_step(t.precision, t.sgd, NULL, NULL);
    assert_true(fabs(first_weight(&t) - (0.01 - 0.1 * 0.5)) < 1e-6);

    double before = first_weight(&t);
    training_backward(&t);
    th_fill_scalar_(th_select_int(th_flatten_using_ints(th_grad(weight)), 0, 3), TH_S((double)INFINITY));
    assert_int_equal(fabric_precision_unscale_gradients(t.precision, t.sgd), TH_OK);
    assert_true(fabric__precision_found_overflow(t.precision, t.sgd));
    fabric_precision_optimizer_step(t.precision, t.sgd, NULL, NULL);
    assert_int_equal(th_error(), TH_OK);
    assert_true(first_weight(&t) == before);
    assert_true(th_grad_scaler_get_scale(scaler) == 512.0);

    training_backward(&t);
    fabric_precision_optimizer_step(t.precision, t.sgd, NULL, NULL);
    assert_true(first_weight(&t) != before);
    training_end(&t);
}

/* BC-049: flags of all ranks count. A strategy of "two ranks" whose other rank says what the test wants. */
static bool other_rank_is_fine;
static int asked;
static int two(fabric_strategy *s)
{
    (void)s;
    return 2;
}
static bool reduce(fabric_strategy *s, bool decision, bool all)
{
    (void)s;
    assert_true(all);
    asked++;
    return decision && other_rank_is_fine;
}
static const fabric_strategy_ops two_ranks = {
    .size = sizeof(fabric_strategy_ops), .name = "TwoRanks", .world_size = two, .reduce_boolean_decision = reduce};

static void overflow_on_another_rank(void **state)
{
    (void)state;
    TH_SCOPE();
    training t;
    if (!training_start(&t)) return;
    fabric_strategy *strategy = fabric_strategy_new(&two_ranks, NULL);
    fabric_strategy_set_precision(strategy, fabric_precision_retain(t.precision));
    fabric__precision_bind(t.precision, strategy);
    double before = first_weight(&t);
    asked = 0;
    other_rank_is_fine = false;
    training_backward(&t);
    fabric_precision_optimizer_step(t.precision, t.sgd, NULL, NULL);
    assert_int_equal(asked, 1);
    assert_true(first_weight(&t) == before);
    assert_true(th_grad_scaler_get_scale(fabric_precision_scaler(t.precision)) == 512.0);
    other_rank_is_fine = true;
    training_backward(&t);
    fabric_precision_unscale_gradients(t.precision, t.sgd); /* asks once, not again in the step */
    fabric_precision_optimizer_step(t.precision, t.sgd, NULL, NULL);
    assert_int_equal(asked, 2);
    assert_true(first_weight(&t) != before);
    fabric_strategy_free(strategy);
    assert_null(fabric__precision_strategy(t.precision)); /* unbound with the strategy's end */
    training_end(&t);
}

static th_tensor *closure(void *user)
{
    (void)user;
    return NULL;
}

static void what_a_scaler_cannot_do(void **state)
{
    (void)state;
    TH_SCOPE();
    training t;
    if (!training_start(&t)) return;
    th_optimizer *lbfgs = th_optim_lbfgs(th_parameters(t.model), .lr = 0.1);
    fabric_precision_optimizer_step(t.precision, lbfgs, NULL, NULL);
    expect_error(TH_ERR_TYPE, "LBFGS");
    fabric_precision_optimizer_step(t.precision, t.sgd, closure, NULL);
    expect_error(TH_ERR_RUNTIME, "closure");
    fabric_precision_optimizer_step(t.precision, t.sgd, NULL, NULL); /* th_backward without the scaler */
    expect_error(TH_ERR_RUNTIME, "nothing was scaled");
    th_optimizer_free(lbfgs);
    training_end(&t);
}

static void state_of_a_scaler(void **state)
{
    (void)state;
    TH_SCOPE();
    training t;
    if (!training_start(&t)) return;
    th_value *saved = fabric_precision_state_dict(t.precision);
    assert_true(th_value_as_double(th_value_get(saved, "scale"), 0) == 1024.0);
    th_value_set(saved, "scale", th_value_double(64.0));
    assert_int_equal(fabric_precision_load_state_dict(t.precision, saved), TH_OK);
    assert_true(th_grad_scaler_get_scale(fabric_precision_scaler(t.precision)) == 64.0);
    th_value_free(saved);
    training_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(overflow_skips_one_step),
        TEST(overflow_on_another_rank),
        TEST(what_a_scaler_cannot_do),
        TEST(state_of_a_scaler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
