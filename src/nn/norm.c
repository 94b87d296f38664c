/* nn/norm.c: BatchNorm1d/2d, GroupNorm, LayerNorm. */
#include <cfabric/nn_modules.h>

#include "nn/module_impl.h"
#include <cfabric/ops.h>
#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- batch */

typedef struct batch_norm {
    int nd;
    double eps, momentum;
    bool track;
} batch_norm;

static bool check_batch_input(th_module *self, const batch_norm *b, th_tensor *input)
{
    int64_t dims = th_dim(input);
    if (dims < 0) return false;
    if (b->nd == 1 ? dims != 2 && dims != 3 : dims != 4) {
        th__fail(TH_ERR_VALUE, self->name, "the input has %lld dimensions, expected %s", (long long)dims,
                 b->nd == 1 ? "2 or 3" : "4");
        return false;
    }
    int64_t values = th_size(input, 0);
    for (int64_t i = 2; i < dims; i++) values *= th_size(input, i);
    if (self->training && values == 1) {
        th__fail(TH_ERR_VALUE, self->name, "one value per channel, expected more than 1 when training");
        return false;
    }
    return true;
}

static th_tensor *batch_forward(th_module *self, th_tensor *input)
{
    const batch_norm *b = self->args.data;
    if (!check_batch_input(self, b, input)) return NULL;
    double factor = isnan(b->momentum) ? 0.0 : b->momentum;
    if (self->training && b->track) {
        th_tensor *tracked = th__buffer_at(self, 2);
        if (tracked != NULL) {
            th_add_scalar_(tracked, TH_S((int64_t)1));
            if (isnan(b->momentum)) factor = 1.0 / th_item(tracked);
        }
    }
    th_tensor *mean = th__buffer_at(self, 0), *var = th__buffer_at(self, 1);
    bool by_batch = self->training || (mean == NULL && var == NULL), use_running = !self->training || b->track;
    return th_batch_norm(input, th__parameter_at(self, 0), th__parameter_at(self, 1), use_running ? mean : NULL,
                         use_running ? var : NULL, by_batch, factor, b->eps, true);
}

static th_status reset_batch(th_module *self)
{
    const batch_norm *b = self->args.data;
    if (b->track) {
        th_zero_(th__buffer_at(self, 0));
        th_fill_scalar_(th__buffer_at(self, 1), TH_S((int64_t)1));
        th_zero_(th__buffer_at(self, 2));
    }
    return th__reset_affine(self);
}

static void describe_batch(const struct th_nn_batch_norm_args *args, char repr[TH__REPR_MAX])
{
    char eps[40], momentum[40] = "None";
    if (!isnan(args->momentum)) th__repr_double(args->momentum, momentum);
    th__repr_add(repr, "%lld, eps=%s, momentum=%s, affine=%s", (long long)args->num_features, th__repr_double(args->eps, eps),
                 momentum, th__repr_bool(args->affine));
    if (th__torch_at_least(2, 13)) th__repr_add(repr, ", bias=%s", th__repr_bool(args->affine && args->bias));
    th__repr_add(repr, ", track_running_stats=%s", th__repr_bool(args->track_running_stats));
}

static th_module *new_batch(int nd, const char *name, const struct th_nn_batch_norm_args *args)
{
    TH__CHECK_PENDING_NULL();
    if (args->eps < 0) {
        th__fail(TH_ERR_VALUE, name, "eps %g, expected a number that is not negative", args->eps);
        return NULL;
    }
    batch_norm b = {nd, args->eps, args->momentum, args->track_running_stats};
    char repr[TH__REPR_MAX] = "";
    describe_batch(args, repr);
    th_module *module =
        TH__BUILTIN(&b, sizeof b, name, .forward = batch_forward, .reset_parameters = reset_batch, .extra_repr = repr);
    th__factory factory = th__factory_resolve(args->device, args->dtype);
    th_ints sizes = TH_INTS(args->num_features);
    th__parameter_if(args->affine, module, "weight", sizes, factory);
    th__parameter_if(args->affine && args->bias, module, "bias", sizes, factory);
    static const char *const names[] = {"running_mean", "running_var", "num_batches_tracked"};
    for (int i = 0; i < 3; i++) {
        if (module == NULL || th__pending() != TH_OK) break;
        if (!args->track_running_stats)
            th_register_buffer(module, names[i], NULL, true);
        else
            th__buffer_new(module, names[i], i < 2 ? sizes : TH_NO_INTS, i == 1, i == 2 ? TH_INT64 : TH_DTYPE_NONE, factory);
    }
    return th__builtin_finish(module);
}

