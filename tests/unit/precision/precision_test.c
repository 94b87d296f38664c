/* Precisions as objects: conversion, contexts, autocast, stepping (semantics 11; 21: 53-55; BC-032, BC-034, BC-049). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/object.h"
#include "bridge/bridge.h"
#include "precision/internal.h"
#include <cfabric/nn_modules.h>
#include <cfabric/nn_utils.h>
#include <cfabric/ops.h>
#include <cfabric/optimizers.h>
#include <cfabric/plugin/strategy.h>
#include <math.h>
#include <string.h>

static int clean(void **state)
{
    (void)state;
    th_error_clear();
    return 0;
}

static int leak_check(void **state)
{
    clean(state);
    bool intact = th_get_default_dtype() == TH_FLOAT32;
    return intact && th__objects_live(NULL) == 0 && th_scope_live() == 0 ? 0 : -1;
}

static void expect_error(th_status status, const char *word)
{
    if (th_error() != status) fail_msg("expected status %d, got %d: %s", (int)status, (int)th_error(), th_error_message());
    if (strstr(th_error_message(), word) == NULL) fail_msg("'%s' is not in: %s", word, th_error_message());
    th_error_clear();
}

/* ---- names */

static void names(void **state)
{
    (void)state;
    static const char *const all[] = {"transformer-engine", "transformer-engine-float16", "16-true", "16-mixed", "bf16-true",
                                      "bf16-mixed", "32-true", "64-true", "bitsandbytes"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) assert_string_equal(fabric_precision_registered(i), all[i]);
    assert_null(fabric_precision_registered(sizeof all / sizeof all[0]));
    static const char *const here[] = {"bf16-true", "bf16-mixed", "32-true", "64-true"};
    for (size_t i = 0; i < 4; i++) {
        fabric_precision *p = fabric_precision_create(here[i], TH_DEVICE_CPU);
        assert_string_equal(fabric_precision_name(p), here[i]);
        assert_int_equal(fabric_precision_requires_fabric_backward(p), i == 1);
        fabric_precision_free(p);
    }
    assert_null(fabric_precision_create("bf16-mixd", TH_DEVICE_CPU));
    expect_error(TH_ERR_KEY, "did you mean 'bf16-mixed'");
    assert_null(fabric_precision_create("bitsandbytes", TH_DEVICE_CPU));
    expect_error(TH_ERR_UNAVAILABLE, "bitsandbytes");
    assert_null(fabric_precision_create("64-true", TH_DEVICE_MPS));
    expect_error(TH_ERR_UNAVAILABLE, "MPS");
}

static void constructor_errors(void **state)
{
    (void)state;
    assert_null(fabric_precision_mixed("32-true"));
    expect_error(TH_ERR_VALUE, "'16-mixed' or 'bf16-mixed'");
    assert_null(fabric_precision_mixed(NULL));
    expect_error(TH_ERR_VALUE, "(null)");
    assert_null(fabric_precision_mixed("bf16-mixed", .scaler = th_grad_scaler_new())); /* the scaler is consumed */
    expect_error(TH_ERR_VALUE, "does not use a scaler");
    assert_null(fabric_precision_half("16-mixed", TH_DEVICE_CPU));
    expect_error(TH_ERR_VALUE, "'16-true' or 'bf16-true'");
    th_error_set(TH_ERR_RUNTIME, "before");
    assert_null(fabric_precision_mixed("16-mixed", .scaler = NULL));
    expect_error(TH_ERR_RUNTIME, "before");
}

static void memory_runs_out(void **state)
{
    (void)state;
    static const char *const all[] = {"32-true", "64-true", "bf16-true", "bf16-mixed", "16-mixed"};
    for (size_t i = 0; i < (th__half_works_on_cpu() ? 5u : 4u); i++) {
        fabric_precision *p = NULL;
        for (long n = 1; p == NULL; n++) {
            th__fail_allocation(n);
            p = fabric_precision_create(all[i], TH_DEVICE_CPU);
            th__fail_allocation(0);
            if (p != NULL) continue;
            expect_error(TH_ERR_MEMORY, "");
            assert_int_equal(th__objects_live(NULL), 0);
        }
        fabric_precision_free(p);
    }
}

