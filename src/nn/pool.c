/* nn/pool.c: MaxPool1d/2d/3d, AvgPool1d/2d, AdaptiveAvgPool1d/2d. */
#include <cfabric/nn_modules.h>

#include "nn/dims.h"
#include <cfabric/ops.h>
#include <string.h>

typedef struct pool {
    size_t nd;
    th__dims kernel, stride, padding, dilation;
    bool ceil_mode, count_include_pad;
    th_opt_int divisor;
} pool;

/* kernel_size and the stride that defaults to it. */
static bool read_window(pool *p, th_ints kernel_size, th_ints stride, th_ints padding, const char *name)
{
    if (kernel_size.data == NULL) th__fail(TH_ERR_VALUE, name, "kernel_size is not given");
    p->kernel = th__dims_read(kernel_size, p->nd, 1, name, "kernel_size");
    p->stride = stride.data != NULL ? th__dims_read(stride, p->nd, 1, name, "stride") : p->kernel;
    p->padding = th__dims_read(padding, p->nd, 0, name, "padding");
    return th__pending() == TH_OK;
}

/* ---------------------------------------------------------------- max */

static th_tensor *max_forward(th_module *self, th_tensor *input)
{
    const pool *p = self->args.data;
    th_ints kernel = th__dims_list(&p->kernel, p->nd), stride = th__dims_list(&p->stride, p->nd);
    th_ints padding = th__dims_list(&p->padding, p->nd), dilation = th__dims_list(&p->dilation, p->nd);
    switch (p->nd) {
    case 1: return th_max_pool1d(input, kernel, stride, padding, dilation, p->ceil_mode);
    case 2: return th_max_pool2d(input, kernel, stride, padding, dilation, p->ceil_mode);
    default: return th_max_pool3d(input, kernel, stride, padding, dilation, p->ceil_mode);
    }
}

static th_tensors max_forward_indices(th_module *self, th_tensors inputs)
{
    const pool *p = self->args.data;
    static const char *const names[] = {"aten::max_pool1d_with_indices", "aten::max_pool2d_with_indices",
                                        "aten::max_pool3d_with_indices"};
    th_arg args[] = {TH_A(inputs.size == 1 ? inputs.data[0] : NULL), TH_A_INTS(th__dims_list(&p->kernel, p->nd)),
                     TH_A_INTS(th__dims_list(&p->stride, p->nd)),    TH_A_INTS(th__dims_list(&p->padding, p->nd)),
                     TH_A_INTS(th__dims_list(&p->dilation, p->nd)),  TH_A_BOOL(p->ceil_mode)};
    th_arg results[2] = {TH_A_NONE, TH_A_NONE};
    if (th_call_args(names[p->nd - 1], args, 6, results, 2) != 2) return (th_tensors){NULL, 0};
    return th_list(TH_TENSORS(results[0].v.tensor, results[1].v.tensor));
}

static th_module *new_max(size_t nd, const char *name, const struct th_nn_max_pool_args *args)
{
    TH__CHECK_PENDING_NULL();
    pool p = {.nd = nd, .ceil_mode = args->ceil_mode};
    if (!read_window(&p, args->kernel_size, args->stride, args->padding, name)) return NULL;
    p.dilation = th__dims_read(args->dilation, nd, 1, name, "dilation");
    TH__CHECK_PENDING_NULL();
    char repr[TH__REPR_MAX] = "", kernel[256], stride[256], padding[256], dilation[256];
    th__repr_add(repr, "kernel_size=%s, stride=%s, padding=%s, dilation=%s, ceil_mode=%s", th__dims_text(&p.kernel, nd, kernel),
                 th__dims_text(&p.stride, nd, stride), th__dims_text(&p.padding, nd, padding),
                 th__dims_text(&p.dilation, nd, dilation), th__repr_bool(p.ceil_mode));
    if (args->return_indices) return TH__BUILTIN(&p, sizeof p, name, .forward_n = max_forward_indices, .extra_repr = repr);
    return TH__BUILTIN(&p, sizeof p, name, .forward = max_forward, .extra_repr = repr);
}

th_module *th_nn_max_pool1d_call(struct th_nn_max_pool_args args) { return new_max(1, "MaxPool1d", &args); }
th_module *th_nn_max_pool2d_call(struct th_nn_max_pool_args args) { return new_max(2, "MaxPool2d", &args); }
th_module *th_nn_max_pool3d_call(struct th_nn_max_pool_args args) { return new_max(3, "MaxPool3d", &args); }

/* ---------------------------------------------------------------- average */

