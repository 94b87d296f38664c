/* unit/optim/scheduler_test.c: schedules against closed numbers, state dicts, errors, order warnings. Bits are the golden test's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/object.h"
#include <cfabric/autograd.h>
#include <cfabric/ops.h>
#include <cfabric/optimizers.h>
#include <cfabric/schedulers.h>
#include <math.h>
#include <string.h>

static th_tensor *leaf(void) { return th_requires_grad_(th_ones(TH_INTS(2)), true); }

static void assert_error(th_status status, const char *part)
{
    assert_int_equal(th_error(), status);
    if (strstr(th_error_message(), part) == NULL) fail_msg("'%s' does not contain '%s'", th_error_message(), part);
    th_error_clear();
}

static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-12 + 1e-9 * fabs(expected))) fail_msg("%.17g, expected %.17g", value, expected);
}

static double next(th_optimizer *opt, th_scheduler *scheduler)
{
    assert_int_equal(th_optimizer_step(opt), TH_OK);
    assert_int_equal(th_scheduler_step(scheduler), TH_OK);
    assert_true(th_scheduler_last_lr(scheduler) == th_optimizer_lr(opt));
    return th_optimizer_lr(opt);
}

static void step_lr_falls(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_optimizer *opt = th_optim_sgd(TH_TENSORS(leaf()), .lr = 1.0);
    th_scheduler *scheduler = th_lr_scheduler_step_lr(opt, .step_size = 2, .gamma = 0.5);
    const double expected[] = {1.0, 0.5, 0.5, 0.25, 0.25, 0.125};
    for (size_t i = 0; i < 6; i++) assert_near(next(opt, scheduler), expected[i]);
    assert_int_equal(th_scheduler_last_epoch(scheduler), 6);
    assert_true(th_optimizer_get(opt, 0, "initial_lr") == 1.0);
    assert_string_equal(th_scheduler_class(scheduler), "StepLR");
    th_scheduler_free(scheduler);
    th_optimizer_free(opt);
}

static void every_group_has_its_rate(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_optimizer *opt = th_optim_sgd(TH_TENSORS(leaf()), .lr = 1.0);
    assert_int_equal(th_optimizer_add_param_group(opt, TH_TENSORS(leaf()), TH_OPTIONS({"lr", 0.1})), TH_OK);
    th_scheduler *scheduler = th_lr_scheduler_exponential_lr(opt, 0.5);
    next(opt, scheduler);
    th_doubles last = th_scheduler_get_last_lr(scheduler);
    assert_int_equal(last.size, 2);
    assert_near(last.data[0], 0.5);
    assert_near(last.data[1], 0.05);
    th_scheduler_free(scheduler);
    th_optimizer_free(opt);
}

/* The optimizer outlives its owner's handle as long as a schedule drives it. */
static void a_scheduler_keeps_its_optimizer(void **unused)
{
    (void)unused;
    size_t objects = th__objects_live(NULL);
    TH_SCOPE();
    th_optimizer *opt = th_optim_sgd(TH_TENSORS(leaf()), .lr = 1.0);
    th_scheduler *scheduler = th_lr_scheduler_step_lr(opt, 1);
    th_optimizer_free(opt);
    assert_near(next(th_scheduler_optimizer(scheduler), scheduler), 0.1);
    th_scheduler_free(scheduler);
    assert_int_equal(th__objects_live(NULL), objects);
}

/* Stop at step 3, reload, go on: the same rates; the counters are part of the state. */
static void a_resumed_schedule_goes_on(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_optimizer *a = th_optim_sgd(TH_TENSORS(leaf()), .lr = 1.0, .momentum = 0.9),
                 *b = th_optim_sgd(TH_TENSORS(leaf()), .lr = 9.0, .momentum = 0.9);
    th_scheduler *from[] = {th_lr_scheduler_step_lr(a, 2), NULL}, *to[] = {th_lr_scheduler_step_lr(b, 5, .gamma = 0.9), NULL};
    for (int i = 0; i < 3; i++) next(a, from[0]);
    th_value *opt_state = th_optimizer_state_dict(a), *state = th_scheduler_state_dict(from[0]);
    assert_int_equal(th_optimizer_load_state_dict(b, opt_state), TH_OK);
    assert_int_equal(th_scheduler_load_state_dict(to[0], state), TH_OK);
    for (int i = 0; i < 5; i++) assert_true(next(a, from[0]) == next(b, to[0]));
    assert_near(th_optimizer_lr(b), 1e-4);
    th_value_free(opt_state);
    th_value_free(state);
    th_scheduler_free(from[0]);
    th_scheduler_free(to[0]);
    th_optimizer_free(a);
    th_optimizer_free(b);
}

