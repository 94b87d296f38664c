/* optim/schedulers_step.c: rates that fall by a factor: LambdaLR, MultiplicativeLR, StepLR, MultiStepLR, ExponentialLR. */
#include "optim/scheduler.h"

#include <math.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- LambdaLR, MultiplicativeLR */

typedef struct lambda_lr {
    th_scheduler base;
    th_lr_lambda *lambdas;
    void *user;
} lambda_lr;

static void lambda_rates(th_scheduler *base, double *lrs)
{
    const lambda_lr *self = (const lambda_lr *)base;
    for (size_t g = 0; g < base->base_lrs.n && th__pending() == TH_OK; g++)
        lrs[g] = base->base_lrs.data[g] * self->lambdas[g](base->last_epoch, self->user);
}

static void multiplicative_rates(th_scheduler *base, double *lrs)
{
    const lambda_lr *self = (const lambda_lr *)base;
    for (size_t g = 0; !base->is_initial && g < base->base_lrs.n && th__pending() == TH_OK; g++)
        lrs[g] = lrs[g] * self->lambdas[g](base->last_epoch, self->user);
}

/* Functions are not saved; PyTorch notes a None for each. */
static void lambda_save(th_scheduler *base, th_value *state)
{
    th_value *list = th_value_list();
    for (size_t g = 0; list != NULL && g < base->base_lrs.n; g++) th_value_append(list, th_value_none());
    th_value_set(state, "lr_lambdas", list);
}

static void lambda_free(th_scheduler *base) { free(((lambda_lr *)base)->lambdas); }

static const th__scheduler_ops lambda_ops = {
    .name = "LambdaLR", .size = sizeof(lambda_lr), .get_lr = lambda_rates, .save = lambda_save, .free_data = lambda_free};
static const th__scheduler_ops multiplicative_ops = {.name = "MultiplicativeLR",
                                                     .size = sizeof(lambda_lr),
                                                     .get_lr = multiplicative_rates,
                                                     .save = lambda_save,
                                                     .free_data = lambda_free};

static th_scheduler *new_lambda(const th__scheduler_ops *ops, const struct th_lr_scheduler_lambda_lr_args *args)
{
    lambda_lr *self = th__scheduler_new(ops, args->optimizer, ops->name);
    if (self == NULL) return NULL;
    size_t n = th__scheduler_n_groups(&self->base);
    if (args->lr_lambdas != NULL && args->n_lambdas != n)
        th__fail(TH_ERR_VALUE, ops->name, "Expected %zu lr_lambdas, but got %zu", n, args->n_lambdas);
    else if ((self->lambdas = th__calloc(n, sizeof *self->lambdas)) != NULL)
        for (size_t g = 0; g < n; g++) {
            self->lambdas[g] = args->lr_lambdas != NULL ? args->lr_lambdas[g] : args->lr_lambda;
            if (self->lambdas[g] == NULL) th__fail(TH_ERR_TYPE, ops->name, "lr_lambda is NULL, expected a function");
        }
    self->user = args->user;
    return th__scheduler_begin(self, args->last_epoch);
}

th_scheduler *th_lr_scheduler_lambda_lr_call(struct th_lr_scheduler_lambda_lr_args args)
{
    return new_lambda(&lambda_ops, &args);
}
th_scheduler *th_lr_scheduler_multiplicative_lr_call(struct th_lr_scheduler_lambda_lr_args args)
{
    return new_lambda(&multiplicative_ops, &args);
}

/* ---------------------------------------------------------------- StepLR */

typedef struct step_lr {
    th_scheduler base;
    int64_t step_size;
    double gamma;
} step_lr;

static void step_rates(th_scheduler *base, double *lrs)
{
    const step_lr *self = (const step_lr *)base;
    if (base->last_epoch != 0 && base->last_epoch % self->step_size == 0) th__scale_rates(base, lrs, self->gamma);
}

static void step_closed(th_scheduler *base, double *lrs)
{
    const step_lr *self = (const step_lr *)base;
    th__rates_from_base(base, lrs, pow(self->gamma, (double)(base->last_epoch / self->step_size)));
}

static const th__field step_fields[] = {
    {"step_size", TH__FIELD_INT, offsetof(step_lr, step_size), NULL},
    {"gamma", TH__FIELD_DOUBLE, offsetof(step_lr, gamma), NULL},
};
static const th__scheduler_ops step_ops = {.name = "StepLR",
                                           .size = sizeof(step_lr),
                                           .fields = step_fields,
                                           .n_fields = 2,
                                           .get_lr = step_rates,
                                           .closed_form = step_closed};

th_scheduler *th_lr_scheduler_step_lr_call(struct th_lr_scheduler_step_lr_args args)
{
    step_lr *self = th__scheduler_new(&step_ops, args.optimizer, "StepLR");
    if (self == NULL) return NULL;
    self->step_size = args.step_size;
    self->gamma = args.gamma;
    if (args.step_size <= 0)
        th__fail(TH_ERR_VALUE, "StepLR", "step_size is %lld, expected a positive number of epochs", (long long)args.step_size);
    return th__scheduler_begin(self, args.last_epoch);
}

/* ---------------------------------------------------------------- MultiStepLR */

