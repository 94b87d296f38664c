/* GradScaler: trajectories equal to PyTorch's, and every misuse (semantics 11.3; engine facts 3). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/object.h"
#include "bridge/bridge.h"
#include "precision/grad_scaler.h"
#include <cfabric/autograd.h>
#include <cfabric/ops.h>
#include <cfabric/optimizers.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int clean(void **state)
{
    (void)state;
    th_error_clear();
    th__grad_scaler_use_own_check(false);
    return 0;
}

static int leak_check(void **state)
{
    clean(state);
    return th__objects_live(NULL) == 0 && th_scope_live() == 0 ? 0 : -1;
}

static void expect_error(th_status status, const char *word)
{
    if (th_error() != status) fail_msg("expected status %d, got %d: %s", (int)status, (int)th_error(), th_error_message());
    if (strstr(th_error_message(), word) == NULL) fail_msg("'%s' is not in: %s", word, th_error_message());
    th_error_clear();
}

/* ---- the script of tests/golden/grad_scaler.py */

static const double script[] = {0.5, 0.25, 1e38, 0.5, 0.125, 0.1,  0.3, NAN, INFINITY, 0.7, -0.2, 0.4, 0.6, 0.9, -INFINITY,
                                0.1, 0.2,  0.3,  0.4, 0.5,   3e33, 0.1, 0.1, 0.1,      0.1, 0.1,  0.1, 0.1, 0.1, 0.1};
enum { STEPS = sizeof script / sizeof script[0] };

static th_tensor *weight(const float *values, int64_t n)
{
    return th_requires_grad_(th_keep(th_tensor_from(values, TH_INTS(n), TH_FLOAT32)), true);
}

static void print_weights(FILE *out, th_tensor *w)
{
    float values[2];
    size_t n = (size_t)th_numel(w);
    assert_int_equal(th_copy_to(w, values, n * sizeof(float), TH_FLOAT32), TH_OK);
    for (size_t i = 0; i < n; i++) fprintf(out, " %.9g", (double)values[i]);
}

typedef struct scenario {
    const char *title;
    struct th_grad_scaler_args options;
    int reload_at;
    bool two, unscale;
} scenario;

#define DEFAULTS .init_scale = 65536.0, .growth_factor = 2.0, .backoff_factor = 0.5, .growth_interval = 2000
static const scenario scenarios[] = {
    {"defaults", {DEFAULTS}, -1, false, false},
    {"short interval", {DEFAULTS, .growth_interval = 3}, -1, false, false},
    {"odd factors", {1000.3, 1.7, 0.3, 2}, -1, false, false},
    {"largest scale", {DEFAULTS, .init_scale = 0x1p127, .growth_interval = 2}, -1, false, false},
    {"reloaded", {DEFAULTS, .growth_interval = 3}, 9, false, false},
    {"two optimizers", {DEFAULTS, .growth_interval = 3}, -1, true, false},
    {"unscaled first", {DEFAULTS, .growth_interval = 3}, -1, false, true},
};

static th_grad_scaler *reloaded(th_grad_scaler *scaler)
{
    th_value *state = th_grad_scaler_state_dict(scaler);
    th_grad_scaler *fresh = th_grad_scaler_new(.init_scale = 1.0, .growth_interval = 7);
    assert_int_equal(th_grad_scaler_load_state_dict(fresh, state), TH_OK);
    th_value_free(state);
    th_grad_scaler_free(scaler);
    return fresh;
}

