/* strategies/slots.c: every operation of a strategy: the table's function, or the simple default. Larger defaults are in defaults.c. */
#include "optim/internal.h"
#include "strategies/internal.h"

#define HAS(s, slot) TH__SLOT((s)->ops, slot)

/* ---- facts */

const char *fabric_strategy_name(fabric_strategy *s)
{
    return fabric__strategy_check(s, __func__) ? s->ops->name : "";
}

bool fabric__strategy_single_process(fabric_strategy *s)
{
    return HAS(s, single_process);
}

bool fabric__strategy_requires_fabric_backward(fabric_strategy *s)
{
    return HAS(s, requires_fabric_backward);
}

bool fabric__strategy_requires_joint_setup(fabric_strategy *s)
{
    return HAS(s, requires_joint_setup);
}

const char *fabric_strategy_launcher(fabric_strategy *s)
{
    if (!fabric__strategy_check(s, __func__))
        return "";
    const char *name = HAS(s, launcher) ? s->ops->launcher(s) : NULL;
    return name != NULL ? name : "";
}

int fabric_strategy_global_rank(fabric_strategy *s)
{
    if (!fabric__strategy_check(s, __func__))
        return -1;
    return HAS(s, global_rank) ? s->ops->global_rank(s) : 0;
}

int fabric_strategy_local_rank(fabric_strategy *s)
{
    if (!fabric__strategy_check(s, __func__))
        return -1;
    return HAS(s, local_rank) ? s->ops->local_rank(s) : 0;
}

int fabric_strategy_node_rank(fabric_strategy *s)
{
    if (!fabric__strategy_check(s, __func__))
        return -1;
    return HAS(s, node_rank) ? s->ops->node_rank(s) : 0;
}

int fabric_strategy_world_size(fabric_strategy *s)
{
    if (!fabric__strategy_check(s, __func__))
        return -1;
    return HAS(s, world_size) ? s->ops->world_size(s) : 1;
}

th_device fabric_strategy_root_device(fabric_strategy *s)
{
    if (!fabric__strategy_check(s, __func__))
        return TH_CPU;
    if (HAS(s, root_device))
        return s->ops->root_device(s);
    int rank = fabric_strategy_local_rank(s);
    return rank >= 0 && (size_t)rank < s->n_devices ? s->devices[rank] : TH_CPU;
}

bool fabric_strategy_sampler_args(fabric_strategy *s, int *num_replicas, int *rank)
{
    return fabric__strategy_check(s, __func__) && HAS(s, sampler_args) && s->ops->sampler_args(s, num_replicas, rank);
}

/* ---- setting up */

th_status fabric_strategy_validate(fabric_strategy *s)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__))
        return th__pending();
    return HAS(s, validate) ? s->ops->validate(s) : TH_OK;
}

th_status fabric_strategy_setup_environment(fabric_strategy *s)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__))
        return th__pending();
    return HAS(s, setup_environment) ? s->ops->setup_environment(s) : fabric_strategy_default_setup_environment(s);
}

th_status fabric_strategy_setup_module(fabric_strategy *s, th_module *module, void **state)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__))
        return th__pending();
    *state = NULL;
    return HAS(s, setup_module) ? s->ops->setup_module(s, module, state) : TH_OK;
}

th_status fabric_strategy_setup_optimizer(fabric_strategy *s, th_optimizer *optimizer)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__))
        return th__pending();
    return HAS(s, setup_optimizer) ? s->ops->setup_optimizer(s, optimizer) : TH_OK;
}

th_status fabric_strategy_setup_module_and_optimizers(fabric_strategy *s, th_module *module, th_optimizer *const *optimizers, size_t n,
                                                      th_scheduler *scheduler, void **state)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__))
        return th__pending();
    *state = NULL;
    if (HAS(s, setup_module_and_optimizers))
        return s->ops->setup_module_and_optimizers(s, module, optimizers, n, scheduler, state);
    TH__TRY(fabric_strategy_setup_module(s, module, state));
    for (size_t i = 0; i < n; i++)
        TH__TRY(fabric_strategy_setup_optimizer(s, optimizers[i]));
    return TH_OK;
}

