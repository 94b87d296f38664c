/* optim/rmsprop.c: RMSprop, plain, centered and with momentum. */
#include "optim/each.h"

#include <cfabric/optimizers.h>

enum { LR, MOMENTUM, ALPHA, EPS, CENTERED, WEIGHT_DECAY, CAPTURABLE, FOREACH, MAXIMIZE, DIFFERENTIABLE, N_OPTIONS };
enum { STEP, SQUARE_AVG, MOMENTUM_BUFFER, GRAD_AVG };

static const th_option_spec options[N_OPTIONS] = {
    [LR] = {"lr", TH_OPTION_DOUBLE, 1e-2, 0, NULL},
    [MOMENTUM] = {"momentum", TH_OPTION_DOUBLE, 0, 0, NULL},
    [ALPHA] = {"alpha", TH_OPTION_DOUBLE, 0.99, 0, NULL},
    [EPS] = {"eps", TH_OPTION_DOUBLE, 1e-8, 0, NULL},
    [CENTERED] = {"centered", TH_OPTION_BOOL, 0, 0, NULL},
    [WEIGHT_DECAY] = {"weight_decay", TH_OPTION_DOUBLE, 0, 0, NULL},
    [CAPTURABLE] = {"capturable", TH_OPTION_BOOL, 0, 0, NULL},
    [FOREACH] = {"foreach", TH_OPTION_MAYBE, -1, 0, NULL},
    [MAXIMIZE] = {"maximize", TH_OPTION_BOOL, 0, 0, NULL},
    [DIFFERENTIABLE] = {"differentiable", TH_OPTION_BOOL, 0, 0, NULL},
};
static const char *const state_names[] = {"step", "square_avg", "momentum_buffer", "grad_avg"};

static th_status check(th_optimizer *self, size_t index)
{
    const th__group *group = &self->groups[index];
    TH__TRY(th__check_not_negative("RMSprop", "learning rate", th__opt(group, LR)));
    TH__TRY(th__check_not_negative("RMSprop", "epsilon value", th__opt(group, EPS)));
    TH__TRY(th__check_not_negative("RMSprop", "momentum value", th__opt(group, MOMENTUM)));
    TH__TRY(th__check_not_negative("RMSprop", "weight_decay value", th__opt(group, WEIGHT_DECAY)));
    TH__TRY(th__check_not_negative("RMSprop", "alpha value", th__opt(group, ALPHA)));
    return th__check_implementation(group, "RMSprop", FOREACH, -1, CAPTURABLE, DIFFERENTIABLE);
}

static void update(const th__batch *batch, const th__group *group)
{
    double alpha = th__opt(group, ALPHA), lr = th__opt(group, LR), momentum = th__opt(group, MOMENTUM);
    th_tensors square = th__state_of(batch, SQUARE_AVG), average;
    double *factors = th__scope_alloc(batch->n * sizeof *factors);
    if (factors == NULL) return;
    th_tensors grads = th__grads_of(batch);
    th__each_mul_scalar_(square, alpha);
    th__each_addcmul_(square, grads, grads, 1 - alpha);
    if (th__opt_bool(group, CENTERED)) {
        th_tensors mean = th__state_of(batch, GRAD_AVG);
        th__each_average_(mean, grads, alpha);
        average = th__each_addcmul(square, mean, mean, -1);
        th__each_sqrt_(average);
    } else {
        average = th__each_sqrt(square);
    }
    th__each_add_scalar_(average, th__opt(group, EPS));
    for (size_t i = 0; i < batch->n; i++) factors[i] = momentum > 0 ? 1.0 : -lr;
    if (momentum > 0) {
        th_tensors buffer = th__state_of(batch, MOMENTUM_BUFFER);
        th__each_mul_scalar_(buffer, momentum);
        th__each_addcdiv_(buffer, grads, average, factors);
        th__each_add_(th__params_of(batch), buffer, -lr);
    } else {
        th__each_addcdiv_(th__params_of(batch), grads, average, factors);
    }
}

static th_status step(th_optimizer *self, size_t index)
{
    th__group *group = &self->groups[index];
    th__gather what = {.states = 1u << STEP | 1u << SQUARE_AVG,
                       .has_step = true,
                       .dense_only = "RMSprop does not support sparse gradients",
                       .complex_as_real = true};
    if (th__opt(group, MOMENTUM) > 0) what.states |= 1u << MOMENTUM_BUFFER;
    if (th__opt_bool(group, CENTERED)) what.states |= 1u << GRAD_AVG;
    th__batch batch;
    TH__TRY(th__batch_gather(self, index, &what, &batch));
    th__batch_advance(&batch);
    th__decay decay = {th__opt_bool(group, MAXIMIZE), th__opt(group, WEIGHT_DECAY)};
    return th__batch_run(&batch, group, th__use_foreach(&batch, th__opt(group, FOREACH), -1), decay, update);
}

static const th_optimizer_ops rmsprop_ops = {
    .size = sizeof(th_optimizer_ops),
    .name = "RMSprop",
    .options = options,
    .n_options = N_OPTIONS,
    .state_names = state_names,
    .n_state = 4,
    .step = step,
    .check = check,
};

th_optimizer *th_optim_rmsprop_call(struct th_optim_rmsprop_args args)
{
    TH__CHECK_PENDING_NULL();
    th__hyper values[N_OPTIONS];
    th__optimizer_default_values(&rmsprop_ops, values);
    values[LR].v[0] = args.lr;
    values[MOMENTUM].v[0] = args.momentum;
    values[ALPHA].v[0] = args.alpha;
    values[EPS].v[0] = args.eps;
    values[CENTERED].v[0] = args.centered;
    values[WEIGHT_DECAY].v[0] = args.weight_decay;
    values[CAPTURABLE].v[0] = args.capturable;
    values[FOREACH].v[0] = th__maybe(args.foreach);
    values[MAXIMIZE].v[0] = args.maximize;
    values[DIFFERENTIABLE].v[0] = args.differentiable;
    return th__optimizer_build(&rmsprop_ops, args.params, values, NULL);
}
