/* optim/schedulers_cycle.c: OneCycleLR and CyclicLR, which may move the momentum against the rate. */
#include "optim/scheduler.h"

#include <math.h>
#include <stdlib.h>

static const double pi = 3.14159265358979323846;

/* ---------------------------------------------------------------- OneCycleLR */

enum { COS, LINEAR };
static const char *const strategies[] = {"cos", "linear", NULL};

/* A phase runs between two of the group's numbers, named here. */
typedef struct phase {
    double end_step;
    const char *start_lr, *end_lr, *start_momentum, *end_momentum;
} phase;

typedef struct one_cycle {
    th_scheduler base;
    int64_t total_steps;
    phase phases[3];
    size_t n_phases;
    int strategy;
    bool cycle_momentum, use_beta1;
} one_cycle;

static double anneal(const one_cycle *self, double start, double end, double pct)
{
    if (self->strategy == LINEAR) return (end - start) * pct + start;
    double cos_out = cos(pi * pct) + 1;
    return end + (start - end) / 2.0 * cos_out;
}

static double number_of(const th_scheduler *base, size_t group, const char *name)
{
    const double *slot = th__group_number(base->optimizer, group, name);
    if (slot != NULL) return *slot;
    th__fail(TH_ERR_KEY, base->ops->name, "param_groups[%zu] has no '%s': load the optimizer's state first", group, name);
    return NAN;
}

static void one_cycle_rates(th_scheduler *base, double *lrs)
{
    const one_cycle *self = (const one_cycle *)base;
    double step = (double)base->last_epoch;
    if (base->last_epoch > self->total_steps) {
        th__fail(TH_ERR_VALUE, "OneCycleLR", "Tried to step %lld times. The specified number of total steps is %lld",
                 (long long)base->last_epoch, (long long)self->total_steps);
        return;
    }
    for (size_t g = 0; g < base->base_lrs.n; g++) {
        double start = 0.0;
        size_t i = 0;
        while (i + 1 < self->n_phases && !(step <= self->phases[i].end_step)) start = self->phases[i++].end_step;
        const phase *now = &self->phases[i];
        double pct = (step - start) / (now->end_step - start);
        lrs[g] = anneal(self, number_of(base, g, now->start_lr), number_of(base, g, now->end_lr), pct);
        if (!self->cycle_momentum) continue;
        double momentum = anneal(self, number_of(base, g, now->start_momentum), number_of(base, g, now->end_momentum), pct);
        double *slot = th__momentum_of(base->optimizer, g);
        if (slot != NULL) *slot = momentum;
    }
}

static void one_cycle_save(th_scheduler *base, th_value *state)
{
    const one_cycle *self = (const one_cycle *)base;
    th_value *list = th_value_list();
    for (size_t i = 0; list != NULL && i < self->n_phases; i++) {
        const phase *p = &self->phases[i];
        th_value *dict = th_value_dict();
        if (dict == NULL) break;
        /* The last end is an int in PyTorch, the others are floats. */
        th_value_set(dict, "end_step",
                     i + 1 == self->n_phases ? th_value_int((int64_t)p->end_step) : th_value_double(p->end_step));
        th_value_set(dict, "start_lr", th_value_string(p->start_lr));
        th_value_set(dict, "end_lr", th_value_string(p->end_lr));
        th_value_set(dict, "start_momentum", th_value_string(p->start_momentum));
        th_value_set(dict, "end_momentum", th_value_string(p->end_momentum));
        th_value_append(list, dict);
    }
    th_value_set(state, "_schedule_phases", list);
    if (self->cycle_momentum) th_value_set(state, "use_beta1", th_value_bool(self->use_beta1));
}

