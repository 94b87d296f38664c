/* optim/adam.c: Adam and AdamW, with AMSGrad. */
#include "optim/each.h"

#include <cfabric/optimizers.h>
#include <math.h>

enum { LR, BETAS, EPS, WEIGHT_DECAY, AMSGRAD, MAXIMIZE, FOREACH, CAPTURABLE, DIFFERENTIABLE, FUSED, DECOUPLED, N_OPTIONS };
enum { STEP, EXP_AVG, EXP_AVG_SQ, MAX_EXP_AVG_SQ };

static const th_option_spec options[N_OPTIONS] = {
    [LR] = {"lr", TH_OPTION_DOUBLE, 1e-3, 0, NULL},
    [BETAS] = {"betas", TH_OPTION_PAIR, 0.9, 0.999, NULL},
    [EPS] = {"eps", TH_OPTION_DOUBLE, 1e-8, 0, NULL},
    [WEIGHT_DECAY] = {"weight_decay", TH_OPTION_DOUBLE, 0, 0, NULL},
    [AMSGRAD] = {"amsgrad", TH_OPTION_BOOL, 0, 0, NULL},
    [MAXIMIZE] = {"maximize", TH_OPTION_BOOL, 0, 0, NULL},
    [FOREACH] = {"foreach", TH_OPTION_MAYBE, -1, 0, NULL},
    [CAPTURABLE] = {"capturable", TH_OPTION_BOOL, 0, 0, NULL},
    [DIFFERENTIABLE] = {"differentiable", TH_OPTION_BOOL, 0, 0, NULL},
    [FUSED] = {"fused", TH_OPTION_MAYBE, -1, 0, NULL},
    [DECOUPLED] = {"decoupled_weight_decay", TH_OPTION_BOOL, 0, 0, NULL},
};
static const char *const state_names[] = {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"};

static th_status check(th_optimizer *self, size_t index)
{
    const char *name = self->ops->name;
    const th__group *group = &self->groups[index];
    TH__TRY(th__check_not_negative(name, "learning rate", th__opt(group, LR)));
    TH__TRY(th__check_not_negative(name, "epsilon value", th__opt(group, EPS)));
    for (int i = 0; i < 2; i++) {
        double beta = group->hyper[BETAS].v[i];
        if (!(beta >= 0.0 && beta < 1.0))
            return th__fail(TH_ERR_VALUE, name, "Invalid beta parameter at index %d: %g, expected at least 0 and less than 1", i,
                            beta);
    }
    TH__TRY(th__check_not_negative(name, "weight_decay value", th__opt(group, WEIGHT_DECAY)));
    return th__check_implementation(group, name, FOREACH, FUSED, CAPTURABLE, DIFFERENTIABLE);
}

/* Python's arithmetic on floats: the corrections are doubles, computed from the step counter. */
static void corrections(const th__batch *batch, const th__group *group, double *correction2_sqrt, double *minus_step_size)
{
    double lr = th__opt(group, LR), beta1 = group->hyper[BETAS].v[0], beta2 = group->hyper[BETAS].v[1];
    for (size_t i = 0; i < batch->n; i++) {
        double correction1 = 1 - pow(beta1, batch->steps[i]), correction2 = 1 - pow(beta2, batch->steps[i]);
        minus_step_size[i] = -(lr / correction1);
        correction2_sqrt[i] = th__torch_at_least(2, 5) ? pow(correction2, 0.5) : sqrt(correction2);
    }
}

static void update(const th__batch *batch, const th__group *group)
{
    double lr = th__opt(group, LR), decay = th__opt(group, WEIGHT_DECAY);
    double beta1 = group->hyper[BETAS].v[0], beta2 = group->hyper[BETAS].v[1];
    bool decoupled = th__opt_bool(group, DECOUPLED);
    double *scratch = th__scope_alloc(2 * batch->n * sizeof *scratch);
    if (scratch == NULL) return;
    corrections(batch, group, scratch, scratch + batch->n);

    th_tensors average = th__state_of(batch, EXP_AVG), square = th__state_of(batch, EXP_AVG_SQ);
    if (decoupled && decay != 0) th__each_mul_scalar_(th__params_of(batch), 1 - lr * decay);
    th_tensors grads = th__grads_of(batch);
    th__each_average_(average, grads, beta1);
    th__each_mul_scalar_(square, beta2);
    th__each_addcmul_(square, grads, grads, 1 - beta2);
    if (th__opt_bool(group, AMSGRAD)) {
        th_tensors largest = th__state_of(batch, MAX_EXP_AVG_SQ);
        th__each_maximum_(largest, square);
        square = largest;
    }
    th_tensors denominator = th__each_sqrt(square);
    th__each_div_scalars_(denominator, scratch);
    th__each_add_scalar_(denominator, th__opt(group, EPS));
    th__each_addcdiv_(th__params_of(batch), average, denominator, scratch + batch->n);
}

static th_status fused(th_optimizer *self, const th__group *group, const th__batch *batch)
{
    const unsigned lists[] = {TH__FUSED_PARAMS,
                              TH__FUSED_GRADS,
                              EXP_AVG,
                              EXP_AVG_SQ,
                              th__opt_bool(group, AMSGRAD) ? (unsigned)MAX_EXP_AVG_SQ : TH__FUSED_EMPTY,
                              STEP};
    const th_arg numbers[] = {TH_A_DOUBLE(th__opt(group, LR)),         TH_A_DOUBLE(group->hyper[BETAS].v[0]),
                              TH_A_DOUBLE(group->hyper[BETAS].v[1]),   TH_A_DOUBLE(th__opt(group, WEIGHT_DECAY)),
                              TH_A_DOUBLE(th__opt(group, EPS)),        TH_A_BOOL(th__opt_bool(group, AMSGRAD)),
                              TH_A_BOOL(th__opt_bool(group, MAXIMIZE))};
    const char *op = th__opt_bool(group, DECOUPLED) ? "aten::_fused_adamw_" : "aten::_fused_adam_";
    return th__fused_run(self, op, batch, lists, 6, numbers, 7);
}

static th_status step(th_optimizer *self, size_t index)
{
    th__group *group = &self->groups[index];
    bool use_fused = th__opt_bool(group, FUSED);
    th__gather what = {.states = 1u << STEP | 1u << EXP_AVG | 1u << EXP_AVG_SQ,
                       .has_step = true,
                       .fused = use_fused,
                       .dense_only = "Adam does not support sparse gradients, please consider SparseAdam instead",
                       .complex_as_real = true};
    if (th__opt_bool(group, AMSGRAD)) what.states |= 1u << MAX_EXP_AVG_SQ;
    th__batch batch;
    TH__TRY(th__batch_gather(self, index, &what, &batch));
    th__batch_advance(&batch);
    if (use_fused) return fused(self, group, &batch);
    th__decay decay = {th__opt_bool(group, MAXIMIZE), th__opt_bool(group, DECOUPLED) ? 0.0 : th__opt(group, WEIGHT_DECAY)};
    return th__batch_run(&batch, group, th__use_foreach(&batch, th__opt(group, FOREACH), th__opt(group, FUSED)), decay, update);
}

static const th_optimizer_ops adam_ops = {
    .size = sizeof(th_optimizer_ops),
    .name = "Adam",
    .options = options,
    .n_options = N_OPTIONS,
    .state_names = state_names,
    .n_state = 4,
    .step = step,
    .check = check,
};
static const th_optimizer_ops adamw_ops = {
    .size = sizeof(th_optimizer_ops),
    .name = "AdamW",
    .options = options,
    .n_options = N_OPTIONS,
    .state_names = state_names,
    .n_state = 4,
    .step = step,
    .check = check,
};

static th_optimizer *build(const th_optimizer_ops *ops, const struct th_optim_adam_args *args)
{
    TH__CHECK_PENDING_NULL();
    th__hyper values[N_OPTIONS];
    th__optimizer_default_values(ops, values);
    values[LR].v[0] = args->lr;
    values[BETAS].v[0] = args->betas[0];
    values[BETAS].v[1] = args->betas[1];
    values[EPS].v[0] = args->eps;
    values[WEIGHT_DECAY].v[0] = args->weight_decay;
    values[AMSGRAD].v[0] = args->amsgrad;
    values[MAXIMIZE].v[0] = args->maximize;
    values[FOREACH].v[0] = th__maybe(args->foreach);
    values[CAPTURABLE].v[0] = args->capturable;
    values[DIFFERENTIABLE].v[0] = args->differentiable;
    values[FUSED].v[0] = th__maybe(args->fused);
    values[DECOUPLED].v[0] = args->decoupled_weight_decay;
    return th__optimizer_build(ops, args->params, values, NULL);
}

th_optimizer *th_optim_adam_call(struct th_optim_adam_args args) { return build(&adam_ops, &args); }

th_optimizer *th_optim_adamw_call(struct th_optim_adamw_args args)
{
    struct th_optim_adam_args same = {.params = args.params,
                                      .lr = args.lr,
                                      .betas = {args.betas[0], args.betas[1]},
                                      .eps = args.eps,
                                      .weight_decay = args.weight_decay,
                                      .amsgrad = args.amsgrad,
                                      .foreach = args.foreach,
                                      .maximize = args.maximize,
                                      .capturable = args.capturable,
                                      .differentiable = args.differentiable,
                                      .fused = args.fused,
                                      .decoupled_weight_decay = true};
    return build(&adamw_ops, &same);
}
