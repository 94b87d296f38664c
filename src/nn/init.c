/* nn/init.c: torch.nn.init. The same operators in the same order with the same double arithmetic, so the same random numbers. */
#include <cfabric/nn_init.h>

#include "nn/module_impl.h"
#include <cfabric/ops.h>
#include <math.h>
#include <string.h>

/* Lightning's empty_init passes over exactly the functions that torch.nn.init announces to its dispatcher (uniform_, normal_,
 * constant_, kaiming_uniform_); the others still run. Doing the same keeps the random stream equal. */
static bool is_skipped(bool announced) { return th__init_is_suspended() || (announced && th__init_context_get().skip_init); }

#define ENTER(tensor, announced)                                                                                                 \
    TH__CHECK_PENDING_NULL();                                                                                                    \
    if (!th__tensor_check((tensor), __func__, "tensor")) return NULL;                                                            \
    if (is_skipped(announced)) return (tensor);                                                                                  \
    TH_SCOPE();                                                                                                                  \
    TH_NO_GRAD()

static th_tensor *done(th_tensor *tensor) { return th__pending() == TH_OK ? tensor : NULL; }

th_tensor *th_nn_init_uniform__call(struct th_nn_init_uniform__args args)
{
    ENTER(args.tensor, true);
    th_uniform_(args.tensor, args.a, args.b, .generator = args.generator);
    return done(args.tensor);
}

th_tensor *th_nn_init_normal__call(struct th_nn_init_normal__args args)
{
    ENTER(args.tensor, true);
    th_normal_(args.tensor, args.mean, args.std, .generator = args.generator);
    return done(args.tensor);
}

th_tensor *th_nn_init_constant_(th_tensor *tensor, double value)
{
    ENTER(tensor, true);
    th_fill_scalar_(tensor, TH_S(value));
    return done(tensor);
}

th_tensor *th_nn_init_ones_(th_tensor *tensor)
{
    ENTER(tensor, false);
    th_fill_scalar_(tensor, TH_S(1.0));
    return done(tensor);
}

th_tensor *th_nn_init_zeros_(th_tensor *tensor)
{
    ENTER(tensor, false);
    th_zero_(tensor);
    return done(tensor);
}

/* ---------------------------------------------------------------- fans and gains */

bool th_nn_init_fans(th_tensor *tensor, int64_t *fan_in, int64_t *fan_out)
{
    *fan_in = *fan_out = 0;
    if (th__pending() != TH_OK || !th__tensor_check(tensor, __func__, "tensor")) return false;
    th_ints sizes = th_sizes(tensor);
    if (sizes.size < 2) {
        TH__FAIL(TH_ERR_VALUE, "a tensor with %zu dimensions has no fan in and fan out, expected at least 2", sizes.size);
        return false;
    }
    int64_t receptive = 1;
    for (size_t i = 2; i < sizes.size; i++) receptive *= sizes.data[i];
    *fan_in = sizes.data[1] * receptive;
    *fan_out = sizes.data[0] * receptive;
    return true;
}

double th_nn_init_calculate_gain_call(struct th_nn_init_calculate_gain_args args)
{
    if (th__pending() != TH_OK) return NAN;
    static const char *const ones[] = {"linear",           "conv1d",           "conv2d",           "conv3d",
                                       "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid"};
    const char *name = args.nonlinearity != NULL ? args.nonlinearity : "";
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        if (strcmp(name, ones[i]) == 0) return 1.0;
    if (strcmp(name, "tanh") == 0) return 5.0 / 3;
    if (strcmp(name, "relu") == 0) return sqrt(2.0);
    double slope = args.param.has ? args.param.value : 0.01;
    if (strcmp(name, "leaky_relu") == 0) return sqrt(2.0 / (1 + pow(slope, 2)));
    if (strcmp(name, "selu") == 0) return 3.0 / 4;
    th__fail(TH_ERR_VALUE, "th_nn_init_calculate_gain",
             "nonlinearity '%s' is not known; known: linear, conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, "
             "conv_transpose3d, sigmoid, tanh, relu, leaky_relu, selu",
             name);
    return NAN;
}