th_status fabric_strategy_module_to_device(fabric_strategy *s, th_module *module)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__))
        return th__pending();
    if (HAS(s, module_to_device))
        return s->ops->module_to_device(s, module);
    return th_module_to(module, fabric_strategy_root_device(s), TH_DTYPE_NONE);
}

th_status fabric_strategy_process_dataloader(fabric_strategy *s, th_dataloader *loader)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__))
        return th__pending();
    return HAS(s, process_dataloader) ? s->ops->process_dataloader(s, loader) : TH_OK;
}

th_status fabric_strategy_module_init(fabric_strategy *s, int empty_init, th_device *device, bool *skip_init)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__))
        return th__pending();
    *device = fabric_strategy_root_device(s);
    *skip_init = empty_init == 1;
    return HAS(s, module_init) ? s->ops->module_init(s, empty_init, device, skip_init) : TH_OK;
}

void fabric_strategy_free_module(fabric_strategy *s, th_module *module, void *state)
{
    if (fabric__strategy_check(s, __func__) && HAS(s, free_module))
        s->ops->free_module(s, module, state);
}

/* ---- training */

th_tensors fabric_strategy_forward(fabric_strategy *s, th_module *module, void *state, th_tensors inputs)
{
    if (th__pending() != TH_OK || !fabric__strategy_check(s, __func__))
        return (th_tensors){0};
    return HAS(s, forward) ? s->ops->forward(s, module, state, inputs) : fabric_strategy_default_forward(s, module, state, inputs);
}

th_status fabric_strategy_backward(fabric_strategy *s, th_module *module, const struct th_backward_args *args)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__))
        return th__pending();
    return HAS(s, backward) ? s->ops->backward(s, module, args) : fabric_strategy_default_backward(s, module, args);
}

th_tensor *fabric_strategy_optimizer_step(fabric_strategy *s, th_optimizer *optimizer, th_closure closure, void *user)
{
    TH__CHECK_PENDING_NULL();
    if (!fabric__strategy_check(s, __func__))
        return NULL;
    if (HAS(s, optimizer_step))
        return s->ops->optimizer_step(s, optimizer, closure, user);
    return fabric_strategy_default_optimizer_step(s, optimizer, closure, user);
}

th_tensor *fabric_strategy_clip_gradients_norm(fabric_strategy *s, th_module *module, th_optimizer *optimizer, double max_norm,
                                               double norm_type, bool error_if_nonfinite)
{
    TH__CHECK_PENDING_NULL();
    if (!fabric__strategy_check(s, __func__))
        return NULL;
    if (HAS(s, clip_gradients_norm))
        return s->ops->clip_gradients_norm(s, module, optimizer, max_norm, norm_type, error_if_nonfinite);
    return fabric_strategy_default_clip_gradients_norm(s, module, optimizer, max_norm, norm_type, error_if_nonfinite);
}

th_status fabric_strategy_clip_gradients_value(fabric_strategy *s, th_module *module, th_optimizer *optimizer, double clip_val)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__))
        return th__pending();
    if (HAS(s, clip_gradients_value))
        return s->ops->clip_gradients_value(s, module, optimizer, clip_val);
    return fabric_strategy_default_clip_gradients_value(s, module, optimizer, clip_val);
}

th_status fabric_strategy_no_backward_sync(fabric_strategy *s, th_module *module, void *state, bool enter)
{
    if (enter)
        TH__CHECK_PENDING();    /* leaving must work with an error pending */
    if (!fabric__strategy_check(s, __func__))
        return th__pending();
    if (HAS(s, no_backward_sync))
        return s->ops->no_backward_sync(s, module, state, enter);
    if (!s->said_no_sync) {
        s->said_no_sync = true;
        th__warn_rank_zero("%s cannot skip gradient synchronisation: fabric_no_backward_sync has no effect", s->ops->name);
    }
    return TH_OK;
}

/* ---- collectives */