static th_tensor *avg_forward(th_module *self, th_tensor *input)
{
    const pool *p = self->args.data;
    th_ints kernel = th__dims_list(&p->kernel, p->nd), stride = th__dims_list(&p->stride, p->nd);
    th_ints padding = th__dims_list(&p->padding, p->nd);
    switch (p->nd) {
    case 1: return th_avg_pool1d(input, kernel, stride, padding, p->ceil_mode, p->count_include_pad);
    case 2: return th_avg_pool2d(input, kernel, stride, padding, p->ceil_mode, p->count_include_pad, p->divisor);
    default: return th_avg_pool3d(input, kernel, stride, padding, p->ceil_mode, p->count_include_pad, p->divisor);
    }
}

static th_module *new_avg(size_t nd, const char *name, const struct th_nn_avg_pool_args *args)
{
    TH__CHECK_PENDING_NULL();
    pool p = {
        .nd = nd, .ceil_mode = args->ceil_mode, .count_include_pad = args->count_include_pad, .divisor = args->divisor_override};
    if (!read_window(&p, args->kernel_size, args->stride, args->padding, name)) return NULL;
    if (nd == 1) { /* PyTorch keeps tuples here */
        p.kernel.single = p.stride.single = p.padding.single = false;
        if (args->divisor_override.has) {
            th__fail(TH_ERR_VALUE, name, "divisor_override is given, expected none in one dimension");
            return NULL;
        }
    }
    char repr[TH__REPR_MAX] = "", kernel[256], stride[256], padding[256];
    th__repr_add(repr, "kernel_size=%s, stride=%s, padding=%s", th__dims_text(&p.kernel, nd, kernel),
                 th__dims_text(&p.stride, nd, stride), th__dims_text(&p.padding, nd, padding));
    return TH__BUILTIN(&p, sizeof p, name, .forward = avg_forward, .extra_repr = repr);
}

th_module *th_nn_avg_pool1d_call(struct th_nn_avg_pool_args args) { return new_avg(1, "AvgPool1d", &args); }
th_module *th_nn_avg_pool2d_call(struct th_nn_avg_pool_args args) { return new_avg(2, "AvgPool2d", &args); }
th_module *th_nn_avg_pool3d_call(struct th_nn_avg_pool_args args) { return new_avg(3, "AvgPool3d", &args); }

/* ---------------------------------------------------------------- adaptive average */

static th_tensor *adaptive_forward(th_module *self, th_tensor *input)
{
    const pool *p = self->args.data;
    int64_t dims = th_dim(input), sizes[2];
    if (dims < (int64_t)p->nd) {
        if (th__pending() == TH_OK)
            th__fail(TH_ERR_VALUE, self->name, "the input has %lld dimensions, expected more than %zu", (long long)dims, p->nd);
        return NULL;
    }
    for (size_t i = 0; i < p->nd; i++)
        sizes[i] = p->kernel.v[i] >= 0 ? p->kernel.v[i] : th_size(input, (int64_t)i - (int64_t)p->nd);
    if (p->nd == 1) return th_adaptive_avg_pool1d(input, ((th_ints){sizes, 1}));
    return th_adaptive_avg_pool2d(input, ((th_ints){sizes, 2}));
}

static th_module *new_adaptive(size_t nd, const char *name, th_ints output_size)
{
    TH__CHECK_PENDING_NULL();
    if (output_size.data == NULL) th__fail(TH_ERR_VALUE, name, "output_size is not given");
    pool p = {.nd = nd, .kernel = th__dims_read(output_size, nd, 1, name, "output_size")};
    TH__CHECK_PENDING_NULL();
    char repr[TH__REPR_MAX] = "output_size=";
    if (!p.kernel.single) th__repr_add(repr, "(");
    for (size_t i = 0; i < (p.kernel.single ? 1 : nd); i++) {
        if (i > 0) th__repr_add(repr, ", ");
        if (p.kernel.v[i] >= 0)
            th__repr_add(repr, "%lld", (long long)p.kernel.v[i]);
        else
            th__repr_add(repr, "None");
    }
    if (!p.kernel.single) th__repr_add(repr, ")");
    return TH__BUILTIN(&p, sizeof p, name, .forward = adaptive_forward, .extra_repr = repr);
}

th_module *th_nn_adaptive_avg_pool1d(th_ints output_size) { return new_adaptive(1, "AdaptiveAvgPool1d", output_size); }
th_module *th_nn_adaptive_avg_pool2d(th_ints output_size) { return new_adaptive(2, "AdaptiveAvgPool2d", output_size); }
