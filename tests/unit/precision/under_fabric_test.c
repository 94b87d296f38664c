/* Precision through Fabric: init contexts, direct backward, clipping with a scaler (semantics 8.7, 8.12, 11.3; 21: 42, 53, 55-57;
 * BC-032). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/object.h"
#include "bridge/bridge.h"
#include <cfabric/error.h>
#include <cfabric/fabric.h>
#include <cfabric/nn_modules.h>
#include <cfabric/ops.h>
#include <cfabric/optimizers.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void quiet(const char *line, void *user) { (void)line, (void)user; }

static int clean(void **state)
{
    (void)state;
    th__set_message_sink(quiet, NULL);
    th_error_clear();
    return 0;
}

static int leak_check(void **state)
{
    clean(state);
    return th_get_default_dtype() == TH_FLOAT32 && th__objects_live(NULL) == 0 && th_scope_live() == 0 ? 0 : -1;
}

static void expect_error(th_status status, const char *word)
{
    if (th_error() != status) fail_msg("expected status %d, got %d: %s", (int)status, (int)th_error(), th_error_message());
    if (strstr(th_error_message(), word) == NULL) fail_msg("'%s' is not in: %s", word, th_error_message());
    th_error_clear();
}

/* 21.55 */
static void new_tensors(const char *precision, th_dtype expected)
{
    TH_SCOPE();
    fabric *fab = fabric_new(.accelerator = "cpu", .devices = "1", .precision = precision);
    {
        FABRIC_INIT_TENSOR(fab);
        assert_int_equal(th_dtype_of(th_tensor_scalar(TH_S(42.0), TH_DTYPE_NONE)), expected);
        assert_int_equal(th_dtype_of(th_tensor_scalar(TH_S(42), TH_DTYPE_NONE)), TH_INT64);
        assert_int_equal(th_dtype_of(th_zeros(TH_INTS(2))), expected);
        assert_int_equal(th_dtype_of(th_zeros(TH_INTS(2), .dtype = TH_FLOAT16)), TH_FLOAT16);
    }
    {
        FABRIC_INIT_MODULE(fab, -1);
        th_module *layer = th_nn_linear(4, 2);
        assert_int_equal(th_dtype_of(th_module_parameter(layer, "weight")), expected);
        th_module_free(layer);
    }
    assert_int_equal(th_get_default_dtype(), TH_FLOAT32);
    assert_int_equal(fabric_finish(fab), 0);
}

static void init_contexts(void **state)
{
    (void)state;
    new_tensors("32-true", TH_FLOAT32);
    new_tensors("64-true", TH_FLOAT64);
    new_tensors("bf16-true", TH_BFLOAT16);
    new_tensors("bf16-mixed", TH_FLOAT32); /* weights stay float32 */
}

/* 21.56 */
static void empty_init(void **state)
{
    (void)state;
    for (int empty = -1; empty <= 1; empty++) {
        TH_SCOPE();
        th_manual_seed(1);
        uint64_t untouched = th_generator_random64(th_default_generator());
        fabric *fab = fabric_new(.accelerator = "cpu", .devices = "1");
        th_manual_seed(1);
        {
            FABRIC_INIT_MODULE(fab, empty);
            th_module_free(th_nn_linear(4, 2));
        }
        bool skipped = th_generator_random64(th_default_generator()) == untouched; /* initialisers draw random numbers */
        assert_int_equal(skipped, empty == 1);
        fabric_finish(fab);
    }
}

/* 21.53 */
static void errors_end_contexts(void **state)
{
    (void)state;
    static const char *const all[] = {"64-true", "bf16-true", "bf16-mixed"};
    for (size_t i = 0; i < 3; i++) {
        TH_SCOPE();
        fabric *fab = fabric_new(.accelerator = "cpu", .devices = "1", .precision = all[i]);
        th_module *layer = th_nn_linear(4, 2);
        th_optimizer *sgd = th_optim_sgd(th_parameters(layer), .lr = 0.1);
        assert_int_equal(fabric_setup(fab, layer, sgd), TH_OK);
        assert_null(th_forward(layer, th_ones(TH_INTS(1, 5))));
        assert_int_not_equal(th_error(), TH_OK);
        th_error_clear();
        assert_int_equal(th_get_default_dtype(), TH_FLOAT32);
        th_tensor *x = th_ones(TH_INTS(2, 2));
        assert_int_equal(th_dtype_of(th_mm(x, x)), TH_FLOAT32);
        {
            FABRIC_AUTOCAST(fab);
            assert_int_equal(th_dtype_of(th_mm(x, x)), i == 2 ? TH_BFLOAT16 : TH_FLOAT32);
            assert_int_equal(th_dtype_of(th_zeros(TH_INTS(1))), i == 0 ? TH_FLOAT64 : i == 1 ? TH_BFLOAT16 : TH_FLOAT32);
        }
        assert_int_equal(th_dtype_of(th_mm(x, x)), TH_FLOAT32);
        fabric_finish(fab);
        th_optimizer_free(sgd);
        th_module_free(layer);
    }
}

