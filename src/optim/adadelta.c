/* optim/adadelta.c: Adadelta. */
#include "optim/each.h"

#include <cfabric/ops.h>
#include <cfabric/optimizers.h>

enum { LR, RHO, EPS, WEIGHT_DECAY, MAXIMIZE, CAPTURABLE, FOREACH, DIFFERENTIABLE, N_OPTIONS };
enum { STEP, SQUARE_AVG, ACC_DELTA };

static const th_option_spec options[N_OPTIONS] = {
    [LR] = {"lr", TH_OPTION_DOUBLE, 1.0, 0, NULL},         [RHO] = {"rho", TH_OPTION_DOUBLE, 0.9, 0, NULL},
    [EPS] = {"eps", TH_OPTION_DOUBLE, 1e-6, 0, NULL},      [WEIGHT_DECAY] = {"weight_decay", TH_OPTION_DOUBLE, 0, 0, NULL},
    [MAXIMIZE] = {"maximize", TH_OPTION_BOOL, 0, 0, NULL}, [CAPTURABLE] = {"capturable", TH_OPTION_BOOL, 0, 0, NULL},
    [FOREACH] = {"foreach", TH_OPTION_MAYBE, -1, 0, NULL}, [DIFFERENTIABLE] = {"differentiable", TH_OPTION_BOOL, 0, 0, NULL},
};
static const char *const state_names[] = {"step", "square_avg", "acc_delta"};

static th_status check(th_optimizer *self, size_t index)
{
    const th__group *group = &self->groups[index];
    double rho = th__opt(group, RHO);
    TH__TRY(th__check_not_negative("Adadelta", "learning rate", th__opt(group, LR)));
    if (!(rho >= 0.0 && rho <= 1.0)) return th__fail(TH_ERR_VALUE, "Adadelta", "Invalid rho value: %g, expected 0 to 1", rho);
    TH__TRY(th__check_not_negative("Adadelta", "epsilon value", th__opt(group, EPS)));
    TH__TRY(th__check_not_negative("Adadelta", "weight_decay value", th__opt(group, WEIGHT_DECAY)));
    return th__check_implementation(group, "Adadelta", FOREACH, -1, CAPTURABLE, DIFFERENTIABLE);
}

static void update(const th__batch *batch, const th__group *group)
{
    double rho = th__opt(group, RHO), eps = th__opt(group, EPS);
    th_tensors square = th__state_of(batch, SQUARE_AVG), accumulated = th__state_of(batch, ACC_DELTA);
    th_tensors grads = th__grads_of(batch);
    th__each_mul_scalar_(square, rho);
    th__each_addcmul_(square, grads, grads, 1 - rho);
    th_tensors deviation = th__each_add_scalar(square, eps);
    th__each_sqrt_(deviation);
    th_tensors delta = th__each_add_scalar(accumulated, eps);
    th__each_sqrt_(delta);
    th__each_div_(delta, deviation);
    th__each_mul_(delta, grads);
    th__each_mul_scalar_(accumulated, rho);
    th__each_addcmul_(accumulated, delta, delta, 1 - rho);
    /* The last step of the loop is complex again, which rounds differently. */
    if (th__pending() != TH_OK) return;
    if (batch->n == 1 && batch->whole[0] != batch->params[0])
        th_add_(batch->whole[0], th_view_as_complex(delta.data[0]), .alpha = TH_S(-th__opt(group, LR)));
    else
        th__each_add_(th__params_of(batch), delta, -th__opt(group, LR));
}

static th_status step(th_optimizer *self, size_t index)
{
    static const th__gather what = {.states = 1u << STEP | 1u << SQUARE_AVG | 1u << ACC_DELTA,
                                    .has_step = true,
                                    .dense_only = "Adadelta does not support sparse gradients",
                                    .complex_as_real = true};
    th__group *group = &self->groups[index];
    th__batch batch;
    TH__TRY(th__batch_gather(self, index, &what, &batch));
    th__batch_advance(&batch);
    th__decay decay = {th__opt_bool(group, MAXIMIZE), th__opt(group, WEIGHT_DECAY)};
    return th__batch_run(&batch, group, th__use_foreach(&batch, th__opt(group, FOREACH), -1), decay, update);
}

static const th_optimizer_ops adadelta_ops = {
    .size = sizeof(th_optimizer_ops),
    .name = "Adadelta",
    .options = options,
    .n_options = N_OPTIONS,
    .state_names = state_names,
    .n_state = 3,
    .step = step,
    .check = check,
};

th_optimizer *th_optim_adadelta_call(struct th_optim_adadelta_args args)
{
    TH__CHECK_PENDING_NULL();
    th__hyper values[N_OPTIONS];
    th__optimizer_default_values(&adadelta_ops, values);
    values[LR].v[0] = args.lr;
    values[RHO].v[0] = args.rho;
    values[EPS].v[0] = args.eps;
    values[WEIGHT_DECAY].v[0] = args.weight_decay;
    values[MAXIMIZE].v[0] = args.maximize;
    values[CAPTURABLE].v[0] = args.capturable;
    values[FOREACH].v[0] = th__maybe(args.foreach);
    values[DIFFERENTIABLE].v[0] = args.differentiable;
    return th__optimizer_build(&adadelta_ops, args.params, values, NULL);
}
