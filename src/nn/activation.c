/* nn/activation.c: activations as modules. Each one calls the operator that PyTorch's functional layer calls. */
#include <cfabric/nn_modules.h>

#include "nn/module_impl.h"
#include <cfabric/ops.h>
#include <string.h>

/* The options of any of them; each uses the fields it has. */
typedef struct activation {
    double a, b;
    bool inplace;
    th_opt_int dim;
    char approximate[8];
} activation;

#define OPTIONS(self) (*(const activation *)(self)->args.data)

typedef th_tensor *forward_fn(th_module *self, th_tensor *input);

static th_module *build(const char *name, activation options, forward_fn *forward, const char *repr)
{
    return TH__BUILTIN(&options, sizeof options, name, .forward = forward, .extra_repr = repr);
}

/* ---------------------------------------------------------------- only `inplace` */

#define INPLACE_ONLY(function, class_name, operator_, operator_inplace, shown)                                                   \
    static th_tensor *function##_forward(th_module *self, th_tensor *input)                                                      \
    {                                                                                                                            \
        return OPTIONS(self).inplace ? operator_inplace(input) : operator_(input);                                               \
    }                                                                                                                            \
    th_module *th_nn_##function##_call(struct th_nn_inplace_args args)                                                           \
    {                                                                                                                            \
        TH__CHECK_PENDING_NULL();                                                                                                \
        return build(class_name, (activation){.inplace = args.inplace}, function##_forward,                                      \
                     (shown) && args.inplace ? "inplace=True" : "");                                                             \
    }

INPLACE_ONLY(relu, "ReLU", th_relu, th_relu_, true)
INPLACE_ONLY(relu6, "ReLU6", th_relu6, th_relu6_, true)
INPLACE_ONLY(selu, "SELU", th_selu, th_selu_, true)
INPLACE_ONLY(silu, "SiLU", th_silu, th_silu_, true)
INPLACE_ONLY(mish, "Mish", th_mish, th_mish_, true)
INPLACE_ONLY(hardswish, "Hardswish", th_hardswish, th_hardswish_, false)
INPLACE_ONLY(hardsigmoid, "Hardsigmoid", th_hardsigmoid, th_hardsigmoid_, false)

/* ---------------------------------------------------------------- no options */