/* ---- a model that looks at what it is given */

typedef struct seen { th_dtype input, fresh, product; } seen;
static seen last_seen;

static th_tensor *looking_forward(th_module *self, th_tensor *input)
{
    last_seen.input = th_dtype_of(input);
    last_seen.fresh = th_dtype_of(th_zeros(TH_INTS(2)));
    th_tensor *out = th_linear(input, th_module_parameter(self, "weight"));
    last_seen.product = th_dtype_of(out);
    return out;
}

static th_module *model_new(void)
{
    th_module *model = th_module_new("Looking", .forward = looking_forward);
    th_register_parameter(model, "weight", th_mul_scalar(th_ones(TH_INTS(2, 32)), TH_S(0.01)));
    th_register_buffer(model, "steps", th_zeros(TH_INTS(1), .dtype = TH_INT64), true);
    return model;
}

/* What a strategy does around a forward. [scoped] */
static th_tensor *forward(fabric_precision *p, th_module *model, th_tensor *input)
{
    fabric_context context;
    th_tensor *in = fabric_precision_convert_input(p, input), *out = NULL;
    if (fabric_precision_forward_enter(p, &context) == TH_OK) out = th_forward(model, in);
    fabric_precision_forward_exit(p, &context);
    return fabric_precision_convert_output(p, out);
}

static void one_precision(const char *name, th_dtype weights, th_dtype input, th_dtype fresh, th_dtype product, th_dtype init)
{
    TH_SCOPE();
    fabric_precision *p = fabric_precision_create(name, TH_DEVICE_CPU);
    th_module *model = model_new();
    assert_int_equal(fabric_precision_convert_module(p, model), TH_OK);
    th_tensor *weight = th_module_parameter(model, "weight");
    th_tensor *out = forward(p, model, th_mul_scalar(th_ones(TH_INTS(1, 32)), TH_S(0.1)));
    if (out == NULL) fail_msg("%s: %s", name, th_error_message());
    assert_int_equal(last_seen.input, input);
    assert_int_equal(last_seen.fresh, fresh);
    assert_int_equal(last_seen.product, product);
    assert_int_equal(th_dtype_of(out), TH_FLOAT32);
    struct th_backward_args args = {.tensor = th_sum(out)};
    assert_int_equal(fabric_precision_backward(p, model, &args), TH_OK);
    assert_int_equal(th_dtype_of(weight), weights);
    assert_int_equal(th_dtype_of(th_grad(weight)), weights);
    assert_int_equal(th_dtype_of(th_module_buffer(model, "steps")), TH_INT64); /* never touched */
    assert_int_equal(fabric_precision_init_dtype(p), init);
    th_tensor *ints = th_ones(TH_INTS(2), .dtype = TH_INT64);
    assert_ptr_equal(fabric_precision_convert_input(p, ints), ints);
    assert_ptr_equal(fabric_precision_convert_output(p, ints), ints);
    assert_int_equal(th_get_default_dtype(), TH_FLOAT32);
    th_module_free(model);
    fabric_precision_free(p);
}

/* 21.54 */
static void dtypes_everywhere(void **state)
{
    (void)state;
    one_precision("32-true", TH_FLOAT32, TH_FLOAT32, TH_FLOAT32, TH_FLOAT32, TH_DTYPE_NONE);
    one_precision("64-true", TH_FLOAT64, TH_FLOAT64, TH_FLOAT64, TH_FLOAT64, TH_FLOAT64);
    one_precision("bf16-true", TH_BFLOAT16, TH_BFLOAT16, TH_BFLOAT16, TH_BFLOAT16, TH_BFLOAT16);
    one_precision("bf16-mixed", TH_FLOAT32, TH_BFLOAT16, TH_FLOAT32, TH_BFLOAT16, TH_DTYPE_NONE);
    if (th__half_works_on_cpu()) {
        one_precision("16-true", TH_FLOAT16, TH_FLOAT16, TH_FLOAT16, TH_FLOAT16, TH_FLOAT16);
        one_precision("16-mixed", TH_FLOAT32, TH_FLOAT16, TH_FLOAT32, TH_FLOAT16, TH_DTYPE_NONE);
    }
}