typedef th_scheduler *(*maker)(th_optimizer *opt, bool other);
static th_scheduler *multi(th_optimizer *o, bool other)
{
    return th_lr_scheduler_multi_step_lr(o, other ? TH_INTS(1) : TH_INTS(2, 6, 6));
}
static th_scheduler *cosine(th_optimizer *o, bool other) { return th_lr_scheduler_cosine_annealing_lr(o, other ? 9 : 5); }
static th_scheduler *restarts(th_optimizer *o, bool other)
{
    return th_lr_scheduler_cosine_annealing_warm_restarts(o, other ? 9 : 3, .T_mult = 2);
}
static th_scheduler *one_cycle(th_optimizer *o, bool other)
{
    return th_lr_scheduler_one_cycle_lr(o, 2.0, other ? 30 : 20, .three_phase = !other);
}
static th_scheduler *cyclic(th_optimizer *o, bool other)
{
    return th_lr_scheduler_cyclic_lr(o, 0.1, 1.0, other ? 7 : 3, .mode = other ? "triangular" : "triangular2");
}
static th_scheduler *sequential(th_optimizer *o, bool other)
{
    th_scheduler *first = th_lr_scheduler_linear_lr(o, .total_iters = other ? 9 : 4),
                 *second = th_lr_scheduler_exponential_lr(o, 0.9);
    return th_lr_scheduler_sequential_lr(o, TH_SCHEDULERS(first, second), TH_INTS(other ? 8 : 5));
}
static th_scheduler *chained(th_optimizer *o, bool other)
{
    th_scheduler *first = th_lr_scheduler_constant_lr(o, .total_iters = other ? 9 : 4),
                 *second = th_lr_scheduler_polynomial_lr(o, 20);
    return th_lr_scheduler_chained_scheduler(TH_SCHEDULERS(first, second));
}

static void every_state_restores_the_schedule(void **unused)
{
    (void)unused;
    const maker makers[] = {multi, cosine, restarts, one_cycle, cyclic, sequential, chained};
    for (size_t k = 0; k < sizeof makers / sizeof *makers; k++) {
        TH_SCOPE();
        th_optimizer *a = th_optim_sgd(TH_TENSORS(leaf()), .lr = 1.0, .momentum = 0.9);
        th_optimizer *b = th_optim_sgd(TH_TENSORS(leaf()), .lr = 1.0, .momentum = 0.9);
        th_scheduler *x = makers[k](a, false), *y = makers[k](b, true);
        for (int i = 0; i < 4; i++) next(a, x);
        th_value *opt_state = th_optimizer_state_dict(a), *state = th_scheduler_state_dict(x);
        assert_int_equal(th_optimizer_load_state_dict(b, opt_state), TH_OK);
        assert_int_equal(th_scheduler_load_state_dict(y, state), TH_OK);
        th_value *again = th_scheduler_state_dict(y);
        assert_true(th_value_equal(state, again));
        for (int i = 0; i < 10; i++) {
            assert_true(next(a, x) == next(b, y));
            assert_true(th_optimizer_get(a, 0, "momentum") == th_optimizer_get(b, 0, "momentum"));
        }
        th_value_free(again);
        th_value_free(state);
        th_value_free(opt_state);
        th_scheduler_free(x);
        th_scheduler_free(y);
        th_optimizer_free(a);
        th_optimizer_free(b);
    }
    assert_int_equal(th_error(), TH_OK);
}

static void plateau_needs_its_metric(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_optimizer *opt = th_optim_sgd(TH_TENSORS(leaf()), .lr = 1.0);
    th_scheduler *plateau = th_lr_scheduler_reduce_lr_on_plateau(opt, .patience = 1, .factor = 0.5, .min_lr = 0.2);
    th_scheduler *other = th_lr_scheduler_step_lr(opt, 100);
    assert_int_equal(th_scheduler_step(plateau), TH_ERR_TYPE);
    assert_error(TH_ERR_TYPE, "th_scheduler_step_metric");
    assert_int_equal(th_scheduler_step_metric(other, 1.0), TH_ERR_TYPE);
    assert_error(TH_ERR_TYPE, "a StepLR takes no metric");
    const double expected[] = {1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2, 0.2};
    for (size_t i = 0; i < 9; i++) {
        assert_int_equal(th_scheduler_step_metric(plateau, 1.0), TH_OK);
        assert_near(th_optimizer_lr(opt), expected[i]);
    }
    th_value *state = th_scheduler_state_dict(plateau);
    assert_true(th_value_as_double(th_value_get(state, "best"), 0) == 1.0);
    assert_int_equal(th_scheduler_load_state_dict(plateau, state), TH_OK);
    th_value_free(state);
    th_scheduler_free(other);
    th_scheduler_free(plateau);
    th_optimizer_free(opt);
}

