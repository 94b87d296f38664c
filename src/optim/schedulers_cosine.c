/* optim/schedulers_cosine.c: CosineAnnealingLR and CosineAnnealingWarmRestarts. */
#include "optim/scheduler.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* ---------------------------------------------------------------- CosineAnnealingLR */

typedef struct cosine_lr {
    th_scheduler base;
    int64_t T_max;
    double eta_min;
} cosine_lr;

static void cosine_closed(th_scheduler *base, double *lrs)
{
    const cosine_lr *self = (const cosine_lr *)base;
    for (size_t g = 0; g < base->base_lrs.n; g++)
        lrs[g] = self->eta_min +
                 (base->base_lrs.data[g] - self->eta_min) * (1 + cos(pi * (double)base->last_epoch / (double)self->T_max)) / 2;
}

static void cosine_rates(th_scheduler *base, double *lrs)
{
    const cosine_lr *self = (const cosine_lr *)base;
    double epoch = (double)base->last_epoch, T_max = (double)self->T_max;
    if (base->is_initial) return;
    if (base->step_count == 1 && base->last_epoch > 0) {
        cosine_closed(base, lrs);
        return;
    }
    /* At the bottom the recursion would divide by zero. */
    bool turning = (base->last_epoch - 1 - self->T_max) % (2 * self->T_max) == 0;
    for (size_t g = 0; g < base->base_lrs.n; g++) {
        if (turning)
            lrs[g] = lrs[g] + (base->base_lrs.data[g] - self->eta_min) * (1 - cos(pi / T_max)) / 2;
        else
            lrs[g] =
                (1 + cos(pi * epoch / T_max)) / (1 + cos(pi * (epoch - 1) / T_max)) * (lrs[g] - self->eta_min) + self->eta_min;
    }
}

static const th__field cosine_fields[] = {
    {"T_max", TH__FIELD_INT, offsetof(cosine_lr, T_max), NULL},
    {"eta_min", TH__FIELD_DOUBLE, offsetof(cosine_lr, eta_min), NULL},
};
static const th__scheduler_ops cosine_ops = {.name = "CosineAnnealingLR",
                                             .size = sizeof(cosine_lr),
                                             .fields = cosine_fields,
                                             .n_fields = 2,
                                             .get_lr = cosine_rates,
                                             .closed_form = cosine_closed};

th_scheduler *th_lr_scheduler_cosine_annealing_lr_call(struct th_lr_scheduler_cosine_annealing_lr_args args)
{
    cosine_lr *self = th__scheduler_new(&cosine_ops, args.optimizer, "CosineAnnealingLR");
    if (self == NULL) return NULL;
    self->T_max = args.T_max;
    self->eta_min = args.eta_min;
    if (args.T_max <= 0) th__fail(TH_ERR_VALUE, "CosineAnnealingLR", "T_max is %lld, expected at least 1", (long long)args.T_max);
    return th__scheduler_begin(self, args.last_epoch);
}

/* ---------------------------------------------------------------- CosineAnnealingWarmRestarts */

typedef struct restarts {
    th_scheduler base;
    int64_t T_0;
    double T_i;
    int64_t T_mult;
    double eta_min, T_cur;
} restarts;

static void restarts_rates(th_scheduler *base, double *lrs)
{
    const restarts *self = (const restarts *)base;
    for (size_t g = 0; g < base->base_lrs.n; g++)
        lrs[g] = self->eta_min + (base->base_lrs.data[g] - self->eta_min) * (1 + cos(pi * self->T_cur / self->T_i)) / 2;
}

static void restarts_apply(th_scheduler *base, double epoch)
{
    size_t n = th__scheduler_n_groups(base);
    double *lrs = th__scope_alloc(n * sizeof *lrs);
    if (lrs == NULL || base->base_lrs.n != n) return;
    base->last_epoch = (int64_t)floor(epoch);
    restarts_rates(base, lrs);
    for (size_t g = 0; g < n; g++) *th__group_number(base->optimizer, g, "lr") = lrs[g];
    th__scheduler_note_last_lr(base);
}

/* Python's %, for positive divisors. */
static double modulo(double a, double b)
{
    double rest = fmod(a, b);
    return rest < 0 ? rest + b : rest;
}

static void restarts_jump(th_scheduler *base, double epoch)
{
    restarts *self = (restarts *)base;
    double T_0 = (double)self->T_0, T_mult = (double)self->T_mult;
    if (epoch < T_0) {
        self->T_i = T_0;
        self->T_cur = epoch;
    } else if (self->T_mult == 1) {
        self->T_cur = modulo(epoch, T_0);
    } else {
        double n = trunc(log(epoch / T_0 * (T_mult - 1) + 1) / log(T_mult));
        self->T_cur = epoch - T_0 * (pow(T_mult, n) - 1) / (T_mult - 1);
        self->T_i = T_0 * pow(T_mult, n);
    }
    restarts_apply(base, epoch);
}

static void restarts_step(th_scheduler *base)
{
    restarts *self = (restarts *)base;
    if (base->last_epoch < 0) {
        restarts_jump(base, 0);
        return;
    }
    self->T_cur += 1;
    if (self->T_cur >= self->T_i) {
        self->T_cur = modulo(self->T_cur, self->T_i);
        self->T_i *= (double)self->T_mult;
    }
    restarts_apply(base, (double)(base->last_epoch + 1));
}

static const th__field restarts_fields[] = {
    {"T_0", TH__FIELD_INT, offsetof(restarts, T_0), NULL},
    {"T_i", TH__FIELD_NUMBER, offsetof(restarts, T_i), NULL},
    {"T_mult", TH__FIELD_INT, offsetof(restarts, T_mult), NULL},
    {"eta_min", TH__FIELD_DOUBLE, offsetof(restarts, eta_min), NULL},
    {"T_cur", TH__FIELD_NUMBER, offsetof(restarts, T_cur), NULL},
};
static const th__scheduler_ops restarts_ops = {.name = "CosineAnnealingWarmRestarts",
                                               .size = sizeof(restarts),
                                               .fields = restarts_fields,
                                               .n_fields = 5,
                                               .get_lr = restarts_rates,
                                               .step = restarts_step,
                                               .step_epoch = restarts_jump};

th_scheduler *th_lr_scheduler_cosine_annealing_warm_restarts_call(struct th_lr_scheduler_cosine_annealing_warm_restarts_args args)
{
    restarts *self = th__scheduler_new(&restarts_ops, args.optimizer, "CosineAnnealingWarmRestarts");
    if (self == NULL) return NULL;
    self->T_0 = args.T_0;
    self->T_i = (double)args.T_0;
    self->T_mult = args.T_mult;
    self->eta_min = args.eta_min;
    self->T_cur = (double)args.last_epoch;
    if (args.T_0 <= 0)
        th__fail(TH_ERR_VALUE, "CosineAnnealingWarmRestarts", "Expected positive integer T_0, but got %lld", (long long)args.T_0);
    if (args.T_mult < 1)
        th__fail(TH_ERR_VALUE, "CosineAnnealingWarmRestarts", "Expected integer T_mult >= 1, but got %lld",
                 (long long)args.T_mult);
    return th__scheduler_begin(self, args.last_epoch);
}
