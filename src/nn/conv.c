/* nn/conv.c: Conv1d/2d/3d and ConvTranspose1d/2d. */
#include <cfabric/nn_modules.h>

#include "nn/dims.h"
#include <cfabric/ops.h>
#include <string.h>

typedef struct conv {
    size_t nd;
    bool transposed;
    int64_t in_channels, out_channels, groups;
    th__dims kernel, stride, padding, dilation, output_padding;
    char padding_string[8]; /* "" when numbers were given */
    char padding_mode[12];
    int64_t pad[6]; /* for padding modes other than zeros: last dimension first, as pad() wants it */
    bool bias;
    th_device device;
    th_dtype dtype;
} conv;

static th_tensor *convolve(const conv *c, th_tensor *input, th_tensor *weight, th_tensor *bias, th_ints padding)
{
    th_ints stride = th__dims_list(&c->stride, c->nd), dilation = th__dims_list(&c->dilation, c->nd);
    switch (c->nd) {
    case 1: return th_conv1d(input, weight, bias, stride, padding, dilation, c->groups);
    case 2: return th_conv2d(input, weight, bias, stride, padding, dilation, c->groups);
    default: return th_conv3d(input, weight, bias, stride, padding, dilation, c->groups);
    }
}

static th_tensor *convolve_named(const conv *c, th_tensor *input, th_tensor *weight, th_tensor *bias)
{
    th_ints stride = th__dims_list(&c->stride, c->nd), dilation = th__dims_list(&c->dilation, c->nd);
    switch (c->nd) {
    case 1: return th_conv1d_padding(input, weight, bias, stride, c->padding_string, dilation, c->groups);
    case 2: return th_conv2d_padding(input, weight, bias, stride, c->padding_string, dilation, c->groups);
    default: return th_conv3d_padding(input, weight, bias, stride, c->padding_string, dilation, c->groups);
    }
}

static th_tensor *conv_forward(th_module *self, th_tensor *input)
{
    const conv *c = self->args.data;
    th_tensor *weight = th__parameter_at(self, 0), *bias = th__parameter_at(self, 1);
    static const int64_t zeros[3] = {0, 0, 0};
    if (strcmp(c->padding_mode, "zeros") != 0) {
        th_tensor *padded = th_pad(input, ((th_ints){c->pad, 2 * c->nd}), .mode = c->padding_mode);
        return convolve(c, padded, weight, bias, (th_ints){zeros, c->nd});
    }
    if (c->padding_string[0] != '\0') return convolve_named(c, input, weight, bias);
    return convolve(c, input, weight, bias, th__dims_list(&c->padding, c->nd));
}

static th_tensor *conv_transpose_forward(th_module *self, th_tensor *input)
{
    const conv *c = self->args.data;
    th_tensor *weight = th__parameter_at(self, 0), *bias = th__parameter_at(self, 1);
    th_ints stride = th__dims_list(&c->stride, c->nd), padding = th__dims_list(&c->padding, c->nd);
    th_ints output_padding = th__dims_list(&c->output_padding, c->nd), dilation = th__dims_list(&c->dilation, c->nd);
    if (c->nd == 1) return th_conv_transpose1d(input, weight, bias, stride, padding, output_padding, c->groups, dilation);
    return th_conv_transpose2d_input(input, weight, bias, stride, padding, output_padding, c->groups, dilation);
}

/* ---------------------------------------------------------------- making one */

static void set_padding(conv *c, const char *string, const char *mode, const char *name)
{
    static const char *const modes[] = {"zeros", "reflect", "replicate", "circular"};
    bool known = false;
    for (size_t i = 0; i < 4 && mode != NULL; i++) known = known || strcmp(mode, modes[i]) == 0;
    if (mode != NULL && !known)
        th__fail(TH_ERR_VALUE, name, "padding_mode '%s', expected zeros, reflect, replicate or circular", mode);
    else if (c->transposed && mode != NULL && strcmp(mode, "zeros") != 0)
        th__fail(TH_ERR_VALUE, name, "padding_mode '%s', only 'zeros' is supported", mode);
    else if (string != NULL && strcmp(string, "same") != 0 && strcmp(string, "valid") != 0)
        th__fail(TH_ERR_VALUE, name, "padding_string '%s', expected 'same' or 'valid'", string);
    else if (string != NULL && strcmp(string, "same") == 0 && !th__dims_are(&c->stride, c->nd, 1))
        th__fail(TH_ERR_VALUE, name, "padding 'same' is not supported for strided convolutions");
    if (th__pending() != TH_OK) return;
    strcpy(c->padding_mode, mode != NULL ? mode : "zeros");
    strcpy(c->padding_string, string != NULL ? string : "");
    for (size_t i = 0; i < c->nd; i++) {
        int64_t left = c->padding.v[i], right = left, *pad = &c->pad[2 * (c->nd - 1 - i)];
        if (string != NULL) {
            int64_t total = strcmp(string, "same") == 0 ? c->dilation.v[i] * (c->kernel.v[i] - 1) : 0;
            left = total / 2;
            right = total - left;
        }
        pad[0] = left;
        pad[1] = right;
    }
}