th_tensor *fabric_strategy_all_reduce(fabric_strategy *s, th_tensor *tensor, const char *op, th_process_group *group)
{
    TH__CHECK_PENDING_NULL();
    if (!fabric__strategy_check(s, __func__))
        return NULL;
    return HAS(s, all_reduce) ? s->ops->all_reduce(s, tensor, op, group) : tensor;
}

th_tensor *fabric_strategy_all_gather(fabric_strategy *s, th_tensor *tensor, bool sync_grads, th_process_group *group)
{
    TH__CHECK_PENDING_NULL();
    if (!fabric__strategy_check(s, __func__))
        return NULL;
    return HAS(s, all_gather) ? s->ops->all_gather(s, tensor, sync_grads, group) : tensor;
}

th_value *fabric_strategy_broadcast(fabric_strategy *s, th_value *value, int src)
{
    TH__CHECK_PENDING_NULL();
    if (!fabric__strategy_check(s, __func__))
        return NULL;
    return HAS(s, broadcast) ? s->ops->broadcast(s, value, src) : th_value_retain(value);
}

th_status fabric_strategy_barrier(fabric_strategy *s, const char *name)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__))
        return th__pending();
    return HAS(s, barrier) ? s->ops->barrier(s, name) : TH_OK;
}

bool fabric_strategy_reduce_boolean_decision(fabric_strategy *s, bool decision, bool all)
{
    if (th__pending() != TH_OK || !fabric__strategy_check(s, __func__))
        return false;
    return HAS(s, reduce_boolean_decision) ? s->ops->reduce_boolean_decision(s, decision, all) : decision;
}

th_status fabric_strategy_infinite_barrier(fabric_strategy *s)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__))
        return th__pending();
    return HAS(s, infinite_barrier) ? s->ops->infinite_barrier(s) : TH_OK;
}

/* ---- checkpoints */

th_status fabric_strategy_save_checkpoint(fabric_strategy *s, const char *path, th_value *state, const fabric_save_options *options)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__))
        return th__pending();
    if (HAS(s, save_checkpoint))
        return s->ops->save_checkpoint(s, path, state, options);
    return fabric_strategy_default_save_checkpoint(s, path, state, options);
}

th_value *fabric_strategy_load_checkpoint(fabric_strategy *s, const char *path, th_value *state, bool strict)
{
    TH__CHECK_PENDING_NULL();
    if (!fabric__strategy_check(s, __func__))
        return NULL;
    if (HAS(s, load_checkpoint))
        return s->ops->load_checkpoint(s, path, state, strict);
    return fabric_strategy_default_load_checkpoint(s, path, state, strict);
}

th_value *fabric_strategy_module_state(fabric_strategy *s, th_module *module)
{
    TH__CHECK_PENDING_NULL();
    if (!fabric__strategy_check(s, __func__))
        return NULL;
    return HAS(s, module_state) ? s->ops->module_state(s, module) : th_module_state_dict(module);
}

th_status fabric_strategy_load_module_state(fabric_strategy *s, th_module *module, th_value *state, bool strict)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__))
        return th__pending();
    if (HAS(s, load_module_state))
        return s->ops->load_module_state(s, module, state, strict);
    return th_module_load_state_dict(module, state, strict);
}

th_value *fabric_strategy_optimizer_state(fabric_strategy *s, th_optimizer *optimizer)
{
    TH__CHECK_PENDING_NULL();
    if (!fabric__strategy_check(s, __func__))
        return NULL;
    return HAS(s, optimizer_state) ? s->ops->optimizer_state(s, optimizer) : th__optimizer_state_dict_inner(optimizer);
}

th_status fabric_strategy_load_optimizer_state(fabric_strategy *s, th_optimizer *optimizer, th_value *state)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__))
        return th__pending();
    if (HAS(s, load_optimizer_state))
        return s->ops->load_optimizer_state(s, optimizer, state);
    return th__optimizer_load_state_dict_inner(optimizer, state);
}

/* ---- the end: works with an error pending */

th_status fabric_strategy_teardown(fabric_strategy *s)
{
    if (!fabric__strategy_check(s, __func__))
        return th__pending();
    return HAS(s, teardown) ? s->ops->teardown(s) : TH_OK;
}
