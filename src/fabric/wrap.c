/* fabric/wrap.c: what set-up installs between a module's or optimizer's caller and the object itself. */
#include "fabric/internal.h"
#include "nn/internal.h"
#include "optim/internal.h"
#include "strategies/internal.h"
#include <stdlib.h>

/* ---- the guard: a plain th_backward is an error where strategy or precision must see the backward */

static th_tensors guard_forward(th_function_ctx *ctx, th_tensors inputs, void *user)
{
    (void)ctx, (void)user;
    return inputs;
}

static th_tensors guard_backward(th_function_ctx *ctx, th_tensors grads, void *user)
{
    (void)ctx, (void)user;
    if (fabric__in_backward()) return grads;
    th__fail(TH_ERR_RUNTIME, "th_backward",
             "the strategy and precision in use need fabric_backward(fab, loss) instead of th_backward(loss)");
    return (th_tensors){0};
}

static const th_function guard = {sizeof guard, "FabricBackwardGuard", guard_forward, guard_backward, NULL};

static th_tensor *guarded(th_tensor *output)
{
    if (output == NULL || !th_is_grad_enabled() || !th_requires_grad(output)) return output;
    th_tensors outputs = th_function_apply(&guard, (th_tensors){&output, 1}, NULL);
    return outputs.size > 0 ? outputs.data[0] : NULL;
}

/* ---- modules */

typedef struct module_wrapper {
    fabric_strategy *strategy;    /* retained */
    th_module *module;            /* borrowed: it owns this */
    void *state;                  /* the strategy's */
    bool guarded;
} module_wrapper;

enum { FEW = 16 };

/* fn(tensor) for each; the list is in the caller's scope. */
static th_tensors convert_all(fabric_precision *precision, th_tensors tensors,
                              th_tensor *(*fn)(fabric_precision *precision, th_tensor *tensor), bool guard_them)
{
    th_tensor *few[FEW], **converted = few;
    if (tensors.size > FEW && (converted = th__malloc(tensors.size * sizeof *converted)) == NULL) return (th_tensors){0};
    for (size_t i = 0; i < tensors.size; i++) {
        converted[i] = tensors.data[i] != NULL ? fn(precision, tensors.data[i]) : NULL;
        if (guard_them) converted[i] = guarded(converted[i]);
    }
    th_tensors list = th__pending() == TH_OK ? th_list((th_tensors){converted, tensors.size}) : (th_tensors){0};
    if (converted != few) free(converted);
    return list;
}

static th_tensors wrapped_forward(th_module *module, void *data, th_tensors inputs)
{
    module_wrapper *w = data;
    fabric_precision *precision = w->strategy->precision;
    inputs = convert_all(precision, inputs, fabric_precision_convert_input, false);
    if (th__pending() != TH_OK) return (th_tensors){0};
    fabric_context context = {{0}};
    if (fabric_precision_forward_enter(precision, &context) != TH_OK) return (th_tensors){0};
    th_tensors outputs = fabric_strategy_forward(w->strategy, module, w->state, inputs);
    fabric_precision_forward_exit(precision, &context);
    if (th__pending() != TH_OK) return (th_tensors){0};
    return convert_all(precision, outputs, fabric_precision_convert_output, w->guarded);
}

static void free_module_wrapper(void *data)
{
    module_wrapper *w = data;
    fabric_strategy_free_module(w->strategy, w->module, w->state);
    fabric_strategy_free(w->strategy);
    free(w);
}

static const th__module_wrapper module_ops = {wrapped_forward, free_module_wrapper};

th_status fabric__wrap_module(fabric *fab, th_module *module, void *strategy_state)
{
    TH__CHECK_PENDING();
    module_wrapper *w = th__calloc(1, sizeof *w);
    if (w == NULL) return th__pending();
    w->strategy = fabric_strategy_retain(fab->strategy);
    w->module = module;
    w->state = strategy_state;
    w->guarded = fabric__strategy_requires_fabric_backward(fab->strategy) ||
                 fabric_precision_requires_fabric_backward(fab->strategy->precision);
    if (fabric__list_add(&fab->modules, module) == 0) {
        if (th__module_set_wrapper(module, &module_ops, w) == TH_OK) {
            th_module_retain(module);
            return TH_OK;
        }
        fab->modules.size--;
    }
    fabric_strategy_free(w->strategy);
    free(w);
    return th__pending();
}