/* 21.42 */
static void direct_backward(void **state)
{
    (void)state;
    static const struct {
        const char *precision;
        bool allowed;
    } cases[] = {{"32-true", true}, {"bf16-true", true}, {"64-true", true}, {"bf16-mixed", false}};
    for (size_t i = 0; i < 4; i++) {
        TH_SCOPE();
        fabric *fab = fabric_new(.accelerator = "cpu", .devices = "1", .precision = cases[i].precision);
        th_module *layer = th_nn_linear(4, 2);
        th_optimizer *sgd = th_optim_sgd(th_parameters(layer), .lr = 0.1);
        fabric_setup(fab, layer, sgd);
        th_backward(th_sum(th_forward(layer, th_ones(TH_INTS(1, 4)))));
        if (cases[i].allowed)
            assert_int_equal(th_error(), TH_OK);
        else
            expect_error(TH_ERR_RUNTIME, "fabric_backward");
        assert_int_equal(fabric_backward(fab, th_sum(th_forward(layer, th_ones(TH_INTS(1, 4))))), TH_OK);
        fabric_finish(fab);
        th_optimizer_free(sgd);
        th_module_free(layer);
    }
}

/* ---- 21.57: Linear(32, 2) with weights 0.01 and inputs 0.1 has gradients 0.1 and norm 0.8 */

typedef struct job {
    fabric *fab;
    th_module *layer;
    th_optimizer *sgd;
} job;

static job job_new(fabric *fab)
{
    job j = {fab, th_nn_linear(32, 2, .bias = false), NULL};
    TH_NO_GRAD();
    th_fill_scalar_(th_module_parameter(j.layer, "weight"), TH_S(0.01));
    j.sgd = th_optim_sgd(th_parameters(j.layer), .lr = 1.0);
    assert_int_equal(fabric_setup(j.fab, j.layer, j.sgd), TH_OK);
    return j;
}

static th_tensor *job_backward(job *j)
{
    th_optimizer_zero_grad(j->sgd);
    th_tensor *out = th_forward(j->layer, th_mul_scalar(th_ones(TH_INTS(1, 32)), TH_S(0.1)));
    assert_int_equal(fabric_backward(j->fab, th_sum(out)), TH_OK);
    return th_grad(th_module_parameter(j->layer, "weight"));
}

static void job_end(job *j)
{
    fabric_finish(j->fab);
    th_optimizer_free(j->sgd);
    th_module_free(j->layer);
}

static bool near(double a, double b, double tolerance) { return fabs(a - b) <= tolerance; }

static void clipping_under(fabric *fab, double tolerance)
{
    TH_SCOPE();
    job j = job_new(fab);
    job_backward(&j);
    double norm = th_item(fabric_clip_gradients(j.fab, j.layer, j.sgd, .max_norm = 0.4));
    th_tensor *grad = th_grad(th_module_parameter(j.layer, "weight"));
    assert_true(near(norm, 0.8, tolerance));
    assert_true(near(th_item(th_sqrt(th_sum(th_mul(grad, grad)))), 0.4, tolerance));
    th_optimizer_step(j.sgd);
    job_backward(&j);
    assert_null(fabric_clip_gradients(j.fab, j.layer, j.sgd, .clip_val = 0.05));
    grad = th_grad(th_module_parameter(j.layer, "weight"));
    assert_true(near(th_item(th_max(grad)), 0.05, tolerance) && near(th_item(th_min(grad)), 0.05, tolerance));
    assert_int_equal(th_error(), TH_OK);
    job_end(&j);
}