#define NO_OPTIONS(function, class_name, expression)                                                                             \
    static th_tensor *function##_forward(th_module *self, th_tensor *input)                                                      \
    {                                                                                                                            \
        (void)self;                                                                                                              \
        return expression;                                                                                                       \
    }                                                                                                                            \
    th_module *th_nn_##function(void)                                                                                            \
    {                                                                                                                            \
        TH__CHECK_PENDING_NULL();                                                                                                \
        return build(class_name, (activation){0}, function##_forward, "");                                                       \
    }

NO_OPTIONS(sigmoid, "Sigmoid", th_sigmoid(input))
NO_OPTIONS(tanh, "Tanh", th_tanh(input))
NO_OPTIONS(logsigmoid, "LogSigmoid", th_log_sigmoid(input))
NO_OPTIONS(softsign, "Softsign", th_div(input, th_add_scalar(th_abs(input), TH_S((int64_t)1))))
NO_OPTIONS(tanhshrink, "Tanhshrink", th_sub(input, th_tanh(input)))

static th_tensor *softmax2d_forward(th_module *self, th_tensor *input)
{
    int64_t dims = th_dim(input);
    if (dims < 0) return NULL;
    if (dims == 3 || dims == 4) return th_softmax_int(input, -3);
    th__fail(TH_ERR_VALUE, self->name, "the input has %lld dimensions, expected 3 or 4", (long long)dims);
    return NULL;
}

th_module *th_nn_softmax2d(void)
{
    TH__CHECK_PENDING_NULL();
    return build("Softmax2d", (activation){0}, softmax2d_forward, "");
}

/* ---------------------------------------------------------------- numbers */

static const char *inplace_text(bool inplace) { return inplace ? ", inplace=True" : ""; }

static th_tensor *leaky_relu_forward(th_module *self, th_tensor *input)
{
    th_scalar slope = TH_S(OPTIONS(self).a);
    return OPTIONS(self).inplace ? th_leaky_relu_(input, slope) : th_leaky_relu(input, slope);
}

th_module *th_nn_leaky_relu_call(struct th_nn_leaky_relu_args args)
{
    TH__CHECK_PENDING_NULL();
    char repr[TH__REPR_MAX] = "", a[40];
    th__repr_add(repr, "negative_slope=%s%s", th__repr_double(args.negative_slope, a), inplace_text(args.inplace));
    return build("LeakyReLU", (activation){.a = args.negative_slope, .inplace = args.inplace}, leaky_relu_forward, repr);
}

static th_tensor *elu_forward(th_module *self, th_tensor *input)
{
    th_scalar alpha = TH_S(OPTIONS(self).a);
    return OPTIONS(self).inplace ? th_elu_(input, alpha) : th_elu(input, alpha);
}

static th_tensor *celu_forward(th_module *self, th_tensor *input)
{
    th_scalar alpha = TH_S(OPTIONS(self).a);
    return OPTIONS(self).inplace ? th_celu_(input, alpha) : th_celu(input, alpha);
}

static th_module *new_elu(const char *name, struct th_nn_elu_args args, forward_fn *forward)
{
    TH__CHECK_PENDING_NULL();
    char repr[TH__REPR_MAX] = "", a[40];
    th__repr_add(repr, "alpha=%s%s", th__repr_double(args.alpha, a), inplace_text(args.inplace));
    return build(name, (activation){.a = args.alpha, .inplace = args.inplace}, forward, repr);
}

th_module *th_nn_elu_call(struct th_nn_elu_args args) { return new_elu("ELU", args, elu_forward); }
th_module *th_nn_celu_call(struct th_nn_elu_args args) { return new_elu("CELU", args, celu_forward); }

static th_tensor *gelu_forward(th_module *self, th_tensor *input)
{
    return th_gelu(input, .approximate = OPTIONS(self).approximate);
}

th_module *th_nn_gelu_call(struct th_nn_gelu_args args)
{
    TH__CHECK_PENDING_NULL();
    const char *approximate = args.approximate != NULL ? args.approximate : "none";
    if (strcmp(approximate, "none") != 0 && strcmp(approximate, "tanh") != 0) {
        th__fail(TH_ERR_VALUE, "th_nn_gelu", "approximate '%s', expected 'none' or 'tanh'", approximate);
        return NULL;
    }
    char repr[TH__REPR_MAX] = "";
    th__repr_add(repr, "approximate='%s'", approximate);
    activation options = {0};
    strcpy(options.approximate, approximate);
    return build("GELU", options, gelu_forward, repr);
}

static th_tensor *softplus_forward(th_module *self, th_tensor *input)
{
    return th_softplus(input, TH_S(OPTIONS(self).a), TH_S(OPTIONS(self).b));
}

th_module *th_nn_softplus_call(struct th_nn_softplus_args args)
{
    TH__CHECK_PENDING_NULL();
    char repr[TH__REPR_MAX] = "", a[40], b[40];
    th__repr_add(repr, "beta=%s, threshold=%s", th__repr_double(args.beta, a), th__repr_double(args.threshold, b));
    return build("Softplus", (activation){.a = args.beta, .b = args.threshold}, softplus_forward, repr);
}

static th_tensor *softshrink_forward(th_module *self, th_tensor *input) { return th_softshrink(input, TH_S(OPTIONS(self).a)); }

static th_tensor *hardshrink_forward(th_module *self, th_tensor *input) { return th_hardshrink(input, TH_S(OPTIONS(self).a)); }

static th_module *new_shrink(const char *name, struct th_nn_shrink_args args, forward_fn *forward)
{
    TH__CHECK_PENDING_NULL();
    char repr[40];
    return build(name, (activation){.a = args.lambd}, forward, th__repr_double(args.lambd, repr));
}

th_module *th_nn_softshrink_call(struct th_nn_shrink_args args) { return new_shrink("Softshrink", args, softshrink_forward); }
th_module *th_nn_hardshrink_call(struct th_nn_shrink_args args) { return new_shrink("Hardshrink", args, hardshrink_forward); }

static th_tensor *hardtanh_forward(th_module *self, th_tensor *input)
{
    th_scalar low = TH_S(OPTIONS(self).a), high = TH_S(OPTIONS(self).b);
    return OPTIONS(self).inplace ? th_hardtanh_(input, low, high) : th_hardtanh(input, low, high);
}

th_module *th_nn_hardtanh_call(struct th_nn_hardtanh_args args)
{
    TH__CHECK_PENDING_NULL();
    if (!(args.max_val > args.min_val)) {
        th__fail(TH_ERR_VALUE, "th_nn_hardtanh", "max_val %g, expected more than min_val %g", args.max_val, args.min_val);
        return NULL;
    }
    char repr[TH__REPR_MAX] = "", a[40], b[40];
    th__repr_add(repr, "min_val=%s, max_val=%s%s", th__repr_double(args.min_val, a), th__repr_double(args.max_val, b),
                 inplace_text(args.inplace));
    return build("Hardtanh", (activation){.a = args.min_val, .b = args.max_val, .inplace = args.inplace}, hardtanh_forward, repr);
}

static th_tensor *threshold_forward(th_module *self, th_tensor *input)
{
    th_scalar threshold = TH_S(OPTIONS(self).a), value = TH_S(OPTIONS(self).b);
    return OPTIONS(self).inplace ? th_threshold_(input, threshold, value) : th_threshold(input, threshold, value);
}

th_module *th_nn_threshold_call(struct th_nn_threshold_args args)
{
    TH__CHECK_PENDING_NULL();
    char repr[TH__REPR_MAX] = "", a[40], b[40];
    th__repr_add(repr, "threshold=%s, value=%s%s", th__repr_double(args.threshold, a), th__repr_double(args.value, b),
                 inplace_text(args.inplace));
    return build("Threshold", (activation){.a = args.threshold, .b = args.value, .inplace = args.inplace}, threshold_forward,
                 repr);
}

static th_tensor *rrelu_forward(th_module *self, th_tensor *input)
{
    th_scalar lower = TH_S(OPTIONS(self).a), upper = TH_S(OPTIONS(self).b);
    return OPTIONS(self).inplace ? th_rrelu_(input, lower, upper, self->training) : th_rrelu(input, lower, upper, self->training);
}

th_module *th_nn_rrelu_call(struct th_nn_rrelu_args args)
{
    TH__CHECK_PENDING_NULL();
    char repr[TH__REPR_MAX] = "", a[40], b[40];
    th__repr_add(repr, "lower=%s, upper=%s%s", th__repr_double(args.lower, a), th__repr_double(args.upper, b),
                 inplace_text(args.inplace));
    return build("RReLU", (activation){.a = args.lower, .b = args.upper, .inplace = args.inplace}, rrelu_forward, repr);
}

static th_tensor *prelu_forward(th_module *self, th_tensor *input) { return th_prelu(input, th__parameter_at(self, 0)); }

static th_status prelu_reset(th_module *self)
{
    th_nn_init_constant_(th__parameter_at(self, 0), OPTIONS(self).a);
    return th__pending();
}

th_module *th_nn_prelu_call(struct th_nn_prelu_args args)
{
    TH__CHECK_PENDING_NULL();
    activation options = {.a = args.init};
    char repr[TH__REPR_MAX] = "";
    th__repr_add(repr, "num_parameters=%lld", (long long)args.num_parameters);
    th_module *module = TH__BUILTIN(&options, sizeof options, "PReLU", .forward = prelu_forward, .reset_parameters = prelu_reset,
                                    .extra_repr = repr);
    th__parameter_new(module, "weight", TH_INTS(args.num_parameters), th__factory_resolve(args.device, args.dtype));
    return th__builtin_finish(module);
}

/* ---------------------------------------------------------------- along a dimension */

static th_tensor *glu_forward(th_module *self, th_tensor *input) { return th_glu(input, OPTIONS(self).dim.value); }

th_module *th_nn_glu_call(struct th_nn_glu_args args)
{
    TH__CHECK_PENDING_NULL();
    char repr[TH__REPR_MAX] = "";
    th__repr_add(repr, "dim=%lld", (long long)args.dim);
    return build("GLU", (activation){.dim = TH_INT(args.dim)}, glu_forward, repr);
}

/* Without a dimension PyTorch takes 0 for 0, 1 and 3 dimensions, else 1. */
static int64_t softmax_dim(th_module *self, th_tensor *input)
{
    if (OPTIONS(self).dim.has) return OPTIONS(self).dim.value;
    int64_t dims = th_dim(input);
    return dims == 0 || dims == 1 || dims == 3 ? 0 : 1;
}

static th_tensor *softmax_forward(th_module *self, th_tensor *input) { return th_softmax_int(input, softmax_dim(self, input)); }

static th_tensor *log_softmax_forward(th_module *self, th_tensor *input)
{
    return th_log_softmax_int(input, softmax_dim(self, input));
}

static th_tensor *softmin_forward(th_module *self, th_tensor *input)
{
    return th_softmax_int(th_neg(input), softmax_dim(self, input));
}

static th_module *new_softmax(const char *name, struct th_nn_softmax_args args, forward_fn *forward)
{
    TH__CHECK_PENDING_NULL();
    char repr[TH__REPR_MAX] = "";
    if (args.dim.has)
        th__repr_add(repr, "dim=%lld", (long long)args.dim.value);
    else
        th__repr_add(repr, "dim=None");
    return build(name, (activation){.dim = args.dim}, forward, repr);
}

th_module *th_nn_softmax_call(struct th_nn_softmax_args args) { return new_softmax("Softmax", args, softmax_forward); }
th_module *th_nn_log_softmax_call(struct th_nn_softmax_args args) { return new_softmax("LogSoftmax", args, log_softmax_forward); }
th_module *th_nn_softmin_call(struct th_nn_softmax_args args) { return new_softmax("Softmin", args, softmin_forward); }