static double broken(int64_t epoch, void *user)
{
    (void)user;
    if (epoch == 2) th_error_set(TH_ERR_CALLBACK, "no rate for epoch 2");
    return 1.0;
}

static void wrong_arguments_are_named(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_optimizer *opt = th_optim_adagrad(TH_TENSORS(leaf()), .lr = 1.0), *sgd = th_optim_sgd(TH_TENSORS(leaf()), .lr = 1.0);
    assert_null(th_lr_scheduler_step_lr(NULL, 3));
    assert_error(TH_ERR_TYPE, "optimizer is NULL");
    assert_null(th_lr_scheduler_step_lr(opt, 0));
    assert_error(TH_ERR_VALUE, "step_size is 0");
    assert_null(th_lr_scheduler_step_lr(opt, 3, .last_epoch = 4));
    assert_error(TH_ERR_KEY, "'initial_lr' is not specified in param_groups[0]");
    assert_null(th_lr_scheduler_constant_lr(opt, .factor = 1.5));
    assert_error(TH_ERR_VALUE, "factor is 1.5");
    assert_null(th_lr_scheduler_linear_lr(opt, .start_factor = 0));
    assert_error(TH_ERR_VALUE, "start_factor is 0");
    assert_null(th_lr_scheduler_lambda_lr(opt));
    assert_error(TH_ERR_TYPE, "lr_lambda is NULL");
    assert_null(th_lr_scheduler_one_cycle_lr(opt, 1.0, 10));
    assert_error(TH_ERR_VALUE, "Adagrad has neither momentum nor betas");
    assert_null(th_lr_scheduler_one_cycle_lr(sgd, 1.0));
    assert_error(TH_ERR_VALUE, "either total_steps OR (epochs AND steps_per_epoch)");
    assert_null(th_lr_scheduler_one_cycle_lr(sgd, 1.0, 10, .anneal_strategy = "sine"));
    assert_error(TH_ERR_VALUE, "anneal_strategy 'sine' is not known; known: cos, linear");
    assert_null(th_lr_scheduler_cyclic_lr(sgd, 0.1, 1.0, .mode = "square"));
    assert_error(TH_ERR_VALUE, "mode 'square'");
    assert_null(th_lr_scheduler_cosine_annealing_warm_restarts(sgd, 0));
    assert_error(TH_ERR_VALUE, "Expected positive integer T_0, but got 0");
    assert_null(th_lr_scheduler_reduce_lr_on_plateau(sgd, .factor = 1.0));
    assert_error(TH_ERR_VALUE, "Factor should be < 1.0");
    assert_null(th_lr_scheduler_cyclic_lr(sgd, .max_lr = 1, .base_lrs = TH_DOUBLES(1, 2)));
    assert_error(TH_ERR_VALUE, "base_lr has 2 values, the optimizer has 1 parameter groups");
    th_scheduler *scheduler = th_lr_scheduler_lambda_lr(sgd, broken);
    assert_near(next(sgd, scheduler), 1.0);
    assert_int_equal(th_scheduler_step(scheduler), TH_ERR_CALLBACK);
    assert_error(TH_ERR_CALLBACK, "no rate for epoch 2");
    th_scheduler_free(scheduler);
    th_optimizer_free(opt);
    th_optimizer_free(sgd);
}

static void composed_schedulers_take_over_their_parts(void **unused)
{
    (void)unused;
    size_t objects = th__objects_live(NULL);
    TH_SCOPE();
    th_optimizer *opt = th_optim_sgd(TH_TENSORS(leaf()), .lr = 1.0), *other = th_optim_sgd(TH_TENSORS(leaf()), .lr = 1.0);
    th_scheduler *parts[] = {th_lr_scheduler_step_lr(opt, 1), th_lr_scheduler_step_lr(other, 1)};
    assert_null(th_lr_scheduler_sequential_lr(opt, {parts, 2}, TH_INTS(3)));
    assert_error(TH_ERR_VALUE, "StepLR at index 1 does not");
    parts[0] = th_lr_scheduler_step_lr(opt, 1);
    parts[1] = th_lr_scheduler_step_lr(opt, 1);
    assert_null(th_lr_scheduler_sequential_lr(opt, {parts, 2}, TH_INTS(3, 4)));
    assert_error(TH_ERR_VALUE, "2 schedulers and 2 milestones");
    parts[0] = th_lr_scheduler_reduce_lr_on_plateau(opt);
    assert_null(th_lr_scheduler_chained_scheduler({parts, 1}));
    assert_error(TH_ERR_VALUE, "does not support ReduceLROnPlateau");
    assert_null(th_lr_scheduler_chained_scheduler({NULL, 0}));
    th_error_clear();
    th_optimizer_free(opt);
    th_optimizer_free(other);
    assert_int_equal(th__objects_live(NULL), objects);
}