static double correct_fan(th_tensor *tensor, const char *mode, const char *function)
{
    int64_t fan_in, fan_out;
    if (mode == NULL || strcmp(mode, "fan_in") == 0) return th_nn_init_fans(tensor, &fan_in, &fan_out) ? (double)fan_in : NAN;
    if (strcmp(mode, "fan_out") == 0) return th_nn_init_fans(tensor, &fan_in, &fan_out) ? (double)fan_out : NAN;
    th__fail(TH_ERR_VALUE, function, "mode '%s', expected 'fan_in' or 'fan_out'", mode);
    return NAN;
}

th_tensor *th_nn_init_xavier_uniform__call(struct th_nn_init_xavier_uniform__args args)
{
    ENTER(args.tensor, false);
    int64_t fan_in, fan_out;
    if (!th_nn_init_fans(args.tensor, &fan_in, &fan_out)) return NULL;
    double std = args.gain * sqrt(2.0 / (double)(fan_in + fan_out));
    double a = sqrt(3.0) * std;
    th_uniform_(args.tensor, -a, a, .generator = args.generator);
    return done(args.tensor);
}

th_tensor *th_nn_init_xavier_normal__call(struct th_nn_init_xavier_normal__args args)
{
    ENTER(args.tensor, false);
    int64_t fan_in, fan_out;
    if (!th_nn_init_fans(args.tensor, &fan_in, &fan_out)) return NULL;
    double std = args.gain * sqrt(2.0 / (double)(fan_in + fan_out));
    th_normal_(args.tensor, 0.0, std, .generator = args.generator);
    return done(args.tensor);
}

th_tensor *th_nn_init_kaiming_uniform__call(struct th_nn_init_kaiming_uniform__args args)
{
    ENTER(args.tensor, true);
    if (th_numel(args.tensor) == 0) return args.tensor;
    double fan = correct_fan(args.tensor, args.mode, "th_nn_init_kaiming_uniform_");
    double gain = th_nn_init_calculate_gain(args.nonlinearity, TH_DOUBLE(args.a));
    double std = gain / sqrt(fan);
    double bound = sqrt(3.0) * std;
    th_uniform_(args.tensor, -bound, bound, .generator = args.generator);
    return done(args.tensor);
}

th_tensor *th_nn_init_kaiming_normal__call(struct th_nn_init_kaiming_normal__args args)
{
    ENTER(args.tensor, false);
    if (th_numel(args.tensor) == 0) return args.tensor;
    double fan = correct_fan(args.tensor, args.mode, "th_nn_init_kaiming_normal_");
    double gain = th_nn_init_calculate_gain(args.nonlinearity, TH_DOUBLE(args.a));
    double std = gain / sqrt(fan);
    th_normal_(args.tensor, 0.0, std, .generator = args.generator);
    return done(args.tensor);
}

/* ---------------------------------------------------------------- trunc_normal, orthogonal */

static double norm_cdf(double x) { return (1.0 + erf(x / sqrt(2.0))) / 2.0; }

static bool any(th_tensor *mask) { return th_item(th_any(mask)) != 0.0; }

/* PyTorch up to 2.12: the inverse error function of a uniform draw. */
static void trunc_normal_inverse(th_tensor *t, double mean, double std, double a, double b, th_generator *generator)
{
    double l = norm_cdf((a - mean) / std), u = norm_cdf((b - mean) / std);
    th_uniform_(t, 2 * l - 1, 2 * u - 1, .generator = generator);
    th_erfinv_(t);
    th_mul_scalar_(t, TH_S(std * sqrt(2.0)));
    th_add_scalar_(t, TH_S(mean));
    th_clamp_(t, .min = TH_S(a), .max = TH_S(b));
}

/* Newer: normal draws outside [a, b] are drawn again. */
static void trunc_normal_redraw(th_tensor *t, double mean, double std, double a, double b, th_generator *generator)
{
    th_tensor *bound = th_empty_memory_format(TH_INTS(1), .dtype = th_dtype_of(t));
    double lo = th_item(th_fill_scalar_(bound, TH_S(a))), hi = th_item(th_fill_scalar_(bound, TH_S(b)));
    th_tensor *result = th_normal_(t, mean, std, .generator = generator);
    while (th__pending() == TH_OK) {
        th_tensor *mask = th_bitwise_or(th_lt_scalar(result, TH_S(lo)), th_gt_scalar(result, TH_S(hi)));
        if (!any(mask)) break;
        th_tensor *again = th_normal_(th_empty_like(result), mean, std, .generator = generator);
        result = th_where_self(mask, again, result);
    }
    if (result != t) th_copy_(t, result);
}

