/* optim/schedulers_compose.c: SequentialLR and ChainedScheduler, which own other schedulers. */
#include "optim/scheduler.h"

#include <stdlib.h>
#include <string.h>

typedef struct sequential {
    th_scheduler base;
    int64_t *milestones;
    size_t n_milestones;
} sequential;

static bool is_composed(const th_scheduler *scheduler) { return scheduler->n_children > 0; }

/* The child that runs at an epoch: how many milestones have been reached. */
static size_t child_at(const sequential *self, int64_t epoch)
{
    size_t index = 0;
    while (index < self->n_milestones && self->milestones[index] <= epoch) index++;
    return index;
}

static void copy_last_lr(th_scheduler *self, const th_scheduler *from)
{
    th__scheduler_note_last_lr(self);
    if (self->last_lr.n == from->last_lr.n && from->last_lr.n > 0)
        memcpy(self->last_lr.data, from->last_lr.data, from->last_lr.n * sizeof *from->last_lr.data);
}

static void sequential_step(th_scheduler *base)
{
    sequential *self = (sequential *)base;
    base->last_epoch++;
    size_t index = child_at(self, base->last_epoch);
    th_scheduler *child = base->children[index];
    if (index > 0 && self->milestones[index - 1] == base->last_epoch)
        th__scheduler_update(child, 0);
    else
        th__scheduler_any_step(child);
    copy_last_lr(base, child);
}

static void sequential_save(th_scheduler *base, th_value *state)
{
    const sequential *self = (const sequential *)base;
    th_value *list = th_value_list();
    for (size_t i = 0; list != NULL && i < self->n_milestones; i++) th_value_append(list, th_value_int(self->milestones[i]));
    th_value_set(state, "_milestones", list);
}

static void sequential_load(th_scheduler *base, const th_value *state)
{
    sequential *self = (sequential *)base;
    const th_value *list = th_value_get(state, "_milestones");
    for (size_t i = 0; th_value_size(list) == self->n_milestones && i < self->n_milestones; i++)
        self->milestones[i] = th_value_as_int(th_value_at(list, i), self->milestones[i]);
}

static void sequential_free(th_scheduler *base) { free(((sequential *)base)->milestones); }

static void chained_step(th_scheduler *base)
{
    for (size_t i = 0; i < base->n_children && th__pending() == TH_OK; i++) th__scheduler_any_step(base->children[i]);
    th__scheduler_note_last_lr(base);
}

static const th__field sequential_fields[] = {
    {"last_epoch", TH__FIELD_INT, offsetof(sequential, base.last_epoch), NULL},
    {"_last_lr", TH__FIELD_RATES, offsetof(sequential, base.last_lr), NULL},
};
static const th__field chained_fields[] = {{"_last_lr", TH__FIELD_RATES, offsetof(th_scheduler, last_lr), NULL}};
static const th__scheduler_ops sequential_ops = {.name = "SequentialLR",
                                                 .size = sizeof(sequential),
                                                 .fields = sequential_fields,
                                                 .n_fields = 2,
                                                 .plain = true,
                                                 .step = sequential_step,
                                                 .save = sequential_save,
                                                 .load = sequential_load,
                                                 .free_data = sequential_free};
static const th__scheduler_ops chained_ops = {.name = "ChainedScheduler",
                                              .size = sizeof(th_scheduler),
                                              .fields = chained_fields,
                                              .n_fields = 1,
                                              .plain = true,
                                              .step = chained_step};

/* ---------------------------------------------------------------- making */

static void free_all(th_schedulers list)
{
    for (size_t i = 0; i < list.size; i++) th__release(list.data[i]);
}

/* Checks the children and takes them over. False with an error; they then still belong to the caller. */
static bool adopt(th_scheduler *self, th_schedulers list)
{
    const char *name = self->ops->name;
    for (size_t i = 0; i < list.size; i++) {
        const th_scheduler *child = list.data[i];
        if (!th__object_check(child, &th__scheduler_cls, name, "schedulers")) return false;
        if (strcmp(child->ops->name, "ReduceLROnPlateau") == 0) {
            th__fail(TH_ERR_VALUE, name, "%s does not support ReduceLROnPlateau, which needs a metric, but got one at index %zu",
                     name, i);
            return false;
        }
        if (child->optimizer == self->optimizer) continue;
        th__fail(TH_ERR_VALUE, name, "%s expects all schedulers to belong to the same optimizer, but %s at index %zu does not",
                 name, child->ops->name, i);
        return false;
    }
    self->children = th__calloc(list.size, sizeof *self->children);
    if (self->children == NULL) return false;
    memcpy(self->children, list.data, list.size * sizeof *self->children);
    self->n_children = list.size;
    return true;
}

static void *new_composed(const th__scheduler_ops *ops, th_optimizer *optimizer, th_schedulers list)
{
    th_scheduler *self = NULL;
    if (th__pending() == TH_OK && list.size == 0)
        th__fail(TH_ERR_VALUE, ops->name, "%s expects at least one scheduler, but got no scheduler.", ops->name);
    if (th__pending() == TH_OK) self = th__scheduler_new(ops, optimizer, ops->name);
    if (self != NULL && adopt(self, list)) return self;
    th__release(self);
    free_all(list);
    return NULL;
}

/* Takes back the first step that making the children did. */
static void undo(th_scheduler *self)
{
    if (!is_composed(self)) self->last_epoch--;
    for (size_t i = 0; i < self->n_children; i++) undo(self->children[i]);
}

static void sequential_begin(sequential *self, int64_t last_epoch)
{
    th_scheduler *base = &self->base;
    base->last_epoch = last_epoch + 1;
    for (size_t g = 0; g < th__scheduler_n_groups(base); g++) {
        const double *initial = th__group_number(base->optimizer, g, "initial_lr");
        if (initial != NULL) *th__group_number(base->optimizer, g, "lr") = *initial;
    }
    undo(base);
    th_scheduler *first = base->children[child_at(self, 0)];
    th__scheduler_initial_step(first);
    copy_last_lr(base, first);
}

th_scheduler *th_lr_scheduler_sequential_lr_call(struct th_lr_scheduler_sequential_lr_args args)
{
    sequential *self = new_composed(&sequential_ops, args.optimizer, args.schedulers);
    if (self == NULL) return NULL;
    if (args.milestones.size != args.schedulers.size - 1) {
        th__fail(TH_ERR_VALUE, "SequentialLR",
                 "expects one scheduler more than milestones, but got %zu schedulers and %zu milestones", args.schedulers.size,
                 args.milestones.size);
    } else if ((self->milestones = th__calloc(args.milestones.size, sizeof *self->milestones)) != NULL) {
        TH_SCOPE();
        self->n_milestones = args.milestones.size;
        for (size_t i = 0; i < self->n_milestones; i++) self->milestones[i] = args.milestones.data[i];
        sequential_begin(self, args.last_epoch);
    }
    if (th__pending() == TH_OK) return &self->base;
    th__release(self);
    return NULL;
}

th_scheduler *th_lr_scheduler_chained_scheduler_call(struct th_lr_scheduler_chained_scheduler_args args)
{
    th_optimizer *optimizer = args.optimizer;
    if (optimizer == NULL && args.schedulers.size > 0 && args.schedulers.data[0] != NULL)
        optimizer = th_scheduler_optimizer(args.schedulers.data[0]);
    th_scheduler *self = new_composed(&chained_ops, optimizer, args.schedulers);
    if (self == NULL) return NULL;
    th__scheduler_note_last_lr(self);
    if (th__pending() == TH_OK) return self;
    th__release(self);
    return NULL;
}
