/* optim/scheduler.c: what every scheduler does: the first step, stepping, last rates, state dicts. */
#include "optim/scheduler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void destroy(void *object)
{
    th_scheduler *self = object;
    if (self->ops->free_data != NULL) self->ops->free_data(self);
    for (size_t i = 0; i < self->ops->n_fields; i++) {
        if (self->ops->fields[i].kind != TH__FIELD_RATES) continue;
        th__rates *rates = (th__rates *)((char *)self + self->ops->fields[i].offset);
        free(rates->data);
        rates->data = NULL; /* it may be one of the common ones below */
    }
    for (size_t i = 0; i < self->n_children; i++) th__release(self->children[i]);
    free(self->children);
    free(self->base_lrs.data);
    free(self->last_lr.data);
    th_optimizer_free(self->optimizer);
    free(self);
}

const th__class th__scheduler_cls = {"scheduler", destroy};

static bool is_scheduler(const th_scheduler *scheduler, const char *function)
{
    return th__object_check(scheduler, &th__scheduler_cls, function, "scheduler");
}

/* ---------------------------------------------------------------- groups and numbers */

size_t th__scheduler_n_groups(const th_scheduler *self) { return self->optimizer->n_groups; }

double *th__group_number(th_optimizer *optimizer, size_t group, const char *name)
{
    return th__hyper_slot(optimizer->groups[group].hyper, optimizer->groups[group].n_hyper, name);
}

void th__group_put(th_optimizer *optimizer, size_t group, const char *name, double value)
{
    th__hyper *hyper = th__group_add(&optimizer->groups[group], name, TH_OPTION_DOUBLE);
    if (hyper != NULL) hyper->v[0] = value;
}

static bool resize(th__rates *rates, size_t n)
{
    if (rates->n == n && rates->data != NULL) return true;
    double *data = th__realloc(rates->data, n, sizeof *data);
    if (data == NULL) return false;
    rates->data = data;
    rates->n = n;
    return true;
}

bool th__rates_fill(th__rates *rates, th_optimizer *optimizer, const char *what, double one, th_doubles many)
{
    if (many.data != NULL && many.size != optimizer->n_groups) {
        th__fail(TH_ERR_VALUE, "lr_scheduler", "%s has %zu values, the optimizer has %zu parameter groups", what, many.size,
                 optimizer->n_groups);
        return false;
    }
    if (!resize(rates, optimizer->n_groups)) return false;
    for (size_t g = 0; g < rates->n; g++) rates->data[g] = many.data != NULL ? many.data[g] : one;
    return true;
}

int th__text_index(const char *function, const char *what, const char *text, const char *const *texts)
{
    char known[128] = "";
    for (int i = 0; texts[i] != NULL; i++) {
        if (text != NULL && strcmp(text, texts[i]) == 0) return i;
        if (i > 0) strncat(known, ", ", sizeof known - strlen(known) - 1);
        strncat(known, texts[i], sizeof known - strlen(known) - 1);
    }
    th__fail(TH_ERR_VALUE, function, "%s '%s' is not known; known: %s", what, text != NULL ? text : "(NULL)", known);
    return -1;
}

double *th__momentum_of(th_optimizer *optimizer, size_t group)
{
    double *slot = th__group_number(optimizer, group, "betas.0");
    if (slot == NULL) slot = th__group_number(optimizer, group, "momentum");
    if (slot == NULL)
        th__fail(TH_ERR_VALUE, "lr_scheduler", "%s has neither momentum nor betas, which cycle_momentum needs",
                 optimizer->ops->name);
    return slot;
}

/* ---------------------------------------------------------------- making */

void *th__scheduler_new(const th__scheduler_ops *ops, th_optimizer *optimizer, const char *function)
{
    TH__CHECK_PENDING_NULL();
    if (!th__object_check(optimizer, &th__optimizer_cls, function, "optimizer")) return NULL;
    for (size_t g = 0; g < optimizer->n_groups; g++) {
        if (th__group_number(optimizer, g, "lr") != NULL) continue;
        th__fail(TH_ERR_VALUE, function, "%s has no option 'lr' to schedule", optimizer->ops->name);
        return NULL;
    }
    th_scheduler *self = th__object_new(&th__scheduler_cls, ops->size);
    if (self == NULL) return NULL;
    self->ops = ops;
    self->optimizer = th_optimizer_retain(optimizer);
    return self;
}

static void note_initial(th_scheduler *self, int64_t last_epoch)
{
    size_t n = th__scheduler_n_groups(self);
    if (!resize(&self->base_lrs, n)) return;
    for (size_t g = 0; g < n; g++) {
        const double *initial = th__group_number(self->optimizer, g, "initial_lr");
        if (initial == NULL && last_epoch != -1) {
            th__fail(TH_ERR_KEY, self->ops->name,
                     "param 'initial_lr' is not specified in param_groups[%zu] when resuming with "
                     "last_epoch %lld: load the optimizer's state first",
                     g, (long long)last_epoch);
            return;
        }
        double value = initial != NULL ? *initial : *th__group_number(self->optimizer, g, "lr");
        if (initial == NULL) th__group_put(self->optimizer, g, "initial_lr", value);
        self->base_lrs.data[g] = value;
    }
}

