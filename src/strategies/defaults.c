/* strategies/defaults.c: the defaults that do more than call one function: training through the precision, clipping. */
#include "nn/internal.h"
#include "precision/internal.h"
#include "strategies/internal.h"
#include <cfabric/nn_utils.h>
#include <stdlib.h>

th_status fabric_strategy_default_setup_environment(fabric_strategy *s)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__)) return th__pending();
    return s->accelerator != NULL ? fabric_accelerator_setup_device(s->accelerator, fabric_strategy_root_device(s)) : TH_OK;
}

/* ---- forward */

static _Thread_local fabric__forward_method forward_method;

fabric__forward_method fabric__forward_method_swap(fabric__forward_method next)
{
    fabric__forward_method old = forward_method;
    forward_method = next;
    return old;
}

th_tensors fabric_strategy_default_forward(fabric_strategy *s, th_module *module, void *state, th_tensors inputs)
{
    (void)s, (void)state;
    if (forward_method.function == NULL || forward_method.module != module) return th__module_forward_inner(module, inputs);
    /* Once: a forward of the same module inside the method is an ordinary one. */
    fabric__forward_method method = fabric__forward_method_swap((fabric__forward_method){0});
    int depth = th_scope_push();
    th_tensors outputs = method.function(module, inputs, method.user);
    outputs = th__pending() == TH_OK ? th_escape_list(outputs) : (th_tensors){0};
    th_scope_pop(depth);
    return th__pending() == TH_OK ? outputs : (th_tensors){0};
}

/* ---- backward and step: the precision decides */

th_status fabric_strategy_default_backward(fabric_strategy *s, th_module *module, const struct th_backward_args *args)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__)) return th__pending();
    TH__TRY(fabric_precision_pre_backward(s->precision, args->tensor, module));
    TH__TRY(fabric_precision_backward(s->precision, module, args));
    return fabric_precision_post_backward(s->precision, args->tensor, module);
}

th_tensor *fabric_strategy_default_optimizer_step(fabric_strategy *s, th_optimizer *optimizer, th_closure closure, void *user)
{
    TH__CHECK_PENDING_NULL();
    if (!fabric__strategy_check(s, __func__)) return NULL;
    return fabric_precision_optimizer_step(s->precision, optimizer, closure, user);
}

/* ---- clipping: over the optimizer's parameters, not the module's */

/* The parameters of all groups. [scoped], .data NULL with an error raised or without parameters. */
static th_tensors all_params(th_optimizer *optimizer)
{
    size_t groups = th_optimizer_n_groups(optimizer), total = 0;
    for (size_t g = 0; g < groups; g++) total += th_optimizer_params(optimizer, g).size;
    if (th__pending() != TH_OK || total == 0) return (th_tensors){0};
    th_tensor **all = th__malloc(total * sizeof *all);
    if (all == NULL) return (th_tensors){0};
    size_t n = 0;
    for (size_t g = 0; g < groups; g++) {
        th_tensors params = th_optimizer_params(optimizer, g);
        for (size_t i = 0; i < params.size && n < total; i++) all[n++] = params.data[i];
    }
    th_tensors list = th_list((th_tensors){all, n});
    free(all);
    return list;
}

th_tensor *fabric_strategy_default_clip_gradients_norm(fabric_strategy *s, th_module *module, th_optimizer *optimizer, double max_norm,
                                                       double norm_type, bool error_if_nonfinite)
{
    (void)module;
    TH__CHECK_PENDING_NULL();
    if (!fabric__strategy_check(s, __func__)) return NULL;
    TH__TRY_NULL(fabric_precision_unscale_gradients(s->precision, optimizer));
    if (fabric__precision_found_overflow(s->precision, optimizer)) error_if_nonfinite = false; /* the step will be skipped */
    return th_nn_utils_clip_grad_norm_(all_params(optimizer), max_norm, .norm_type = norm_type,
                                       .error_if_nonfinite = error_if_nonfinite);
}

th_status fabric_strategy_default_clip_gradients_value(fabric_strategy *s, th_module *module, th_optimizer *optimizer, double clip_val)
{
    (void)module;
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__)) return th__pending();
    TH__TRY(fabric_precision_unscale_gradients(s->precision, optimizer));
    return th_nn_utils_clip_grad_value_(all_params(optimizer), clip_val);
}