static void run(FILE *out, const scenario *s)
{
    fprintf(out, "%s\n", s->title);
    th_grad_scaler *scaler = th_grad_scaler_new_call(s->options);
    th_tensor *a = weight((const float[]){1.0f, -2.0f}, 2), *b = weight((const float[]){3.0f}, 1);
    th_optimizer *first = th_optim_sgd(TH_TENSORS(a), .lr = 0.1), *second = th_optim_sgd(TH_TENSORS(b), .lr = 0.1);
    for (int step = 0; step < STEPS; step++) {
        TH_SCOPE();
        th_optimizer_zero_grad(first);
        th_optimizer_zero_grad(second);
        float pair[2] = {1.0f, (float)script[step]};
        th_tensor *loss = th_sum(th_mul(a, th_tensor_from(pair, TH_INTS(2), TH_FLOAT32)));
        if (s->two) loss = th_add(loss, th_sum(th_mul_scalar(b, TH_S(0.5))));
        th_backward(th_grad_scaler_scale(scaler, loss));
        if (s->unscale) th_grad_scaler_unscale_(scaler, first);
        th_grad_scaler_step(scaler, first);
        if (s->two) th_grad_scaler_step(scaler, second);
        assert_int_equal(th_grad_scaler_update(scaler), TH_OK);
        if (step == s->reload_at) scaler = reloaded(scaler);
        fprintf(out, "%d scale %.17g tracker %lld weights", step, th_grad_scaler_get_scale(scaler),
                (long long)th_grad_scaler_growth_tracker(scaler));
        print_weights(out, a);
        if (s->two) print_weights(out, b);
        fprintf(out, "\n");
    }
    th_optimizer_free(first);
    th_optimizer_free(second);
    th_free(a);
    th_free(b);
    th_grad_scaler_free(scaler);
}

static char *trajectory(void)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) run(out, &scenarios[i]);
    fclose(out);
    return text;
}

/* The stream's whole text. */
static char *slurp(FILE *in)
{
    enum { MAX = 1 << 18 };
    char *text = calloc(1, MAX);
    assert_non_null(text);
    size_t n = fread(text, 1, MAX - 1, in);
    assert_true(n < MAX - 1);
    return text;
}

static void compare(const char *ours, const char *theirs)
{
    int line = 1;
    for (size_t i = 0; ours[i] != '\0' || theirs[i] != '\0'; i++) {
        if (ours[i] != theirs[i]) fail_msg("line %d differs", line);
        if (ours[i] == '\n') line++;
    }
    assert_int_equal(line, 7 * (STEPS + 1) + 1);
}

static void equals_stored_trajectory(void **state)
{
    (void)state;
    FILE *file = fopen(TEST_SOURCE_DIR "/tests/golden/grad_scaler.txt", "r");
    assert_non_null(file);
    char *theirs = slurp(file), *ours = trajectory();
    fclose(file);
    compare(ours, theirs);
    free(ours);
    th__grad_scaler_use_own_check(true); /* what libtorch 1.13 has to use gives the same bits */
    ours = trajectory();
    compare(ours, theirs);
    free(ours);
    free(theirs);
}

static void equals_live_trajectory(void **state)
{
    (void)state;
    const char *python = getenv("CFABRIC_PYTHON");
    if (python == NULL) python = TEST_SOURCE_DIR "/.venv/bin/python";
    char command[1024];
    snprintf(command, sizeof command, "%s -c 'import torch; torch.amp.GradScaler(\"cpu\")' >/dev/null 2>&1", python);
    if (system(command) != 0) {
        print_message("no Python with torch.amp.GradScaler('cpu'): skipped\n");
        skip();
    }
    snprintf(command, sizeof command, "timeout 100 %s %s/tests/golden/grad_scaler.py cpu 2>/dev/null", python, TEST_SOURCE_DIR);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    char *theirs = slurp(pipe), *ours = trajectory();
    assert_int_equal(pclose(pipe), 0);
    compare(ours, theirs);
    free(ours);
    free(theirs);
}

/* ---- single behaviours */

