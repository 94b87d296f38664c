/* optim/sgd.c: SGD with momentum, dampening, Nesterov momentum and weight decay. */
#include "optim/each.h"

#include <cfabric/optimizers.h>
#include <cfabric/ops.h>

enum { LR, MOMENTUM, DAMPENING, WEIGHT_DECAY, NESTEROV, MAXIMIZE, FOREACH, DIFFERENTIABLE, FUSED, N_OPTIONS };
enum { MOMENTUM_BUFFER };

static const th_option_spec options[N_OPTIONS] = {
    [LR] = {"lr", TH_OPTION_DOUBLE, 1e-3, 0, NULL},
    [MOMENTUM] = {"momentum", TH_OPTION_DOUBLE, 0, 0, NULL},
    [DAMPENING] = {"dampening", TH_OPTION_DOUBLE, 0, 0, NULL},
    [WEIGHT_DECAY] = {"weight_decay", TH_OPTION_DOUBLE, 0, 0, NULL},
    [NESTEROV] = {"nesterov", TH_OPTION_BOOL, 0, 0, NULL},
    [MAXIMIZE] = {"maximize", TH_OPTION_BOOL, 0, 0, NULL},
    [FOREACH] = {"foreach", TH_OPTION_MAYBE, -1, 0, NULL},
    [DIFFERENTIABLE] = {"differentiable", TH_OPTION_BOOL, 0, 0, NULL},
    [FUSED] = {"fused", TH_OPTION_MAYBE, -1, 0, NULL},
};
static const char *const state_names[] = {"momentum_buffer"};

static th_status check(th_optimizer *self, size_t index)
{
    const th__group *group = &self->groups[index];
    TH__TRY(th__check_not_negative("SGD", "learning rate", th__opt(group, LR)));
    TH__TRY(th__check_not_negative("SGD", "momentum value", th__opt(group, MOMENTUM)));
    TH__TRY(th__check_not_negative("SGD", "weight_decay value", th__opt(group, WEIGHT_DECAY)));
    if (th__opt_bool(group, NESTEROV) && (th__opt(group, MOMENTUM) <= 0 || th__opt(group, DAMPENING) != 0))
        return th__fail(TH_ERR_VALUE, "SGD",
                        "Nesterov momentum requires a momentum and zero dampening (momentum %g, dampening %g)",
                        th__opt(group, MOMENTUM), th__opt(group, DAMPENING));
    return th__check_implementation(group, "SGD", FOREACH, FUSED, -1, DIFFERENTIABLE);
}

/* Moves the momentum buffers that exist; one that does not begins as a copy of the gradient. */
static void move_buffers(const th__batch *batch, th_tensors grads, double momentum, double dampening)
{
    bool all = true;
    for (size_t i = 0; i < batch->n; i++) all = all && batch->state[MOMENTUM_BUFFER][i] != NULL;
    if (all) {
        th__each_mul_scalar_(th__state_of(batch, MOMENTUM_BUFFER), momentum);
        th__each_add_(th__state_of(batch, MOMENTUM_BUFFER), grads, 1 - dampening);
        return;
    }
    for (size_t i = 0; i < batch->n && th__pending() == TH_OK; i++) {
        th_tensor **buffer = &batch->state[MOMENTUM_BUFFER][i];
        if (*buffer == NULL) {
            *buffer = th_keep(th_clone(grads.data[i]));
        } else {
            th__mul_number_(*buffer, momentum);
            th_add_(*buffer, grads.data[i], .alpha = TH_S(1 - dampening));
        }
    }
}

static void update(const th__batch *batch, const th__group *group)
{
    double momentum = th__opt(group, MOMENTUM);
    th_tensors grads = th__grads_of(batch);
    if (momentum != 0) {
        move_buffers(batch, grads, momentum, th__opt(group, DAMPENING));
        th_tensors buffers = th__state_of(batch, MOMENTUM_BUFFER);
        grads = th__opt_bool(group, NESTEROV) ? th__each_add(grads, buffers, momentum) : buffers;
    }
    th__each_add_(th__params_of(batch), grads, -th__opt(group, LR));
}

