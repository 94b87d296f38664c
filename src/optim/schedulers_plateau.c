/* optim/schedulers_plateau.c: ReduceLROnPlateau. */
#include "optim/scheduler.h"

#include <math.h>

enum { MIN, MAX };
enum { REL, ABS };
static const char *const modes[] = {"min", "max", NULL};
static const char *const threshold_modes[] = {"rel", "abs", NULL};

typedef struct plateau {
    th_scheduler base;
    double factor, eps, threshold, best, default_min_lr;
    th__rates min_lrs;
    bool min_lr_per_group;
    int64_t patience, cooldown, cooldown_counter, num_bad_epochs;
    int mode, threshold_mode;
} plateau;

static bool is_better(const plateau *self, double value)
{
    double best = self->best;
    if (self->mode == MIN)
        return self->threshold_mode == REL ? value < best * (1.0 - self->threshold) : value < best - self->threshold;
    return self->threshold_mode == REL ? value > best * (self->threshold + 1.0) : value > best + self->threshold;
}

static void reduce(plateau *self)
{
    th_optimizer *optimizer = self->base.optimizer;
    if (self->min_lrs.n != optimizer->n_groups) {
        if (self->min_lr_per_group) {
            th__fail(TH_ERR_RUNTIME, "ReduceLROnPlateau", "the optimizer has %zu parameter groups, min_lrs has %zu values",
                     optimizer->n_groups, self->min_lrs.n);
            return;
        }
        if (!th__rates_fill(&self->min_lrs, optimizer, "min_lr", self->default_min_lr, (th_doubles){NULL, 0})) return;
    }
    for (size_t g = 0; g < optimizer->n_groups; g++) {
        double *lr = th__group_number(optimizer, g, "lr");
        double lower = *lr * self->factor;
        if (self->min_lrs.data[g] > lower) lower = self->min_lrs.data[g];
        if (*lr - lower > self->eps) *lr = lower;
    }
}

static void needs_metric(th_scheduler *base)
{
    (void)base;
    th__fail(TH_ERR_TYPE, "ReduceLROnPlateau", "the metric is missing: use th_scheduler_step_metric");
}

static void save(th_scheduler *base, th_value *state)
{
    const plateau *self = (const plateau *)base;
    th_value_set(state, "default_min_lr", self->min_lr_per_group ? th_value_none() : th_value_double(self->default_min_lr));
    th_value_set(state, "mode_worse", th_value_double(self->mode == MIN ? INFINITY : -INFINITY));
}

static const th__field fields[] = {
    {"factor", TH__FIELD_DOUBLE, offsetof(plateau, factor), NULL},
    {"min_lrs", TH__FIELD_RATES, offsetof(plateau, min_lrs), NULL},
    {"patience", TH__FIELD_INT, offsetof(plateau, patience), NULL},
    {"cooldown", TH__FIELD_INT, offsetof(plateau, cooldown), NULL},
    {"eps", TH__FIELD_DOUBLE, offsetof(plateau, eps), NULL},
    {"last_epoch", TH__FIELD_INT, offsetof(plateau, base.last_epoch), NULL},
    {"_last_lr", TH__FIELD_RATES, offsetof(plateau, base.last_lr), NULL},
    {"mode", TH__FIELD_TEXT, offsetof(plateau, mode), modes},
    {"threshold", TH__FIELD_DOUBLE, offsetof(plateau, threshold), NULL},
    {"threshold_mode", TH__FIELD_TEXT, offsetof(plateau, threshold_mode), threshold_modes},
    {"best", TH__FIELD_DOUBLE, offsetof(plateau, best), NULL},
    {"cooldown_counter", TH__FIELD_INT, offsetof(plateau, cooldown_counter), NULL},
    {"num_bad_epochs", TH__FIELD_INT, offsetof(plateau, num_bad_epochs), NULL},
};
static const th__scheduler_ops plateau_ops = {.name = "ReduceLROnPlateau",
                                              .size = sizeof(plateau),
                                              .fields = fields,
                                              .n_fields = sizeof fields / sizeof *fields,
                                              .plain = true,
                                              .step = needs_metric,
                                              .save = save};

th_status th_scheduler_step_metric(th_scheduler *scheduler, double metric)
{
    TH__CHECK_PENDING();
    if (!th__object_check(scheduler, &th__scheduler_cls, __func__, "scheduler")) return th__pending();
    if (scheduler->ops != &plateau_ops)
        return TH__FAIL(TH_ERR_TYPE, "a %s takes no metric: use th_scheduler_step", scheduler->ops->name);
    plateau *self = (plateau *)scheduler;
    scheduler->last_epoch++;
    if (is_better(self, metric)) {
        self->best = metric;
        self->num_bad_epochs = 0;
    } else {
        self->num_bad_epochs++;
    }
    if (self->cooldown_counter > 0) {
        self->cooldown_counter--;
        self->num_bad_epochs = 0; /* bad epochs do not count while it cools down */
    }
    if (self->num_bad_epochs > self->patience) {
        reduce(self);
        self->cooldown_counter = self->cooldown;
        self->num_bad_epochs = 0;
    }
    th__scheduler_note_last_lr(scheduler);
    return th__pending();
}

th_scheduler *th_lr_scheduler_reduce_lr_on_plateau_call(struct th_lr_scheduler_reduce_lr_on_plateau_args args)
{
    static const char name[] = "ReduceLROnPlateau";
    plateau *self = th__scheduler_new(&plateau_ops, args.optimizer, name);
    if (self == NULL) return NULL;
    if (!(args.factor < 1.0)) th__fail(TH_ERR_VALUE, name, "Factor should be < 1.0, but got %g", args.factor);
    self->factor = args.factor;
    self->patience = args.patience;
    self->threshold = args.threshold;
    self->cooldown = args.cooldown;
    self->eps = args.eps;
    self->default_min_lr = args.min_lr;
    self->min_lr_per_group = args.min_lrs.data != NULL;
    self->mode = th__text_index(name, "mode", args.mode, modes);
    self->threshold_mode = th__text_index(name, "threshold mode", args.threshold_mode, threshold_modes);
    self->best = self->mode == MIN ? INFINITY : -INFINITY;
    if (th__pending() == TH_OK) th__rates_fill(&self->min_lrs, args.optimizer, "min_lr", args.min_lr, args.min_lrs);
    if (th__pending() == TH_OK) th__scheduler_note_last_lr(&self->base);
    if (th__pending() == TH_OK) return &self->base;
    th__release(self);
    return NULL;
}
