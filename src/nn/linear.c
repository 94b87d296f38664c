/* nn/linear.c: Linear and Identity. */
#include <cfabric/nn_modules.h>

#include "nn/module_impl.h"
#include <cfabric/ops.h>

static th_tensor *linear_forward(th_module *self, th_tensor *input)
{
    return th_linear(input, th__parameter_at(self, 0), .bias = th__parameter_at(self, 1));
}

th_module *th__linear_named(const char *class_name, struct th_nn_linear_args args)
{
    TH__CHECK_PENDING_NULL();
    char repr[TH__REPR_MAX] = "";
    th__repr_add(repr, "in_features=%lld, out_features=%lld, bias=%s", (long long)args.in_features, (long long)args.out_features,
                 th__repr_bool(args.bias));
    th_module *module =
        TH__BUILTIN(NULL, 0, class_name, .forward = linear_forward, .reset_parameters = th__reset_kaiming, .extra_repr = repr);
    th__factory factory = th__factory_resolve(args.device, args.dtype);
    th__parameter_new(module, "weight", TH_INTS(args.out_features, args.in_features), factory);
    th__parameter_if(args.bias, module, "bias", TH_INTS(args.out_features), factory);
    return th__builtin_finish(module);
}

th_module *th_nn_linear_call(struct th_nn_linear_args args) { return th__linear_named("Linear", args); }

static th_tensor *identity_forward(th_module *self, th_tensor *input)
{
    (void)self;
    return input;
}

th_module *th_nn_identity(void) { return TH__BUILTIN(NULL, 0, "Identity", .forward = identity_forward); }