static void arguments(void **state)
{
    (void)state;
    assert_null(th_grad_scaler_new(.growth_factor = 1.0));
    expect_error(TH_ERR_VALUE, "growth factor");
    assert_null(th_grad_scaler_new(.backoff_factor = 1.0));
    expect_error(TH_ERR_VALUE, "backoff factor");
    th_grad_scaler *scaler = th_grad_scaler_new();
    assert_true(th_grad_scaler_get_scale(scaler) == 65536.0);
    assert_int_equal(th_grad_scaler_set_scale(scaler, 8.0), TH_OK);
    assert_true(th_grad_scaler_get_scale(scaler) == 8.0);
    th_grad_scaler_free(scaler);
    assert_true(isnan(th_grad_scaler_get_scale(NULL)));
    expect_error(TH_ERR_TYPE, "grad scaler");
}

/* A float16 loss comes back in float32: 65536 is no float16. */
static void scaling_a_half_loss(void **state)
{
    (void)state;
    TH_SCOPE();
    th_grad_scaler *scaler = th_grad_scaler_new();
    th_tensor *loss = th_tensor_scalar(TH_S(0.5), TH_FLOAT16);
    th_tensor *scaled = th_grad_scaler_scale(scaler, loss);
    assert_int_equal(th_dtype_of(scaled), TH_FLOAT32);
    assert_true(th_item(scaled) == 32768.0);
    th_grad_scaler_free(scaler);
}

static void misuse(void **state)
{
    (void)state;
    TH_SCOPE();
    th_grad_scaler *scaler = th_grad_scaler_new();
    th_tensor *w = weight((const float[]){1.0f, 2.0f}, 2);
    th_optimizer *sgd = th_optim_sgd(TH_TENSORS(w), .lr = 0.1);
    assert_false(th_grad_scaler_step(scaler, sgd));
    expect_error(TH_ERR_RUNTIME, "attempted step");
    th_grad_scaler_update(scaler);
    expect_error(TH_ERR_RUNTIME, "attempted update");
    th_grad_scaler_unscale_(scaler, sgd);
    expect_error(TH_ERR_RUNTIME, "attempted unscale_");
    th_grad_scaler_scale(scaler, th_sum(w));
    th_grad_scaler_update(scaler);
    expect_error(TH_ERR_RUNTIME, "prior to update");
    assert_false(th_grad_scaler_step(scaler, sgd)); /* nothing went backward */
    expect_error(TH_ERR_RUNTIME, "no inf checks");
    th_grad_scaler_set_scale(scaler, 4.0);
    th_backward(th_grad_scaler_scale(scaler, th_sum(w)));
    assert_int_equal(th_grad_scaler_unscale_(scaler, sgd), TH_OK);
    assert_true(th_item(th_max(th_grad(w))) == 1.0);
    th_grad_scaler_unscale_(scaler, sgd);
    expect_error(TH_ERR_RUNTIME, "already been called");
    assert_true(th_grad_scaler_step(scaler, sgd));
    assert_false(th_grad_scaler_step(scaler, sgd));
    expect_error(TH_ERR_RUNTIME, "since the last update()");
    th_grad_scaler_unscale_(scaler, sgd);
    expect_error(TH_ERR_RUNTIME, "after step()");
    assert_int_equal(th_grad_scaler_update(scaler), TH_OK);
    th_optimizer_free(sgd);
    th_free(w);
    th_grad_scaler_free(scaler);
}

static void half_gradients_are_refused(void **state)
{
    (void)state;
    TH_SCOPE();
    th_grad_scaler *scaler = th_grad_scaler_new();
    th_tensor *w = th_requires_grad_(th_keep(th_tensor_from((const float[]){1.0f}, TH_INTS(1), TH_FLOAT16)), true);
    if (th_error() != TH_OK) { /* float16 from float memory may need another way */
        th_error_clear();
        w = th_requires_grad_(th_keep(th_to_dtype(th_tensor_from((const float[]){1.0f}, TH_INTS(1), TH_FLOAT32), TH_FLOAT16)),
                              true);
    }
    th_optimizer *sgd = th_optim_sgd(TH_TENSORS(w), .lr = 0.1);
    th_grad_scaler_scale(scaler, th_tensor_scalar(TH_S(1.0), TH_FLOAT32));
    th_set_grad(w, th_ones(TH_INTS(1), .dtype = TH_FLOAT16));
    th_grad_scaler_unscale_(scaler, sgd);
    expect_error(TH_ERR_VALUE, "FP16 gradients");
    th_optimizer_free(sgd);
    th_free(w);
    th_grad_scaler_free(scaler);
}