th_module *th_nn_batch_norm1d_call(struct th_nn_batch_norm_args args) { return new_batch(1, "BatchNorm1d", &args); }
th_module *th_nn_batch_norm2d_call(struct th_nn_batch_norm_args args) { return new_batch(2, "BatchNorm2d", &args); }

/* ---------------------------------------------------------------- group */

typedef struct group_norm {
    int64_t num_groups;
    double eps;
} group_norm;

static th_tensor *group_forward(th_module *self, th_tensor *input)
{
    const group_norm *g = self->args.data;
    return th_group_norm(input, g->num_groups, .weight = th__parameter_at(self, 0), .bias = th__parameter_at(self, 1),
                         .eps = g->eps);
}

th_module *th_nn_group_norm_call(struct th_nn_group_norm_args args)
{
    TH__CHECK_PENDING_NULL();
    if (args.num_groups <= 0 || args.num_channels % args.num_groups != 0) {
        th__fail(TH_ERR_VALUE, "th_nn_group_norm", "num_channels %lld, expected a multiple of num_groups %lld",
                 (long long)args.num_channels, (long long)args.num_groups);
        return NULL;
    }
    group_norm g = {args.num_groups, args.eps};
    char repr[TH__REPR_MAX] = "", eps[40];
    th__repr_add(repr, "%lld, %lld, eps=%s, affine=%s", (long long)args.num_groups, (long long)args.num_channels,
                 th__repr_double(args.eps, eps), th__repr_bool(args.affine));
    if (th__torch_at_least(2, 13)) th__repr_add(repr, ", bias=%s", th__repr_bool(args.affine && args.bias));
    th_module *module = TH__BUILTIN(&g, sizeof g, "GroupNorm", .forward = group_forward, .reset_parameters = th__reset_affine,
                                    .extra_repr = repr);
    th__factory factory = th__factory_resolve(args.device, args.dtype);
    th__parameter_if(args.affine, module, "weight", TH_INTS(args.num_channels), factory);
    th__parameter_if(args.affine && args.bias, module, "bias", TH_INTS(args.num_channels), factory);
    return th__builtin_finish(module);
}

/* ---------------------------------------------------------------- layer */

enum { MAX_NORMALIZED = 8 };
typedef struct layer_norm {
    int64_t shape[MAX_NORMALIZED];
    size_t dims;
    double eps;
} layer_norm;

static th_tensor *layer_forward(th_module *self, th_tensor *input)
{
    const layer_norm *l = self->args.data;
    return th_layer_norm(input, ((th_ints){l->shape, l->dims}), .weight = th__parameter_at(self, 0),
                         .bias = th__parameter_at(self, 1), .eps = l->eps);
}

th_module *th_nn_layer_norm_call(struct th_nn_layer_norm_args args)
{
    TH__CHECK_PENDING_NULL();
    if (args.normalized_shape.size == 0 || args.normalized_shape.size > MAX_NORMALIZED) {
        th__fail(TH_ERR_VALUE, "th_nn_layer_norm", "normalized_shape has %zu dimensions, expected 1 to %d",
                 args.normalized_shape.size, MAX_NORMALIZED);
        return NULL;
    }
    layer_norm l = {.dims = args.normalized_shape.size, .eps = args.eps};
    memcpy(l.shape, args.normalized_shape.data, l.dims * sizeof *l.shape);
    char repr[TH__REPR_MAX] = "", shape[256], eps[40];
    th__repr_add(repr, "%s, eps=%s, elementwise_affine=%s", th__repr_tuple(l.shape, l.dims, shape),
                 th__repr_double(args.eps, eps), th__repr_bool(args.elementwise_affine));
    if (th__torch_at_least(2, 13)) th__repr_add(repr, ", bias=%s", th__repr_bool(args.elementwise_affine && args.bias));
    th_module *module = TH__BUILTIN(&l, sizeof l, "LayerNorm", .forward = layer_forward, .reset_parameters = th__reset_affine,
                                    .extra_repr = repr);
    th__factory factory = th__factory_resolve(args.device, args.dtype);
    th__parameter_if(args.elementwise_affine, module, "weight", args.normalized_shape, factory);
    th__parameter_if(args.elementwise_affine && args.bias, module, "bias", args.normalized_shape, factory);
    return th__builtin_finish(module);
}