static void make_phases(one_cycle *self, double pct_start, bool three_phase)
{
    double total = (double)self->total_steps;
    phase up = {pct_start * total - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum"};
    phase back = {2 * pct_start * total - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"};
    phase down = {total - 1, "max_lr", "min_lr", "base_momentum", "max_momentum"};
    phase rest = {total - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"};
    self->phases[0] = up;
    self->phases[1] = three_phase ? back : down;
    self->phases[2] = rest;
    self->n_phases = three_phase ? 3 : 2;
}

/* The shape follows from total_steps and the first end, so loading needs no more than these. */
static void one_cycle_load(th_scheduler *base, const th_value *state)
{
    one_cycle *self = (one_cycle *)base;
    const th_value *list = th_value_get(state, "_schedule_phases");
    size_t n = th_value_size(list);
    if (n != 2 && n != 3) return;
    make_phases(self, 0, n == 3);
    for (size_t i = 0; i < n; i++)
        self->phases[i].end_step = th_value_as_double(th_value_get(th_value_at(list, i), "end_step"), self->phases[i].end_step);
}

static const th__field one_cycle_fields[] = {
    {"total_steps", TH__FIELD_INT, offsetof(one_cycle, total_steps), NULL},
    {"_anneal_func_type", TH__FIELD_TEXT, offsetof(one_cycle, strategy), strategies},
    {"cycle_momentum", TH__FIELD_BOOL, offsetof(one_cycle, cycle_momentum), NULL},
};
static const th__scheduler_ops one_cycle_ops = {.name = "OneCycleLR",
                                                .size = sizeof(one_cycle),
                                                .fields = one_cycle_fields,
                                                .n_fields = 3,
                                                .get_lr = one_cycle_rates,
                                                .save = one_cycle_save,
                                                .load = one_cycle_load};

static int64_t count_steps(const struct th_lr_scheduler_one_cycle_lr_args *args)
{
    static const char name[] = "OneCycleLR";
    if (args->total_steps > 0) return args->total_steps;
    if (args->total_steps < 0)
        th__fail(TH_ERR_VALUE, name, "Expected positive integer total_steps, but got %lld", (long long)args->total_steps);
    else if (args->epochs > 0 && args->steps_per_epoch > 0)
        return args->epochs * args->steps_per_epoch;
    else
        th__fail(TH_ERR_VALUE, name, "You must define either total_steps OR (epochs AND steps_per_epoch)");
    return 0;
}

/* Notes what the phases run between in every group, and puts the momentum at its start. */
static void one_cycle_prepare(one_cycle *self, const struct th_lr_scheduler_one_cycle_lr_args *args)
{
    th_optimizer *optimizer = self->base.optimizer;
    th__rates max_lrs = {0}, low = {0}, high = {0};
    bool ok = th__rates_fill(&max_lrs, optimizer, "max_lr", args->max_lr, args->max_lrs) &&
              th__rates_fill(&high, optimizer, "max_momentum", args->max_momentum, args->max_momentums) &&
              th__rates_fill(&low, optimizer, "base_momentum", args->base_momentum, args->base_momentums);
    for (size_t g = 0; ok && args->last_epoch == -1 && g < max_lrs.n; g++) {
        th__group_put(optimizer, g, "initial_lr", max_lrs.data[g] / args->div_factor);
        th__group_put(optimizer, g, "max_lr", max_lrs.data[g]);
        th__group_put(optimizer, g, "min_lr", max_lrs.data[g] / args->div_factor / args->final_div_factor);
        if (!self->cycle_momentum) continue;
        double *slot = th__momentum_of(optimizer, g);
        if (slot == NULL) break;
        *slot = high.data[g];
        th__group_put(optimizer, g, "max_momentum", high.data[g]);
        th__group_put(optimizer, g, "base_momentum", low.data[g]);
    }
    free(max_lrs.data);
    free(low.data);
    free(high.data);
}

th_scheduler *th_lr_scheduler_one_cycle_lr_call(struct th_lr_scheduler_one_cycle_lr_args args)
{
    static const char name[] = "OneCycleLR";
    one_cycle *self = th__scheduler_new(&one_cycle_ops, args.optimizer, name);
    if (self == NULL) return NULL;
    self->total_steps = count_steps(&args);
    make_phases(self, args.pct_start, args.three_phase);
    self->cycle_momentum = args.cycle_momentum;
    self->use_beta1 = th__group_number(args.optimizer, 0, "betas.0") != NULL;
    if (!(args.pct_start >= 0 && args.pct_start <= 1))
        th__fail(TH_ERR_VALUE, name, "Expected float between 0 and 1 pct_start, but got %g", args.pct_start);
    self->strategy = th__text_index(name, "anneal_strategy", args.anneal_strategy, strategies);
    if (self->cycle_momentum && th__pending() == TH_OK) th__momentum_of(args.optimizer, 0);
    if (th__pending() == TH_OK) one_cycle_prepare(self, &args);
    return th__scheduler_begin(self, args.last_epoch);
}

/* ---------------------------------------------------------------- CyclicLR */

enum { TRIANGULAR, TRIANGULAR2, EXP_RANGE };
static const char *const cycle_modes[] = {"triangular", "triangular2", "exp_range", NULL};
enum { PER_CYCLE, PER_ITERATION };
static const char *const scale_modes[] = {"cycle", "iterations", NULL};

typedef struct cyclic {
    th_scheduler base;
    th__rates max_lrs, base_momentums, max_momentums;
    double total_size, step_ratio, gamma;
    int mode, scale_mode;
    double (*scale_fn)(double x, void *user);
    void *user;
    bool cycle_momentum;
} cyclic;

static double scale(const cyclic *self, double x)
{
    if (self->scale_fn != NULL) return self->scale_fn(x, self->user);
    if (self->mode == TRIANGULAR2) return 1 / pow(2.0, x - 1);
    return self->mode == EXP_RANGE ? pow(self->gamma, x) : 1.0;
}

static void cyclic_rates(th_scheduler *base, double *lrs)
{
    const cyclic *self = (const cyclic *)base;
    double epoch = (double)base->last_epoch;
    double cycle = floor(1 + epoch / self->total_size);
    double x = 1.0 + epoch / self->total_size - cycle;
    double factor = x <= self->step_ratio ? x / self->step_ratio : (x - 1) / (self->step_ratio - 1);
    double at = self->scale_mode == PER_CYCLE ? cycle : epoch;
    for (size_t g = 0; g < base->base_lrs.n && th__pending() == TH_OK; g++) {
        double height = (self->max_lrs.data[g] - base->base_lrs.data[g]) * factor;
        lrs[g] = base->base_lrs.data[g] + height * scale(self, at);
        double *slot = self->cycle_momentum ? th__momentum_of(base->optimizer, g) : NULL;
        if (slot == NULL) continue;
        height = (self->max_momentums.data[g] - self->base_momentums.data[g]) * factor;
        *slot = self->max_momentums.data[g] - height * scale(self, at);
    }
}

static void cyclic_save(th_scheduler *base, th_value *state)
{
    const cyclic *self = (const cyclic *)base;
    if (self->cycle_momentum)
        th_value_set(state, "use_beta1", th_value_bool(th__group_number(base->optimizer, 0, "betas.0") != NULL));
    th_value_set(state, "_scale_fn_custom", th_value_none());
}

static const th__field cyclic_fields[] = {
    {"max_lrs", TH__FIELD_RATES, offsetof(cyclic, max_lrs), NULL},
    {"total_size", TH__FIELD_DOUBLE, offsetof(cyclic, total_size), NULL},
    {"step_ratio", TH__FIELD_DOUBLE, offsetof(cyclic, step_ratio), NULL},
    {"mode", TH__FIELD_TEXT, offsetof(cyclic, mode), cycle_modes},
    {"gamma", TH__FIELD_DOUBLE, offsetof(cyclic, gamma), NULL},
    {"scale_mode", TH__FIELD_TEXT, offsetof(cyclic, scale_mode), scale_modes},
    {"cycle_momentum", TH__FIELD_BOOL, offsetof(cyclic, cycle_momentum), NULL},
    {"base_momentums", TH__FIELD_RATES, offsetof(cyclic, base_momentums), NULL},
    {"max_momentums", TH__FIELD_RATES, offsetof(cyclic, max_momentums), NULL},
};
static const th__scheduler_ops cyclic_ops = {.name = "CyclicLR",
                                             .size = sizeof(cyclic),
                                             .fields = cyclic_fields,
                                             .n_fields = sizeof cyclic_fields / sizeof *cyclic_fields,
                                             .get_lr = cyclic_rates,
                                             .save = cyclic_save};

static void cyclic_sizes(cyclic *self, const struct th_lr_scheduler_cyclic_lr_args *args)
{
    double up = (double)args->step_size_up, down = args->step_size_down.has ? (double)args->step_size_down.value : up;
    if (args->step_size_up <= 0 || down < 0) {
        th__fail(TH_ERR_VALUE, "CyclicLR", "step_size_up is %g and step_size_down %g, expected positive numbers", up, down);
        return;
    }
    self->total_size = up + down;
    self->step_ratio = up / self->total_size;
}

/* A mode brings its own way of scaling; the default scale mode counts only with a scale_fn. */
static void cyclic_mode(cyclic *self, const struct th_lr_scheduler_cyclic_lr_args *args)
{
    self->gamma = args->gamma;
    self->scale_fn = args->scale_fn;
    self->user = args->user;
    self->scale_mode = th__text_index("CyclicLR", "scale_mode", args->scale_mode, scale_modes);
    self->mode = th__text_index("CyclicLR", "mode", args->mode, cycle_modes);
    if (self->scale_fn == NULL) self->scale_mode = self->mode == EXP_RANGE ? PER_ITERATION : PER_CYCLE;
}

static void cyclic_momentum(cyclic *self, const struct th_lr_scheduler_cyclic_lr_args *args)
{
    th_optimizer *optimizer = self->base.optimizer;
    if (!self->cycle_momentum ||
        !th__rates_fill(&self->base_momentums, optimizer, "base_momentum", args->base_momentum, args->base_momentums) ||
        !th__rates_fill(&self->max_momentums, optimizer, "max_momentum", args->max_momentum, args->max_momentums))
        return;
    for (size_t g = 0; args->last_epoch == -1 && g < optimizer->n_groups; g++) {
        double *slot = th__momentum_of(optimizer, g);
        if (slot == NULL) return;
        *slot = self->max_momentums.data[g];
        th__group_put(optimizer, g, "max_momentum", self->max_momentums.data[g]);
        th__group_put(optimizer, g, "base_momentum", self->base_momentums.data[g]);
    }
}

th_scheduler *th_lr_scheduler_cyclic_lr_call(struct th_lr_scheduler_cyclic_lr_args args)
{
    cyclic *self = th__scheduler_new(&cyclic_ops, args.optimizer, "CyclicLR");
    if (self == NULL) return NULL;
    th__rates base_lrs = {0};
    self->cycle_momentum = args.cycle_momentum;
    cyclic_sizes(self, &args);
    cyclic_mode(self, &args);
    bool ok = th__pending() == TH_OK && (!args.cycle_momentum || th__momentum_of(args.optimizer, 0) != NULL) &&
              th__rates_fill(&base_lrs, args.optimizer, "base_lr", args.base_lr, args.base_lrs) &&
              th__rates_fill(&self->max_lrs, args.optimizer, "max_lr", args.max_lr, args.max_lrs);
    for (size_t g = 0; ok && args.last_epoch == -1 && g < base_lrs.n; g++)
        *th__group_number(args.optimizer, g, "lr") = base_lrs.data[g];
    if (ok) cyclic_momentum(self, &args);
    th_scheduler *result = th__scheduler_begin(self, args.last_epoch);
    /* The first step went by "initial_lr"; from now on the given base counts. */
    for (size_t g = 0; result != NULL && g < base_lrs.n; g++) result->base_lrs.data[g] = base_lrs.data[g];
    free(base_lrs.data);
    return result;
}