/* Gradients of several dtypes: each is divided once, and an overflow in any of them counts. */
static void mixed_dtypes(void **state)
{
    for (int own = 0; own < 2; own++) {
        clean(state);
        TH_SCOPE();
        th__grad_scaler_use_own_check(own == 1);
        th_grad_scaler *scaler = th_grad_scaler_new(.init_scale = 4.0);
        static const th_dtype dtypes[] = {TH_FLOAT32, TH_FLOAT64, TH_BFLOAT16, TH_FLOAT64, TH_FLOAT32};
        th_tensor *w[5];
        for (int i = 0; i < 5; i++) w[i] = th_requires_grad_(th_keep(th_ones(TH_INTS(3), .dtype = dtypes[i])), true);
        th_optimizer *sgd = th_optim_sgd(((th_tensors){w, 5}), .lr = 1.0);
        for (int bad = -1; bad < 5; bad++) {
            TH_SCOPE();
            th_grad_scaler_set_scale(scaler, 4.0);
            th_grad_scaler_scale(scaler, th_tensor_scalar(TH_S(1.0), TH_FLOAT32));
            for (int i = 0; i < 5; i++)
                th_set_grad(w[i], th_full(TH_INTS(3), TH_S(i == bad ? (double)NAN : 8.0), .dtype = dtypes[i]));
            assert_int_equal(th_grad_scaler_unscale_(scaler, sgd), TH_OK);
            assert_int_equal(th__grad_scaler_found_inf(scaler, sgd), bad >= 0);
            for (int i = 0; i < 5; i++)
                if (i != bad) assert_true(th_item(th_max(th_grad(w[i]))) == 2.0 && th_item(th_min(th_grad(w[i]))) == 2.0);
        }
        th_optimizer_free(sgd);
        for (int i = 0; i < 5; i++) th_free(w[i]);
        th_grad_scaler_free(scaler);
    }
}

static void states(void **state)
{
    (void)state;
    th_grad_scaler *scaler = th_grad_scaler_new(.init_scale = 32.0, .growth_interval = 5);
    th_value *saved = th_grad_scaler_state_dict(scaler);
    assert_int_equal(th_value_size(saved), 5);
    assert_true(th_value_as_double(th_value_get(saved, "scale"), 0) == 32.0);
    assert_int_equal(th_value_as_int(th_value_get(saved, "growth_interval"), 0), 5);
    assert_int_equal(th_value_as_int(th_value_get(saved, "_growth_tracker"), -1), 0);
    th_value *empty = th_value_dict();
    th_grad_scaler_load_state_dict(scaler, empty);
    expect_error(TH_ERR_RUNTIME, "empty");
    th_value_free(empty);
    th_value_remove(saved, "backoff_factor");
    th_grad_scaler_load_state_dict(scaler, saved);
    expect_error(TH_ERR_KEY, "backoff_factor");
    assert_int_equal(th_value_set(saved, "backoff_factor", th_value_string("x")), TH_OK);
    th_grad_scaler_load_state_dict(scaler, saved);
    expect_error(TH_ERR_VALUE, "backoff_factor");
    th_value_free(saved);
    th_value *object = th_state_grad_scaler(scaler);
    assert_int_equal(th_value_kind_of(object), TH_VALUE_OBJECT);
    th_value_free(object);
    th_grad_scaler_free(scaler);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, clean, leak_check)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(equals_stored_trajectory),   TEST(equals_live_trajectory), TEST(arguments), TEST(scaling_a_half_loss), TEST(misuse),
        TEST(half_gradients_are_refused), TEST(mixed_dtypes),           TEST(states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