static fabric *fabric_half(double init_scale)
{
    fabric_precision *mixed =
        fabric_precision_mixed("16-mixed", .device = TH_DEVICE_CPU, .scaler = th_grad_scaler_new(.init_scale = init_scale));
    return fabric_new(.accelerator = "cpu", .devices = "1", .plugins = FABRIC_PLUGINS(fabric_plugin(mixed)));
}

static void clipping(void **state)
{
    (void)state;
    clipping_under(fabric_new(.accelerator = "cpu", .devices = "1"), 1e-6);
    clipping_under(fabric_new(.accelerator = "cpu", .devices = "1", .precision = "64-true"), 1e-6);
    clipping_under(fabric_new(.accelerator = "cpu", .devices = "1", .precision = "bf16-mixed"), 2e-3);
    if (th__half_works_on_cpu()) clipping_under(fabric_half(1024.0), 2e-3); /* the unscaled gradients are clipped */
}

/* BC-032: an overflow is no error while clipping: the step is skipped, the scale lowered, the next step is normal. */
static void clipping_an_overflow(void **state)
{
    (void)state;
    if (!th__half_works_on_cpu()) skip();
    TH_SCOPE();
    job j = job_new(fabric_half(65536.0));
    th_grad_scaler *scaler = fabric_precision_scaler(fabric_precision_of(j.fab));
    th_tensor *weight = th_module_parameter(j.layer, "weight");
    th_fill_scalar_(job_backward(&j), TH_S((double)INFINITY));
    assert_false(isfinite(th_item(fabric_clip_gradients(j.fab, j.layer, j.sgd, .max_norm = 1.0))));
    assert_int_equal(th_optimizer_step(j.sgd), TH_OK);
    assert_true(near(th_item(th_max(weight)), 0.01, 1e-8));
    assert_true(th_grad_scaler_get_scale(scaler) == 32768.0);
    job_backward(&j);
    assert_true(near(th_item(fabric_clip_gradients(j.fab, j.layer, j.sgd, .max_norm = 1.0)), 0.8, 2e-3));
    assert_int_equal(th_optimizer_step(j.sgd), TH_OK);
    assert_true(near(th_item(th_max(weight)), 0.01 - 0.1, 1e-3));
    assert_true(th_grad_scaler_get_scale(scaler) == 32768.0);
    job_end(&j);
    TH_SCOPE();
    job plain = job_new(fabric_new(.accelerator = "cpu", .devices = "1")); /* without a scaler it is an error, as upstream */
    th_fill_scalar_(job_backward(&plain), TH_S((double)INFINITY));
    assert_null(fabric_clip_gradients(plain.fab, plain.layer, plain.sgd, .max_norm = 1.0));
    expect_error(TH_ERR_RUNTIME, "norm");
    job_end(&plain);
}

/* The scaler is saved and restored like any other object; a training goes on with the scale it had. */
static void scaler_in_a_checkpoint(void **state)
{
    (void)state;
    if (!th__half_works_on_cpu()) skip();
    TH_SCOPE();
    char folder[] = "/tmp/cfabric-scaler-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/state.pt", folder);
    job j = job_new(fabric_half(65536.0));
    th_grad_scaler *scaler = fabric_precision_scaler(fabric_precision_of(j.fab));
    th_fill_scalar_(job_backward(&j), TH_S((double)INFINITY));
    th_optimizer_step(j.sgd);
    job_backward(&j);
    th_optimizer_step(j.sgd);
    assert_int_equal(fabric_save(j.fab, path, TH_STATE({"scaler", th_state_grad_scaler(scaler)})), TH_OK);
    job_end(&j);

    j = job_new(fabric_half(8.0));
    scaler = fabric_precision_scaler(fabric_precision_of(j.fab));
    th_value *wanted = TH_STATE({"scaler", th_state_grad_scaler(scaler)});
    th_value_free(fabric_load(j.fab, path, wanted));
    th_value_free(wanted);
    assert_int_equal(th_error(), TH_OK);
    assert_true(th_grad_scaler_get_scale(scaler) == 32768.0);
    assert_int_equal(th_grad_scaler_growth_tracker(scaler), 1);
    job_end(&j);
    unlink(path);
    rmdir(folder);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, clean, leak_check)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(init_contexts), TEST(empty_init),           TEST(errors_end_contexts),    TEST(direct_backward),
        TEST(clipping),      TEST(clipping_an_overflow), TEST(scaler_in_a_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