th_scheduler *th__scheduler_begin(void *object, int64_t last_epoch)
{
    th_scheduler *self = object;
    if (self == NULL) return NULL;
    if (th__pending() == TH_OK) note_initial(self, last_epoch);
    self->last_epoch = last_epoch;
    if (th__pending() == TH_OK) th__scheduler_initial_step(self);
    if (th__pending() == TH_OK) return self;
    th__release(self);
    return NULL;
}

th_scheduler *th_scheduler_retain(th_scheduler *scheduler) { return th__retain(scheduler); }
void th_scheduler_free(th_scheduler *scheduler) { th__release(scheduler); }

/* ---------------------------------------------------------------- stepping */

void th__scheduler_note_last_lr(th_scheduler *self)
{
    if (!resize(&self->last_lr, th__scheduler_n_groups(self))) return;
    for (size_t g = 0; g < self->last_lr.n; g++) self->last_lr.data[g] = *th__group_number(self->optimizer, g, "lr");
}

void th__scheduler_update(th_scheduler *self, int64_t epoch)
{
    if (self->ops->get_lr == NULL) {
        th__fail(TH_ERR_NOT_IMPLEMENTED, self->ops->name, "a %s cannot jump to an epoch", self->ops->name);
        return;
    }
    size_t n = th__scheduler_n_groups(self);
    if (self->base_lrs.n != n) {
        th__fail(TH_ERR_VALUE, self->ops->name, "the optimizer has %zu parameter groups, the scheduler was made for %zu", n,
                 self->base_lrs.n);
        return;
    }
    double *lrs = th__scope_alloc(n * sizeof *lrs);
    if (lrs == NULL) return;
    for (size_t g = 0; g < n; g++) lrs[g] = *th__group_number(self->optimizer, g, "lr");
    self->last_epoch = epoch < 0 ? self->last_epoch + 1 : epoch;
    if (epoch >= 0 && self->ops->closed_form != NULL)
        self->ops->closed_form(self, lrs);
    else
        self->ops->get_lr(self, lrs);
    if (th__pending() != TH_OK) return;
    for (size_t g = 0; g < n; g++) *th__group_number(self->optimizer, g, "lr") = lrs[g];
    th__scheduler_note_last_lr(self);
}

static void count_step(th_scheduler *self)
{
    if (self->step_count == 1 && !self->optimizer->stepped)
        th__warn(
            "%s: th_scheduler_step was called before th_optimizer_step. Call them in the opposite order, else the first value of "
            "the schedule is skipped.",
            self->ops->name);
    self->step_count++;
}

void th__scheduler_step(th_scheduler *self)
{
    count_step(self);
    th__scheduler_update(self, -1);
}

void th__scheduler_any_step(th_scheduler *self)
{
    if (self->ops->step != NULL)
        self->ops->step(self);
    else
        th__scheduler_step(self);
}

void th__scheduler_initial_step(th_scheduler *self)
{
    self->step_count = 0;
    self->is_initial = true;
    th__scheduler_any_step(self);
    self->is_initial = false;
}

th_status th_scheduler_step(th_scheduler *scheduler)
{
    TH__CHECK_PENDING();
    if (!is_scheduler(scheduler, __func__)) return th__pending();
    TH_SCOPE();
    th__scheduler_any_step(scheduler);
    return th__pending();
}

th_status th_scheduler_step_epoch(th_scheduler *scheduler, double epoch)
{
    TH__CHECK_PENDING();
    if (!is_scheduler(scheduler, __func__)) return th__pending();
    if (!(epoch >= 0 && epoch < 9e15)) return TH__FAIL(TH_ERR_VALUE, "Expected non-negative epoch, but got %g", epoch);
    TH_SCOPE();
    if (scheduler->ops->step_epoch != NULL) {
        scheduler->ops->step_epoch(scheduler, epoch);
    } else if (epoch != floor(epoch)) {
        return TH__FAIL(TH_ERR_VALUE, "%s takes whole epochs, but got %g", scheduler->ops->name, epoch);
    } else {
        count_step(scheduler);
        th__scheduler_update(scheduler, (int64_t)epoch);
    }
    return th__pending();
}

/* ---------------------------------------------------------------- looking */

th_doubles th_scheduler_get_last_lr(th_scheduler *scheduler)
{
    if (!is_scheduler(scheduler, __func__)) return (th_doubles){NULL, 0};
    return (th_doubles){scheduler->last_lr.data, scheduler->last_lr.n};
}

double th_scheduler_last_lr(th_scheduler *scheduler)
{
    return is_scheduler(scheduler, __func__) && scheduler->last_lr.n > 0 ? scheduler->last_lr.data[0] : NAN;
}

int64_t th_scheduler_last_epoch(th_scheduler *scheduler)
{
    return is_scheduler(scheduler, __func__) ? scheduler->last_epoch : -1;
}
const char *th_scheduler_class(th_scheduler *scheduler) { return is_scheduler(scheduler, __func__) ? scheduler->ops->name : ""; }
th_optimizer *th_scheduler_optimizer(th_scheduler *scheduler)
{
    return is_scheduler(scheduler, __func__) ? scheduler->optimizer : NULL;
}
