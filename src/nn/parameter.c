/* nn/parameter.c: the one place where built-in modules get parameters and buffers, so that fabric_init_module can decide their
 * device and dtype and whether they are initialised. */
#include "nn/module_impl.h"

#include <cfabric/nn_init.h>
#include <cfabric/ops.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local bool suspended;

bool th__init_suspend(bool suspend)
{
    bool old = suspended;
    suspended = suspend;
    return old;
}

bool th__init_is_suspended(void) { return suspended; }

th__factory th__factory_resolve(th_device device, th_dtype dtype)
{
    th__init_context context = th__init_context_get();
    th__factory factory = {device.type != TH_DEVICE_NONE ? device : context.device,
                           dtype != TH_DTYPE_NONE ? dtype : context.dtype};
    if (factory.device.type == TH_DEVICE_NONE) factory.device = TH_CPU;
    if (factory.dtype == TH_DTYPE_NONE) factory.dtype = th_get_default_dtype();
    return factory;
}

th_tensor *th__parameter_new(th_module *module, const char *name, th_ints sizes, th__factory factory)
{
    TH__CHECK_PENDING_NULL();
    if (module == NULL) return NULL;
    TH_SCOPE();
    return th_register_parameter(module, name, th_empty_memory_format(sizes, .dtype = factory.dtype, .device = factory.device));
}

th_tensor *th__parameter_if(bool present, th_module *module, const char *name, th_ints sizes, th__factory factory)
{
    TH__CHECK_PENDING_NULL();
    if (present) return th__parameter_new(module, name, sizes, factory);
    return module != NULL ? th_register_parameter(module, name, NULL) : NULL;
}

th_status th__reset_kaiming(th_module *module)
{
    th_tensor *weight = th__parameter_at(module, 0), *bias = th__parameter_at(module, 1);
    th_nn_init_kaiming_uniform_(weight, .a = sqrt(5.0));
    int64_t fan_in = 0, fan_out = 0;
    if (bias == NULL || !th_nn_init_fans(weight, &fan_in, &fan_out)) return th__pending();
    double bound = fan_in > 0 ? 1 / sqrt((double)fan_in) : 0;
    th_nn_init_uniform_(bias, -bound, bound);
    return th__pending();
}

th_status th__reset_affine(th_module *module)
{
    if (th__parameter_at(module, 0) != NULL) th_nn_init_ones_(th__parameter_at(module, 0));
    if (th__parameter_at(module, 1) != NULL) th_nn_init_zeros_(th__parameter_at(module, 1));
    return th__pending();
}

th_tensor *th__buffer_new(th_module *module, const char *name, th_ints sizes, double value, th_dtype dtype, th__factory factory)
{
    TH__CHECK_PENDING_NULL();
    if (module == NULL) return NULL;
    TH_SCOPE();
    dtype = dtype != TH_DTYPE_NONE ? dtype : factory.dtype;
    return th_register_buffer(module, name, th_full(sizes, TH_S(value), .dtype = dtype, .device = factory.device), true);
}

th_module *th__builtin_new(const struct th_module_args *args, const void *data, size_t size)
{
    TH__CHECK_PENDING_NULL();
    struct th_module_args full = *args;
    if (size > 0) {
        full.data = th__malloc(size);
        if (full.data == NULL) return NULL;
        memcpy(full.data, data, size);
    }
    if (full.free_data == NULL) full.free_data = free;
    th_module *module = th_module_new_call(full);
    if (module == NULL) free(full.data);
    return module;
}

th_module *th__builtin_finish(th_module *module)
{
    if (module != NULL && th__pending() == TH_OK) th_module_reset_parameters(module);
    if (th__pending() == TH_OK) return module;
    th_module_free(module);
    return NULL;
}
