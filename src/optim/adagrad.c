/* optim/adagrad.c: Adagrad, for dense and sparse gradients. */
#include "optim/each.h"

#include <cfabric/ops.h>
#include <cfabric/optimizers.h>

enum { LR, LR_DECAY, EPS, WEIGHT_DECAY, INITIAL, FOREACH, MAXIMIZE, DIFFERENTIABLE, FUSED, N_OPTIONS };
enum { STEP, SUM };

static const th_option_spec options[N_OPTIONS] = {
    [LR] = {"lr", TH_OPTION_DOUBLE, 1e-2, 0, NULL},
    [LR_DECAY] = {"lr_decay", TH_OPTION_DOUBLE, 0, 0, NULL},
    [EPS] = {"eps", TH_OPTION_DOUBLE, 1e-10, 0, NULL},
    [WEIGHT_DECAY] = {"weight_decay", TH_OPTION_DOUBLE, 0, 0, NULL},
    [INITIAL] = {"initial_accumulator_value", TH_OPTION_DOUBLE, 0, 0, NULL},
    [FOREACH] = {"foreach", TH_OPTION_MAYBE, -1, 0, NULL},
    [MAXIMIZE] = {"maximize", TH_OPTION_BOOL, 0, 0, NULL},
    [DIFFERENTIABLE] = {"differentiable", TH_OPTION_BOOL, 0, 0, NULL},
    [FUSED] = {"fused", TH_OPTION_MAYBE, -1, 0, NULL},
};
static const char *const state_names[] = {"step", "sum"};

static th__gather needs(const th__group *group)
{
    return (th__gather){.states = 1u << STEP | 1u << SUM,
                        .has_step = true,
                        .fused = th__opt_bool(group, FUSED),
                        .complex_as_real = true,
                        .initial = th__opt(group, INITIAL)};
}

/* Adagrad's state exists from the start, not from the first step. */
static th_status check(th_optimizer *self, size_t index)
{
    th__group *group = &self->groups[index];
    TH__TRY(th__check_not_negative("Adagrad", "learning rate", th__opt(group, LR)));
    TH__TRY(th__check_not_negative("Adagrad", "lr_decay value", th__opt(group, LR_DECAY)));
    TH__TRY(th__check_not_negative("Adagrad", "weight_decay value", th__opt(group, WEIGHT_DECAY)));
    TH__TRY(th__check_not_negative("Adagrad", "initial_accumulator_value value", th__opt(group, INITIAL)));
    TH__TRY(th__check_not_negative("Adagrad", "epsilon value", th__opt(group, EPS)));
    TH__TRY(th__check_implementation(group, "Adagrad", FOREACH, FUSED, -1, DIFFERENTIABLE));
    TH_SCOPE();
    th__gather what = needs(group);
    for (size_t i = 0; i < group->n; i++) TH__TRY(th__state_init(self, &group->params[i], &what));
    return TH_OK;
}

static double rate(const th__group *group, double step)
{
    return th__opt(group, LR) / (1 + (step - 1) * th__opt(group, LR_DECAY));
}

static th_tensor *sparse_like(th_tensor *grad, th_tensor *indices, th_tensor *values)
{
    return th_sparse_coo_tensor_indices_size(indices, values, th_sizes(grad));
}

static void update_sparse(const th__batch *batch, const th__group *group)
{
    th_tensor *grad = batch->grads[0], *sum = batch->state[SUM][0], *param = batch->params[0];
    grad = th_coalesce(grad); /* the update is not linear: every index must occur once */
    th_tensor *indices = th__indices(grad), *values = th__values(grad);
    th_add_(sum, sparse_like(grad, indices, th_pow_tensor_scalar(values, TH_S(2))));
    th_tensor *deviation = th__values(th_sparse_mask(sum, grad));
    th_add_scalar_(th_sqrt_(deviation), TH_S(th__opt(group, EPS)));
    th_add_(param, sparse_like(grad, indices, th_div(values, deviation)), .alpha = TH_S(-rate(group, batch->steps[0])));
}

static void update(const th__batch *batch, const th__group *group)
{
    if (batch->n == 1 && th_layout_of(batch->grads[0]) != TH_STRIDED) {
        update_sparse(batch, group);
        return;
    }
    double *minus_rates = th__scope_alloc(batch->n * sizeof *minus_rates);
    if (minus_rates == NULL) return;
    for (size_t i = 0; i < batch->n; i++) minus_rates[i] = -rate(group, batch->steps[i]);
    th_tensors grads = th__grads_of(batch);
    th__each_addcmul_(th__state_of(batch, SUM), grads, grads, 1);
    th_tensors deviation = th__each_sqrt(th__state_of(batch, SUM));
    th__each_add_scalar_(deviation, th__opt(group, EPS));
    th__each_addcdiv_(th__params_of(batch), grads, deviation, minus_rates);
}

static th_status fused(th_optimizer *self, const th__group *group, const th__batch *batch)
{
    static const unsigned lists[] = {TH__FUSED_PARAMS, TH__FUSED_GRADS, SUM, STEP};
    const th_arg numbers[] = {TH_A_DOUBLE(th__opt(group, LR)), TH_A_DOUBLE(th__opt(group, LR_DECAY)),
                              TH_A_DOUBLE(th__opt(group, WEIGHT_DECAY)), TH_A_DOUBLE(th__opt(group, EPS)),
                              TH_A_BOOL(th__opt_bool(group, MAXIMIZE))};
    return th__fused_run(self, "aten::_fused_adagrad_", batch, lists, 4, numbers, 5);
}

static th_status step(th_optimizer *self, size_t index)
{
    th__group *group = &self->groups[index];
    th__gather what = needs(group);
    th__batch batch;
    TH__TRY(th__batch_gather(self, index, &what, &batch));
    if (batch.sparse && th__opt(group, WEIGHT_DECAY) != 0)
        return th__fail(TH_ERR_RUNTIME, "Adagrad", "weight_decay option is not compatible with sparse gradients");
    th__batch_advance(&batch);
    if (th__opt_bool(group, FUSED)) return fused(self, group, &batch);
    th__decay decay = {th__opt_bool(group, MAXIMIZE), th__opt(group, WEIGHT_DECAY)};
    return th__batch_run(&batch, group, th__use_foreach(&batch, th__opt(group, FOREACH), th__opt(group, FUSED)), decay, update);
}

static const th_optimizer_ops adagrad_ops = {
    .size = sizeof(th_optimizer_ops),
    .name = "Adagrad",
    .options = options,
    .n_options = N_OPTIONS,
    .state_names = state_names,
    .n_state = 2,
    .step = step,
    .check = check,
};

th_optimizer *th_optim_adagrad_call(struct th_optim_adagrad_args args)
{
    TH__CHECK_PENDING_NULL();
    th__hyper values[N_OPTIONS];
    th__optimizer_default_values(&adagrad_ops, values);
    values[LR].v[0] = args.lr;
    values[LR_DECAY].v[0] = args.lr_decay;
    values[EPS].v[0] = args.eps;
    values[WEIGHT_DECAY].v[0] = args.weight_decay;
    values[INITIAL].v[0] = args.initial_accumulator_value;
    values[FOREACH].v[0] = th__maybe(args.foreach);
    values[MAXIMIZE].v[0] = args.maximize;
    values[DIFFERENTIABLE].v[0] = args.differentiable;
    values[FUSED].v[0] = th__maybe(args.fused);
    return th__optimizer_build(&adagrad_ops, args.params, values, NULL);
}