/* candidates -> log of the density relative to its peak, in place */
static void log_density(th_tensor *x, double mean, double std, double log_peak)
{
    th_sub_scalar_(x, TH_S(mean));
    th_div_scalar_(x, TH_S(std));
    th_pow_scalar_(x, TH_S((int64_t)2));
    th_mul_scalar_(x, TH_S(-0.5));
    th_sub_scalar_(x, TH_S(log_peak));
}

/* Newer, narrow windows: rejection sampling from a uniform proposal. */
static void trunc_normal_reject(th_tensor *t, double mean, double std, double a, double b, th_generator *generator)
{
    double mode = fmax(a, fmin(mean, b)), log_peak = -0.5 * pow((mode - mean) / std, 2);
    th_tensor *candidates = th_empty_like(t), *accept = th_empty_like(t);
    th_uniform_(t, a, b, .generator = generator);
    th_copy_(candidates, t);
    log_density(candidates, mean, std, log_peak);
    th_tensor *pending = th_gt(th_log_(th_uniform_(accept, 0.0, 1.0, .generator = generator)), candidates), *result = t;
    if (!any(pending)) return;
    do {
        th_uniform_(candidates, a, b, .generator = generator);
        result = th_where_self(pending, candidates, result);
        log_density(candidates, mean, std, log_peak);
        th_tensor *rejected = th_gt(th_log_(th_uniform_(accept, 0.0, 1.0, .generator = generator)), candidates);
        pending = th_where_self(pending, rejected, pending);
    } while (th__pending() == TH_OK && any(pending));
    th_copy_(t, result);
}

th_tensor *th_nn_init_trunc_normal__call(struct th_nn_init_trunc_normal__args args)
{
    ENTER(args.tensor, false);
    th_tensor *t = args.tensor;
    double mean = args.mean, std = args.std, a = args.a, b = args.b;
    if (th_device_of(t).type == TH_DEVICE_META) return t;
    if (mean < a - 2 * std || mean > b + 2 * std)
        th__warn("trunc_normal_: mean %g is more than 2 std from [%g, %g]; the distribution may be incorrect", mean, a, b);
    if (!th__torch_at_least(2, 13))
        trunc_normal_inverse(t, mean, std, a, b, args.generator);
    else if (norm_cdf((b - mean) / std) - norm_cdf((a - mean) / std) > 0.3)
        trunc_normal_redraw(t, mean, std, a, b, args.generator);
    else
        trunc_normal_reject(t, mean, std, a, b, args.generator);
    return done(t);
}

th_tensor *th_nn_init_orthogonal__call(struct th_nn_init_orthogonal__args args)
{
    ENTER(args.tensor, false);
    th_tensor *t = args.tensor;
    if (th_dim(t) < 2) {
        th__fail(TH_ERR_VALUE, "th_nn_init_orthogonal_", "a tensor with %lld dimensions, expected at least 2",
                 (long long)th_dim(t));
        return NULL;
    }
    if (th_numel(t) == 0 || th_device_of(t).type == TH_DEVICE_META) return t;
    int64_t rows = th_size(t, 0), cols = th_numel(t) / rows;
    th_tensor *flat = th_empty_memory_format(TH_INTS(rows, cols), .dtype = th_dtype_of(t), .device = th_device_of(t));
    th_normal_(flat, 0.0, 1.0, .generator = args.generator);
    if (rows < cols) th_t_(flat);
    struct th_linalg_qr_result qr = th_linalg_qr(flat);
    th_tensor *q = th_mul_(qr.Q, th_sign(th_diag(qr.R)));
    if (rows < cols) th_t_(q);
    th_copy_(th_view_as(t, q), q);
    th_mul_scalar_(t, TH_S(args.gain));
    return done(t);
}