static void full_precision_leaves_everything(void **state)
{
    (void)state;
    TH_SCOPE();
    fabric_precision *p = fabric_precision_create("32-true", TH_DEVICE_CPU);
    th_tensor *doubles = th_ones(TH_INTS(2), .dtype = TH_FLOAT64);
    assert_ptr_equal(fabric_precision_convert_input(p, doubles), doubles);
    assert_ptr_equal(fabric_precision_convert_output(p, doubles), doubles);
    th_value *empty = fabric_precision_state_dict(p);
    assert_int_equal(th_value_kind_of(empty), TH_VALUE_DICT);
    assert_int_equal(th_value_size(empty), 0);
    th_value_free(empty);
    fabric_precision_free(p);
}

/* 21.53 */
static void contexts_end_after_errors(void **state)
{
    (void)state;
    static const char *const all[] = {"64-true", "bf16-true", "bf16-mixed"};
    for (int i = 0; i < 3; i++) {
        TH_SCOPE();
        fabric_precision *p = fabric_precision_create(all[i], TH_DEVICE_CPU);
        fabric_context context;
        assert_int_equal(fabric_precision_forward_enter(p, &context), TH_OK);
        assert_null(th_mm(th_ones(TH_INTS(2, 3)), th_ones(TH_INTS(2, 3))));
        fabric_precision_forward_exit(p, &context);
        assert_int_not_equal(th_error(), TH_OK); /* still there */
        th_error_clear();
        assert_int_equal(th_get_default_dtype(), TH_FLOAT32);
        th_tensor *x = th_ones(TH_INTS(2, 2)); /* and no autocast is left on */
        assert_int_equal(th_dtype_of(th_mm(x, x)), TH_FLOAT32);
        fabric_precision_free(p);
    }
}

static void autocast_regions_nest(void **state)
{
    (void)state;
    TH_SCOPE();
    th_tensor *x = th_ones(TH_INTS(2, 2));
    {
        TH_AUTOCAST(TH_DEVICE_CPU, TH_BFLOAT16);
        assert_int_equal(th_dtype_of(th_mm(x, x)), TH_BFLOAT16);
        if (th__half_works_on_cpu()) {
            TH_AUTOCAST(TH_DEVICE_CPU, TH_FLOAT16);
            assert_int_equal(th_dtype_of(th_mm(x, x)), TH_FLOAT16);
        }
        assert_int_equal(th_dtype_of(th_mm(x, x)), TH_BFLOAT16);
    }
    assert_int_equal(th_dtype_of(th_mm(x, x)), TH_FLOAT32);
    th_autocast_guard guard = th_autocast_enter(TH_DEVICE_CPU, TH_FLOAT64);
    expect_error(TH_ERR_UNAVAILABLE, "float64");
    th_autocast_leave(&guard); /* never entered: nothing to leave */
}