typedef struct multi_step_lr {
    th_scheduler base;
    double gamma;
    int64_t *milestones; /* as given */
    size_t n;
} multi_step_lr;

static int64_t how_often(const multi_step_lr *self, size_t upto, int64_t epoch)
{
    int64_t count = 0;
    for (size_t i = 0; i < upto; i++) count += self->milestones[i] == epoch;
    return count;
}

static void multi_step_rates(th_scheduler *base, double *lrs)
{
    const multi_step_lr *self = (const multi_step_lr *)base;
    int64_t count = how_often(self, self->n, base->last_epoch);
    if (count > 0) th__scale_rates(base, lrs, pow(self->gamma, (double)count));
}

static void multi_step_closed(th_scheduler *base, double *lrs)
{
    const multi_step_lr *self = (const multi_step_lr *)base;
    int64_t passed = 0;
    for (size_t i = 0; i < self->n; i++) passed += self->milestones[i] <= base->last_epoch;
    th__rates_from_base(base, lrs, pow(self->gamma, (double)passed));
}

/* PyTorch keeps a Counter: milestone to how often it was given. */
static void multi_step_save(th_scheduler *base, th_value *state)
{
    const multi_step_lr *self = (const multi_step_lr *)base;
    th_value *counts = th_value_dict();
    for (size_t i = 0; counts != NULL && i < self->n; i++)
        if (how_often(self, i, self->milestones[i]) == 0)
            th_value_set_int(counts, self->milestones[i], th_value_int(how_often(self, self->n, self->milestones[i])));
    th_value_set(state, "milestones", counts);
}

static void multi_step_load(th_scheduler *base, const th_value *state)
{
    multi_step_lr *self = (multi_step_lr *)base;
    const th_value *counts = th_value_get(state, "milestones");
    size_t total = 0;
    if (th_value_kind_of(counts) != TH_VALUE_DICT) return;
    for (size_t i = 0; i < th_value_size(counts); i++) {
        int64_t count = th_value_as_int(th_value_at(counts, i), 0);
        total += count > 0 && count < 1 << 20 ? (size_t)count : 0;
    }
    int64_t *milestones = th__calloc(total, sizeof *milestones);
    if (milestones == NULL) return;
    size_t at = 0;
    for (size_t i = 0; i < th_value_size(counts); i++) {
        int64_t epoch = 0, count = th_value_as_int(th_value_at(counts, i), 0);
        th_value_key_at(counts, i, &epoch);
        for (int64_t k = 0; k < count && at < total; k++) milestones[at++] = epoch;
    }
    free(self->milestones);
    self->milestones = milestones;
    self->n = at;
}

static void multi_step_free(th_scheduler *base) { free(((multi_step_lr *)base)->milestones); }

static const th__field multi_step_fields[] = {{"gamma", TH__FIELD_DOUBLE, offsetof(multi_step_lr, gamma), NULL}};
static const th__scheduler_ops multi_step_ops = {.name = "MultiStepLR",
                                                 .size = sizeof(multi_step_lr),
                                                 .fields = multi_step_fields,
                                                 .n_fields = 1,
                                                 .get_lr = multi_step_rates,
                                                 .closed_form = multi_step_closed,
                                                 .save = multi_step_save,
                                                 .load = multi_step_load,
                                                 .free_data = multi_step_free};

th_scheduler *th_lr_scheduler_multi_step_lr_call(struct th_lr_scheduler_multi_step_lr_args args)
{
    multi_step_lr *self = th__scheduler_new(&multi_step_ops, args.optimizer, "MultiStepLR");
    if (self == NULL) return NULL;
    self->gamma = args.gamma;
    self->milestones = th__calloc(args.milestones.size, sizeof *self->milestones);
    if (self->milestones != NULL) {
        self->n = args.milestones.size;
        for (size_t i = 0; i < self->n; i++) self->milestones[i] = args.milestones.data[i];
    }
    return th__scheduler_begin(self, args.last_epoch);
}

/* ---------------------------------------------------------------- ExponentialLR */

typedef struct exponential_lr {
    th_scheduler base;
    double gamma;
} exponential_lr;

static void exponential_rates(th_scheduler *base, double *lrs)
{
    if (!base->is_initial) th__scale_rates(base, lrs, ((const exponential_lr *)base)->gamma);
}

static void exponential_closed(th_scheduler *base, double *lrs)
{
    th__rates_from_base(base, lrs, pow(((const exponential_lr *)base)->gamma, (double)base->last_epoch));
}

static const th__field exponential_fields[] = {{"gamma", TH__FIELD_DOUBLE, offsetof(exponential_lr, gamma), NULL}};
static const th__scheduler_ops exponential_ops = {.name = "ExponentialLR",
                                                  .size = sizeof(exponential_lr),
                                                  .fields = exponential_fields,
                                                  .n_fields = 1,
                                                  .get_lr = exponential_rates,
                                                  .closed_form = exponential_closed};

th_scheduler *th_lr_scheduler_exponential_lr_call(struct th_lr_scheduler_exponential_lr_args args)
{
    exponential_lr *self = th__scheduler_new(&exponential_ops, args.optimizer, "ExponentialLR");
    if (self == NULL) return NULL;
    self->gamma = args.gamma;
    return th__scheduler_begin(self, args.last_epoch);
}
