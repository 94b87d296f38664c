/* Precisions as objects: names, conversion, contexts, autocast, own ones (semantics 11; 21: 53-55; BC-034). */
#include "looking_model.h"

/* ---- names */

static void names(void **state)
{
    (void)state;
    static const char *const all[] = {"transformer-engine",
                                      "transformer-engine-float16",
                                      "16-true",
                                      "16-mixed",
                                      "bf16-true",
                                      "bf16-mixed",
                                      "32-true",
                                      "64-true",
                                      "bitsandbytes"};
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

/* ---- a user's own precision */

static th_dtype compute_double(fabric_precision *p)
{
    (void)p;
    return TH_FLOAT64;
}
static th_tensor *to_double(fabric_precision *p, th_tensor *x)
{
    (void)p;
    return fabric__convert_floating(x, TH_FLOAT64);
}
static int freed;
static void count_free(void *self)
{
    (void)self;
    freed++;
}
static const fabric_precision_ops mine = {.size = sizeof(fabric_precision_ops),
                                          .name = "mine",
                                          .convert_output = to_double,
                                          .compute_dtype = compute_double,
                                          .free = count_free};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(names),
        TEST(constructor_errors),
        TEST(memory_runs_out),
        TEST(dtypes_everywhere),
        TEST(full_precision_leaves_everything),
        TEST(contexts_end_after_errors),
        TEST(autocast_regions_nest),
        TEST(every_name_trains_or_is_refused),
        TEST(users_precisions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