/* BC-034: on the CPU every name either trains or is refused when it is made. */
static void every_name_trains_or_is_refused(void **state)
{
    (void)state;
    const char *name;
    for (size_t i = 0; (name = fabric_precision_registered(i)) != NULL; i++) {
        TH_SCOPE();
        fabric_precision *p = fabric_precision_create(name, TH_DEVICE_CPU);
        if (p == NULL) {
            expect_error(TH_ERR_UNAVAILABLE, name);
            continue;
        }
        th_module *model = model_new();
        fabric_precision_convert_module(p, model);
        th_optimizer *sgd = th_optim_sgd(th_parameters(model), .lr = 0.01);
        th_tensor *input = th_ones(TH_INTS(4, 32));
        double losses[3];
        for (int step = 0; step < 3; step++) {
            TH_SCOPE();
            th_optimizer_zero_grad(sgd);
            th_tensor *out = forward(p, model, input);
            th_tensor *loss = th_mean(th_mul(out, out));
            struct th_backward_args args = {.tensor = loss};
            fabric_precision_backward(p, model, &args);
            fabric_precision_optimizer_step(p, sgd, NULL, NULL);
            losses[step] = th_item(loss);
        }
        if (th_error() != TH_OK) fail_msg("%s: %s", name, th_error_message());
        if (!(losses[2] < losses[1] && losses[1] < losses[0])) fail_msg("%s: %g %g %g", name, losses[0], losses[1], losses[2]);
        th_optimizer_free(sgd);
        th_module_free(model);
        fabric_precision_free(p);
    }
}

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
    t->precision = fabric_precision_mixed("16-mixed", .device = TH_DEVICE_CPU, .scaler = th_grad_scaler_new(.init_scale = 1024.0));
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

static double first_weight(training *t) { return th_item(th_select_int(th_flatten_using_ints(th_module_parameter(t->model, "weight")), 0, 0)); }

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
static int two(fabric_strategy *s) { (void)s; return 2; }
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

static th_tensor *closure(void *user) { (void)user; return NULL; }

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

/* ---- a user's own precision */

static th_dtype compute_double(fabric_precision *p) { (void)p; return TH_FLOAT64; }
static th_tensor *to_double(fabric_precision *p, th_tensor *x) { (void)p; return fabric__convert_floating(x, TH_FLOAT64); }
static int freed;
static void count_free(void *self) { (void)self; freed++; }
static const fabric_precision_ops mine = {
    .size = sizeof(fabric_precision_ops), .name = "mine", .convert_output = to_double, .compute_dtype = compute_double, .free = count_free};
static fabric_precision *mine_create(const char *preset, th_device_type device)
{
    assert_string_equal(preset, "a preset");
    assert_int_equal(device, TH_DEVICE_CPU);
    return fabric_precision_new(&mine, NULL);
}
static const fabric_precision_entry mine_entry = {
    .size = sizeof(fabric_precision_entry), .name = "mine", .create = mine_create, .preset = "a preset"};

static void leave_nothing(fabric_precision *p, const fabric_context *c) { (void)p, (void)c; }

static void users_precisions(void **state)
{
    (void)state;
    TH_SCOPE();
    assert_int_equal(fabric_precision_register(&mine_entry), TH_OK);
    assert_int_equal(fabric_precision_register(&mine_entry), TH_ERR_VALUE);
    expect_error(TH_ERR_VALUE, "mine");
    freed = 0;
    fabric_precision *p = fabric_precision_create("mine", TH_DEVICE_CPU);
    th_tensor *x = th_ones(TH_INTS(2));
    assert_ptr_equal(fabric_precision_convert_input(p, x), x); /* the default */
    assert_int_equal(th_dtype_of(fabric_precision_convert_output(p, x)), TH_FLOAT64);
    assert_int_equal(fabric_precision_compute_dtype(p), TH_FLOAT64);
    fabric_precision_free(p);
    assert_int_equal(freed, 1);
    assert_int_equal(fabric_precision_unregister("mine"), TH_OK);
    fabric_precision_ops half_a_context = mine;
    half_a_context.forward_exit = leave_nothing;
    assert_null(fabric_precision_new(&half_a_context, NULL));
    expect_error(TH_ERR_VALUE, "both forward_enter and forward_exit");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, clean, leak_check)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(names), TEST(constructor_errors), TEST(memory_runs_out), TEST(dtypes_everywhere), TEST(full_precision_leaves_everything),
        TEST(contexts_end_after_errors), TEST(autocast_regions_nest), TEST(every_name_trains_or_is_refused),
        TEST(overflow_skips_one_step), TEST(overflow_on_another_rank), TEST(what_a_scaler_cannot_do), TEST(state_of_a_scaler),
        TEST(users_precisions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