static void wrong_states_are_refused(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_optimizer *opt = th_optim_sgd(TH_TENSORS(leaf()), .lr = 1.0);
    th_scheduler *scheduler = th_lr_scheduler_step_lr(opt, 3);
    th_value *state = th_scheduler_state_dict(scheduler);
    th_value_set(state, "gamma", th_value_string("much"));
    assert_int_equal(th_scheduler_load_state_dict(scheduler, state), TH_ERR_TYPE);
    assert_error(TH_ERR_TYPE, "'gamma' is a str");
    th_value_set(state, "gamma", th_value_double(0.3));
    th_value *two = th_value_list();
    th_value_append(two, th_value_double(1));
    th_value_append(two, th_value_double(2));
    th_value_set(state, "base_lrs", two);
    assert_int_equal(th_scheduler_load_state_dict(scheduler, state), TH_ERR_VALUE);
    assert_error(TH_ERR_VALUE, "'base_lrs' has 2 values, the scheduler has 1");
    th_value *value = th_state(scheduler);
    assert_string_equal(th_value_as_object(value, NULL)->type, "scheduler");
    th_value_free(value);
    th_value_free(state);
    th_scheduler_free(scheduler);
    th_optimizer_free(opt);
}

static int warnings;
static void count_warning(const char *line, void *user)
{
    (void)user;
    if (strstr(line, "before th_optimizer_step") != NULL) warnings++;
}

static void the_wrong_order_is_warned_about_once(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_optimizer *opt = th_optim_sgd(TH_TENSORS(leaf()), .lr = 1.0);
    th_scheduler *scheduler = th_lr_scheduler_step_lr(opt, 3);
    th__set_message_sink(count_warning, NULL);
    for (int i = 0; i < 3; i++) assert_int_equal(th_scheduler_step(scheduler), TH_OK);
    assert_int_equal(warnings, 1);
    th_scheduler_free(scheduler);
    scheduler = th_lr_scheduler_step_lr(opt, 3);
    for (int i = 0; i < 3; i++) next(opt, scheduler);
    assert_int_equal(warnings, 1);
    th__set_message_sink(NULL, NULL);
    th_scheduler_free(scheduler);
    th_optimizer_free(opt);
}

static void epochs_can_be_jumped_to(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_optimizer *opt = th_optim_sgd(TH_TENSORS(leaf()), .lr = 1.0);
    th_scheduler *scheduler = th_lr_scheduler_step_lr(opt, 3, .gamma = 0.5);
    assert_int_equal(th_scheduler_step_epoch(scheduler, 7), TH_OK);
    assert_near(th_optimizer_lr(opt), 0.25);
    assert_int_equal(th_scheduler_step_epoch(scheduler, 7.5), TH_ERR_VALUE);
    assert_error(TH_ERR_VALUE, "StepLR takes whole epochs, but got 7.5");
    assert_int_equal(th_scheduler_step_epoch(scheduler, -1), TH_ERR_VALUE);
    assert_error(TH_ERR_VALUE, "Expected non-negative epoch, but got -1");
    th_scheduler_free(scheduler);
    th_optimizer_set(opt, 0, "lr", 1.0);
    th_optimizer_set(opt, 0, "initial_lr", 1.0);
    scheduler = th_lr_scheduler_cosine_annealing_warm_restarts(opt, 4);
    assert_int_equal(th_scheduler_step_epoch(scheduler, 6), TH_OK);
    assert_near(th_optimizer_lr(opt), 0.5);
    assert_int_equal(th_scheduler_step_epoch(scheduler, 4.5), TH_OK);
    assert_near(th_optimizer_lr(opt), (1 + cos(3.14159265358979323846 * 0.5 / 4)) / 2);
    th_scheduler_free(scheduler);
    th_optimizer_free(opt);
}

int main(void)
{
    th_set_error_policy(TH_ERROR_RETURN, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_lr_falls),
        cmocka_unit_test(every_group_has_its_rate),
        cmocka_unit_test(a_scheduler_keeps_its_optimizer),
        cmocka_unit_test(a_resumed_schedule_goes_on),
        cmocka_unit_test(every_state_restores_the_schedule),
        cmocka_unit_test(plateau_needs_its_metric),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(composed_schedulers_take_over_their_parts),
        cmocka_unit_test(wrong_states_are_refused),
        cmocka_unit_test(the_wrong_order_is_warned_about_once),
        cmocka_unit_test(epochs_can_be_jumped_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