static void describe(const conv *c, char repr[TH__REPR_MAX])
{
    char kernel[256], stride[256], other[256];
    th__repr_add(repr, "%lld, %lld, kernel_size=%s, stride=%s", (long long)c->in_channels, (long long)c->out_channels,
                 th__repr_tuple(c->kernel.v, c->nd, kernel), th__repr_tuple(c->stride.v, c->nd, stride));
    if (c->padding_string[0] != '\0')
        th__repr_add(repr, ", padding=%s", c->padding_string);
    else if (!th__dims_are(&c->padding, c->nd, 0))
        th__repr_add(repr, ", padding=%s", th__repr_tuple(c->padding.v, c->nd, other));
    if (!th__dims_are(&c->dilation, c->nd, 1)) th__repr_add(repr, ", dilation=%s", th__repr_tuple(c->dilation.v, c->nd, other));
    if (!th__dims_are(&c->output_padding, c->nd, 0))
        th__repr_add(repr, ", output_padding=%s", th__repr_tuple(c->output_padding.v, c->nd, other));
    if (c->groups != 1) th__repr_add(repr, ", groups=%lld", (long long)c->groups);
    if (!c->bias) th__repr_add(repr, ", bias=False");
    if (strcmp(c->padding_mode, "zeros") != 0) th__repr_add(repr, ", padding_mode=%s", c->padding_mode);
}

static th_module *build(const conv *c, const char *name)
{
    if (th__pending() == TH_OK && c->groups <= 0)
        th__fail(TH_ERR_VALUE, name, "groups %lld, expected a positive number", (long long)c->groups);
    if (th__pending() == TH_OK && (c->in_channels % c->groups != 0 || c->out_channels % c->groups != 0))
        th__fail(TH_ERR_VALUE, name, "in_channels %lld and out_channels %lld, expected both divisible by groups %lld",
                 (long long)c->in_channels, (long long)c->out_channels, (long long)c->groups);
    TH__CHECK_PENDING_NULL();
    char repr[TH__REPR_MAX] = "";
    describe(c, repr);
    th_module *module = TH__BUILTIN(c, sizeof *c, name, .forward = c->transposed ? conv_transpose_forward : conv_forward,
                                    .reset_parameters = th__reset_kaiming, .extra_repr = repr);
    th__factory factory = th__factory_resolve(c->device, c->dtype);
    int64_t first = c->transposed ? c->in_channels : c->out_channels, second = c->transposed ? c->out_channels : c->in_channels;
    int64_t sizes[5] = {first, second / c->groups, c->kernel.v[0], c->kernel.v[1], c->kernel.v[2]};
    th__parameter_new(module, "weight", (th_ints){sizes, 2 + c->nd}, factory);
    th__parameter_if(c->bias, module, "bias", TH_INTS(c->out_channels), factory);
    return th__builtin_finish(module);
}

static th__dims kernel_size(th_ints given, size_t nd, const char *name)
{
    if (given.data == NULL && th__pending() == TH_OK) th__fail(TH_ERR_VALUE, name, "kernel_size is not given");
    return th__dims_read(given, nd, 1, name, "kernel_size");
}

static th_module *new_conv(size_t nd, const char *name, const struct th_nn_conv_args *args)
{
    TH__CHECK_PENDING_NULL();
    conv c = {.nd = nd,
              .in_channels = args->in_channels,
              .out_channels = args->out_channels,
              .groups = args->groups,
              .bias = args->bias,
              .device = args->device,
              .dtype = args->dtype};
    c.kernel = kernel_size(args->kernel_size, nd, name);
    c.stride = th__dims_read(args->stride, nd, 1, name, "stride");
    c.padding = th__dims_read(args->padding, nd, 0, name, "padding");
    c.dilation = th__dims_read(args->dilation, nd, 1, name, "dilation");
    c.output_padding = th__dims_read((th_ints){NULL, 0}, nd, 0, name, "output_padding");
    set_padding(&c, args->padding_string, args->padding_mode, name);
    return build(&c, name);
}

static th_module *new_transposed(size_t nd, const char *name, const struct th_nn_conv_transpose_args *args)
{
    TH__CHECK_PENDING_NULL();
    conv c = {.nd = nd,
              .transposed = true,
              .in_channels = args->in_channels,
              .out_channels = args->out_channels,
              .groups = args->groups,
              .bias = args->bias,
              .device = args->device,
              .dtype = args->dtype};
    c.kernel = kernel_size(args->kernel_size, nd, name);
    c.stride = th__dims_read(args->stride, nd, 1, name, "stride");
    c.padding = th__dims_read(args->padding, nd, 0, name, "padding");
    c.dilation = th__dims_read(args->dilation, nd, 1, name, "dilation");
    c.output_padding = th__dims_read(args->output_padding, nd, 0, name, "output_padding");
    set_padding(&c, NULL, args->padding_mode, name);
    return build(&c, name);
}

th_module *th_nn_conv1d_call(struct th_nn_conv_args args) { return new_conv(1, "Conv1d", &args); }
th_module *th_nn_conv2d_call(struct th_nn_conv_args args) { return new_conv(2, "Conv2d", &args); }
th_module *th_nn_conv3d_call(struct th_nn_conv_args args) { return new_conv(3, "Conv3d", &args); }

th_module *th_nn_conv_transpose1d_call(struct th_nn_conv_transpose_args args)
{
    return new_transposed(1, "ConvTranspose1d", &args);
}

th_module *th_nn_conv_transpose2d_call(struct th_nn_conv_transpose_args args)
{
    return new_transposed(2, "ConvTranspose2d", &args);
}
