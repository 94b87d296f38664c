/* optim/schedulers_ramp.c: rates that move over a number of epochs: ConstantLR, LinearLR, PolynomialLR. */
#include "optim/scheduler.h"

#include <math.h>

/* ---------------------------------------------------------------- ConstantLR */

typedef struct constant_lr {
    th_scheduler base;
    double factor;
    int64_t total_iters;
} constant_lr;

static void constant_rates(th_scheduler *base, double *lrs)
{
    const constant_lr *self = (const constant_lr *)base;
    if (base->last_epoch == 0)
        th__scale_rates(base, lrs, self->factor);
    else if (base->last_epoch == self->total_iters)
        th__scale_rates(base, lrs, 1.0 / self->factor);
}

static void constant_closed(th_scheduler *base, double *lrs)
{
    const constant_lr *self = (const constant_lr *)base;
    th__rates_from_base(base, lrs, self->factor + (double)(base->last_epoch >= self->total_iters) * (1 - self->factor));
}

static const th__field constant_fields[] = {
    {"factor", TH__FIELD_DOUBLE, offsetof(constant_lr, factor), NULL},
    {"total_iters", TH__FIELD_INT, offsetof(constant_lr, total_iters), NULL},
};
static const th__scheduler_ops constant_ops = {.name = "ConstantLR",
                                               .size = sizeof(constant_lr),
                                               .fields = constant_fields,
                                               .n_fields = 2,
                                               .get_lr = constant_rates,
                                               .closed_form = constant_closed};

th_scheduler *th_lr_scheduler_constant_lr_call(struct th_lr_scheduler_constant_lr_args args)
{
    constant_lr *self = th__scheduler_new(&constant_ops, args.optimizer, "ConstantLR");
    if (self == NULL) return NULL;
    self->factor = args.factor;
    self->total_iters = args.total_iters;
    if (!(args.factor >= 0 && args.factor <= 1.0))
        th__fail(TH_ERR_VALUE, "ConstantLR", "factor is %g, expected to be between 0 and 1", args.factor);
    return th__scheduler_begin(self, args.last_epoch);
}

/* ---------------------------------------------------------------- LinearLR */

typedef struct linear_lr {
    th_scheduler base;
    double start, end;
    int64_t total_iters;
} linear_lr;

static void linear_rates(th_scheduler *base, double *lrs)
{
    const linear_lr *self = (const linear_lr *)base;
    double slope = self->end - self->start, total = (double)self->total_iters;
    if (base->last_epoch == 0) {
        th__scale_rates(base, lrs, self->start);
    } else if (!base->is_initial && base->last_epoch <= self->total_iters) {
        th__scale_rates(base, lrs, 1.0 + slope / (total * self->start + (double)(base->last_epoch - 1) * slope));
    }
}

static void linear_closed(th_scheduler *base, double *lrs)
{
    const linear_lr *self = (const linear_lr *)base;
    int64_t at = base->last_epoch < self->total_iters ? base->last_epoch : self->total_iters;
    th__rates_from_base(base, lrs, self->start + (self->end - self->start) * (double)at / (double)self->total_iters);
}

static const th__field linear_fields[] = {
    {"start_factor", TH__FIELD_DOUBLE, offsetof(linear_lr, start), NULL},
    {"end_factor", TH__FIELD_DOUBLE, offsetof(linear_lr, end), NULL},
    {"total_iters", TH__FIELD_INT, offsetof(linear_lr, total_iters), NULL},
};
static const th__scheduler_ops linear_ops = {.name = "LinearLR",
                                             .size = sizeof(linear_lr),
                                             .fields = linear_fields,
                                             .n_fields = 3,
                                             .get_lr = linear_rates,
                                             .closed_form = linear_closed};

th_scheduler *th_lr_scheduler_linear_lr_call(struct th_lr_scheduler_linear_lr_args args)
{
    linear_lr *self = th__scheduler_new(&linear_ops, args.optimizer, "LinearLR");
    if (self == NULL) return NULL;
    self->start = args.start_factor;
    self->end = args.end_factor;
    self->total_iters = args.total_iters;
    if (!(args.start_factor > 0 && args.start_factor <= 1.0))
        th__fail(TH_ERR_VALUE, "LinearLR", "start_factor is %g, expected to be greater than 0 and at most 1", args.start_factor);
    if (!(args.end_factor >= 0 && args.end_factor <= 1.0))
        th__fail(TH_ERR_VALUE, "LinearLR", "end_factor is %g, expected to be between 0 and 1", args.end_factor);
    return th__scheduler_begin(self, args.last_epoch);
}

/* ---------------------------------------------------------------- PolynomialLR */

typedef struct polynomial_lr {
    th_scheduler base;
    int64_t total_iters;
    double power;
} polynomial_lr;

static void polynomial_rates(th_scheduler *base, double *lrs)
{
    const polynomial_lr *self = (const polynomial_lr *)base;
    double total = (double)self->total_iters, epoch = (double)base->last_epoch;
    if (base->is_initial || base->last_epoch > self->total_iters) return;
    th__scale_rates(base, lrs, pow((1.0 - epoch / total) / (1.0 - (epoch - 1) / total), self->power));
}

static void polynomial_closed(th_scheduler *base, double *lrs)
{
    const polynomial_lr *self = (const polynomial_lr *)base;
    int64_t at = base->last_epoch < self->total_iters ? base->last_epoch : self->total_iters;
    th__rates_from_base(base, lrs, pow(1.0 - (double)at / (double)self->total_iters, self->power));
}

static const th__field polynomial_fields[] = {
    {"total_iters", TH__FIELD_INT, offsetof(polynomial_lr, total_iters), NULL},
    {"power", TH__FIELD_DOUBLE, offsetof(polynomial_lr, power), NULL},
};
static const th__scheduler_ops polynomial_ops = {.name = "PolynomialLR",
                                                 .size = sizeof(polynomial_lr),
                                                 .fields = polynomial_fields,
                                                 .n_fields = 2,
                                                 .get_lr = polynomial_rates,
                                                 .closed_form = polynomial_closed};

th_scheduler *th_lr_scheduler_polynomial_lr_call(struct th_lr_scheduler_polynomial_lr_args args)
{
    polynomial_lr *self = th__scheduler_new(&polynomial_ops, args.optimizer, "PolynomialLR");
    if (self == NULL) return NULL;
    self->total_iters = args.total_iters;
    self->power = args.power;
    return th__scheduler_begin(self, args.last_epoch);
}