static th_status fused(th_optimizer *self, const th__group *group, const th__batch *batch)
{
    bool momentum = th__opt(group, MOMENTUM) != 0, first = momentum;
    for (size_t i = 0; i < batch->n; i++) first = first && batch->state[MOMENTUM_BUFFER][i] == NULL;
    for (size_t i = 0; momentum && i < batch->n; i++) {
        /* The kernel fills all of them at a first step; a later newcomer begins at zero. */
        if (batch->state[MOMENTUM_BUFFER][i] == NULL) batch->state[MOMENTUM_BUFFER][i] = th_keep(th_zeros_like(batch->grads[i]));
    }
    const unsigned lists[] = {TH__FUSED_PARAMS, TH__FUSED_GRADS, momentum ? (unsigned)MOMENTUM_BUFFER : TH__FUSED_EMPTY};
    const th_arg numbers[] = {TH_A_DOUBLE(th__opt(group, WEIGHT_DECAY)),
                              TH_A_DOUBLE(th__opt(group, MOMENTUM)),
                              TH_A_DOUBLE(th__opt(group, LR)),
                              TH_A_DOUBLE(th__opt(group, DAMPENING)),
                              TH_A_BOOL(th__opt_bool(group, NESTEROV)),
                              TH_A_BOOL(th__opt_bool(group, MAXIMIZE)),
                              TH_A_BOOL(first)};
    return th__fused_run(self, "aten::_fused_sgd_", batch, lists, 3, numbers, 7);
}

/* Buffers that the step made become the parameters' state. */
static void store_buffers(th__group *group, const th__batch *batch)
{
    for (size_t i = 0, at = 0; at < batch->n && i < group->n; i++) {
        if (group->params[i].tensor != batch->params[at]) continue;
        group->params[i].state[MOMENTUM_BUFFER] = batch->state[MOMENTUM_BUFFER][at++];
    }
}

static th_status step(th_optimizer *self, size_t index)
{
    static const th__gather what = {0};
    th__group *group = &self->groups[index];
    th__batch batch;
    TH__TRY(th__batch_gather(self, index, &what, &batch));
    th_status status;
    th__decay decay = {th__opt_bool(group, MAXIMIZE), th__opt(group, WEIGHT_DECAY)};
    if (th__opt_bool(group, FUSED))
        status = fused(self, group, &batch);
    else
        status =
            th__batch_run(&batch, group, th__use_foreach(&batch, th__opt(group, FOREACH), th__opt(group, FUSED)), decay, update);
    if (th__opt(group, MOMENTUM) != 0) store_buffers(group, &batch);
    return status;
}

static const th_optimizer_ops sgd_ops = {
    .size = sizeof(th_optimizer_ops),
    .name = "SGD",
    .options = options,
    .n_options = N_OPTIONS,
    .state_names = state_names,
    .n_state = 1,
    .step = step,
    .check = check,
};

th_optimizer *th_optim_sgd_call(struct th_optim_sgd_args args)
{
    TH__CHECK_PENDING_NULL();
    th__hyper values[N_OPTIONS];
    th__optimizer_default_values(&sgd_ops, values);
    values[LR].v[0] = args.lr;
    values[MOMENTUM].v[0] = args.momentum;
    values[DAMPENING].v[0] = args.dampening;
    values[WEIGHT_DECAY].v[0] = args.weight_decay;
    values[NESTEROV].v[0] = args.nesterov;
    values[MAXIMIZE].v[0] = args.maximize;
    values[FOREACH].v[0] = th__maybe(args.foreach);
    values[DIFFERENTIABLE].v[0] = args.differentiable;
    values[FUSED].v[0] = th__maybe(args.fused);
    return th__optimizer_build(&sgd_ops, args.params, values, NULL);
}
