/* nn/forward.c: running a module: one scope per call, hooks, and the seam for Fabric's wrapper. */
#include "nn/module_impl.h"

static const th_tensors nothing = {NULL, 0};

/* The module's own function, whichever of the two it has. The list lives in the current scope. */
static th_tensors call_own(th_module *module, th_tensors inputs)
{
    if (module->args.forward_n != NULL) return module->args.forward_n(module, inputs);
    if (inputs.size != 1) {
        th__fail(TH_ERR_TYPE, "th_forward", "%s takes 1 input, got %zu", module->name, inputs.size);
        return nothing;
    }
    th_tensor *output = module->args.forward(module, inputs.data[0]);
    return th__pending() == TH_OK ? th_list((th_tensors){&output, 1}) : nothing;
}

static th_tensors run_hooked(th_module *module, th_tensors inputs)
{
    for (size_t i = 0; i < module->n_pre_hooks; i++) {
        inputs = module->pre_hooks[i].call(module, inputs, module->pre_hooks[i].user);
        if (th__pending() != TH_OK) return nothing;
    }
    th_tensors outputs = call_own(module, inputs);
    for (size_t i = 0; i < module->n_post_hooks && th__pending() == TH_OK; i++)
        outputs = module->post_hooks[i].call(module, inputs, outputs, module->post_hooks[i].user);
    return outputs;
}

/* Hands the results to the caller's scope and ends this call's. */
static th_tensors leave(th_module *module, int depth, th_tensors outputs)
{
    if (th__pending() == TH_OK && (outputs.size == 0 || outputs.data[0] == NULL))
        th__fail(TH_ERR_RUNTIME, "th_forward", "the forward of %s returned no tensor", module->name);
    outputs = th__pending() == TH_OK ? th_escape_list(outputs) : nothing;
    th_scope_pop(depth);
    return th__pending() == TH_OK ? outputs : nothing;
}

th_tensors th__module_forward_inner(th_module *module, th_tensors inputs)
{
    if (th__pending() != TH_OK || !th__module_check(module, "th_forward")) return nothing;
    int depth = th_scope_push();
    return leave(module, depth, run_hooked(module, inputs));
}

th_tensors th_forward_n(th_module *module, th_tensors inputs)
{
    if (th__pending() != TH_OK || !th__module_check(module, "th_forward")) return nothing;
    if (module->wrapper_ops == NULL) return th__module_forward_inner(module, inputs);
    int depth = th_scope_push();
    return leave(module, depth, module->wrapper_ops->forward(module, module->wrapper, inputs));
}

/* The common case, one input and one output without hooks: no lists. */
static th_tensor *forward_plain(th_module *module, th_tensor *input)
{
    int depth = th_scope_push();
    th_tensor *output = module->args.forward(module, input);
    if (output == NULL && th__pending() == TH_OK)
        th__fail(TH_ERR_RUNTIME, "th_forward", "the forward of %s returned no tensor", module->name);
    output = th__pending() == TH_OK ? th_escape(output) : NULL;
    th_scope_pop(depth);
    return th__pending() == TH_OK ? output : NULL;
}

th_tensor *th_forward_call(th_module *module, th_tensors inputs)
{
    TH__CHECK_PENDING_NULL();
    if (!th__module_check(module, "th_forward")) return NULL;
    if (module->args.forward != NULL && inputs.size == 1 && module->wrapper_ops == NULL && module->n_pre_hooks == 0 &&
        module->n_post_hooks == 0)
        return forward_plain(module, inputs.data[0]);
    th_tensors outputs = th_forward_n(module, inputs);
    return outputs.size > 0 ? outputs.data[0] : NULL;
}

/* ---------------------------------------------------------------- hooks */

th_status th_register_forward_pre_hook(th_module *module, th_forward_pre_hook hook, void *user)
{
    TH__CHECK_PENDING();
    if (!th__module_check(module, __func__)) return th__pending();
    if (hook == NULL) return TH__FAIL(TH_ERR_TYPE, "the hook is NULL, expected a function");
    th__pre_hook_entry entry = {hook, user};
    (void)TH__PUSH(module->pre_hooks, module->n_pre_hooks, module->pre_hooks_capacity, entry);
    return th__pending();
}

th_status th_register_forward_hook(th_module *module, th_forward_hook hook, void *user)
{
    TH__CHECK_PENDING();
    if (!th__module_check(module, __func__)) return th__pending();
    if (hook == NULL) return TH__FAIL(TH_ERR_TYPE, "the hook is NULL, expected a function");
    th__post_hook_entry entry = {hook, user};
    (void)TH__PUSH(module->post_hooks, module->n_post_hooks, module->post_hooks_capacity, entry);
    return th__pending();
}

bool th_remove_forward_pre_hook(th_module *module, th_forward_pre_hook hook, void *user)
{
    if (module == NULL || !th__module_check(module, __func__)) return false;
    for (size_t i = 0; i < module->n_pre_hooks; i++) {
        if (module->pre_hooks[i].call != hook || module->pre_hooks[i].user != user) continue;
        for (size_t k = i + 1; k < module->n_pre_hooks; k++) module->pre_hooks[k - 1] = module->pre_hooks[k];
        module->n_pre_hooks--;
        return true;
    }
    return false;
}

bool th_remove_forward_hook(th_module *module, th_forward_hook hook, void *user)
{
    if (module == NULL || !th__module_check(module, __func__)) return false;
    for (size_t i = 0; i < module->n_post_hooks; i++) {
        if (module->post_hooks[i].call != hook || module->post_hooks[i].user != user) continue;
        for (size_t k = i + 1; k < module->n_post_hooks; k++) module->post_hooks[k - 1] = module->post_hooks[k];
        module->n_post_hooks--;
        return true;
    }
    return false;
}

/* ---------------------------------------------------------------- the wrapper seam */

th_status th__module_set_wrapper(th_module *module, const th__module_wrapper *ops, void *wrapper)
{
    TH__CHECK_PENDING();
    if (!th__module_check(module, __func__)) return th__pending();
    if (ops != NULL && module->wrapper_ops != NULL)
        return TH__FAIL(TH_ERR_VALUE, "%s has been set up already, expected a module that is not wrapped", module->name);
    if (ops == NULL && module->wrapper_ops != NULL && module->wrapper_ops->free != NULL)
        module->wrapper_ops->free(module->wrapper);
    module->wrapper_ops = ops;
    module->wrapper = ops != NULL ? wrapper : NULL;
    return TH_OK;
}

void *th__module_wrapper_of(th_module *module, const th__module_wrapper **ops)
{
    bool live = module != NULL && th__module_check(module, __func__);
    if (ops != NULL) *ops = live ? module->wrapper_ops : NULL;
    return live ? module->wrapper : NULL;
}