static module_wrapper *wrapper_of(th_module *module)
{
    const th__module_wrapper *ops = NULL;
    void *data = th__module_wrapper_of(module, &ops);
    return ops == &module_ops ? data : NULL;
}

bool fabric__module_state(th_module *module, void **strategy_state)
{
    module_wrapper *w = wrapper_of(module);
    if (w != NULL && strategy_state != NULL) *strategy_state = w->state;
    return w != NULL;
}

bool fabric_is_wrapped_module(th_module *module)
{
    return wrapper_of(module) != NULL;
}

th_tensors fabric_forward_through(th_module *module, fabric_forward_method function, void *user, th_tensors inputs)
{
    if (th__pending() != TH_OK) return (th_tensors){0};
    if (function == NULL) {
        TH__FAIL(TH_ERR_TYPE, "the forward method is NULL, expected a function");
        return (th_tensors){0};
    }
    if (wrapper_of(module) == NULL) return th__pending() == TH_OK ? function(module, inputs, user) : (th_tensors){0};
    fabric__forward_method old = fabric__forward_method_swap((fabric__forward_method){module, function, user});
    th_tensors outputs = th_forward_n(module, inputs);
    fabric__forward_method_swap(old);
    return outputs;
}

/* ---- optimizers */

typedef struct optimizer_wrapper {
    fabric *fab;    /* takes this wrapper off when it ends */
} optimizer_wrapper;

static th_tensor *wrapped_step(th_optimizer *optimizer, void *data, th_closure closure, void *user)
{
    fabric *fab = ((optimizer_wrapper *)data)->fab;
    th_tensor *result = fabric_strategy_optimizer_step(fab->strategy, optimizer, closure, user);
    if (fab->n_callbacks == 0 || th__pending() != TH_OK) return result;
    fabric_call(fab, "on_after_optimizer_step",
                FABRIC_ARGS(FABRIC_ARG("strategy", fab->strategy), FABRIC_ARG("optimizer", optimizer)));
    return th__pending() == TH_OK ? result : NULL;
}

static th_value *wrapped_state_dict(th_optimizer *optimizer, void *data)
{
    return fabric_strategy_optimizer_state(((optimizer_wrapper *)data)->fab->strategy, optimizer);
}

static th_status wrapped_load_state_dict(th_optimizer *optimizer, void *data, th_value *state)
{
    return fabric_strategy_load_optimizer_state(((optimizer_wrapper *)data)->fab->strategy, optimizer, state);
}

static const th__optimizer_wrapper optimizer_ops = {wrapped_step, wrapped_state_dict, wrapped_load_state_dict, free};

th_status fabric__wrap_optimizer(fabric *fab, th_optimizer *optimizer)
{
    TH__CHECK_PENDING();
    optimizer_wrapper *w = th__malloc(sizeof *w);
    if (w == NULL) return th__pending();
    w->fab = fab;
    if (fabric__list_add(&fab->optimizers, optimizer) == 0) {
        if (th__optimizer_set_wrapper(optimizer, &optimizer_ops, w) == TH_OK) {
            th_optimizer_retain(optimizer);
            return TH_OK;
        }
        fab->optimizers.size--;
    }
    free(w);
    return th__pending();
}

bool fabric_is_wrapped_optimizer(th_optimizer *optimizer)
{
    const th__optimizer_wrapper *ops = NULL;
    th__optimizer_wrapper_of(optimizer, &ops);
    return ops == &optimizer_ops;
}

/* ---- the end */

void fabric__unwrap_all(fabric *fab)
{
    for (size_t i = fab->optimizers.size; i-- > 0;) {
        th__optimizer_set_wrapper(fab->optimizers.items[i], NULL, NULL);
        th_optimizer_free(fab->optimizers.items[i]);
    }
    for (size_t i = fab->modules.size; i-- > 0;) {
        th__module_set_wrapper(fab->modules.items[i], NULL, NULL);
        th_module_free(fab->modules.items[i]);
    }
    for (size_t i = fab->loaders.size; i-- > 0;) th_dataloader_free(fab->loaders.items[i]);
    fab->optimizers.size = fab->modules.size = fab->loaders.size = 0;
}
