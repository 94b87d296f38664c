/* optim/scheduler.h: the inside of a scheduler, for the schedulers of this room. */
#ifndef FABRIC_OPTIM_SCHEDULER_H
#define FABRIC_OPTIM_SCHEDULER_H

#include "optim/optimizer.h"

#include <cfabric/schedulers.h>

/* One number per parameter group. */
typedef struct th__rates {
    double *data;
    size_t n;
} th__rates;

/* What a class keeps in its state dict, besides what every scheduler keeps. */
typedef enum th__field_kind {
    TH__FIELD_INT,
    TH__FIELD_DOUBLE,
    TH__FIELD_BOOL,
    TH__FIELD_NUMBER, /* a double, saved as an int when it is whole */
    TH__FIELD_RATES,  /* th__rates */
    TH__FIELD_TEXT    /* an int that indexes `texts` */
} th__field_kind;
typedef struct th__field {
    const char *key;
    th__field_kind kind;
    size_t offset;
    const char *const *texts; /* ends with NULL */
} th__field;

typedef struct th__scheduler_ops {
    const char *name;
    size_t size; /* of the class's struct, whose first member is the th_scheduler */
    const th__field *fields;
    size_t n_fields;
    bool plain;                                           /* keeps no base_lrs and step count (plateau, composed ones) */
    void (*get_lr)(th_scheduler *self, double *lrs);      /* new rates, in place of the groups' present ones in `lrs` */
    void (*closed_form)(th_scheduler *self, double *lrs); /* NULL: get_lr */
    void (*step)(th_scheduler *self);                     /* NULL: th__scheduler_step */
    void (*step_epoch)(th_scheduler *self, double epoch); /* NULL: th__scheduler_update at a whole epoch */
    void (*save)(th_scheduler *self, th_value *state);    /* more than fields; may be NULL */
    void (*load)(th_scheduler *self, const th_value *state);
    void (*free_data)(th_scheduler *self);
} th__scheduler_ops;

struct th_scheduler {
    th__object object;
    const th__scheduler_ops *ops;
    th_optimizer *optimizer; /* retained */
    th__rates base_lrs, last_lr;
    int64_t last_epoch, step_count;
    bool is_initial;
    th_scheduler **children; /* owned */
    size_t n_children;
};

extern const th__class th__scheduler_cls;

/* A scheduler of `ops` without its first step. The optimizer is checked and retained. */
void *th__scheduler_new(const th__scheduler_ops *ops, th_optimizer *optimizer, const char *function);
/* Ends a maker: notes initial rates, makes the first step. Returns `self`, or frees it and returns NULL with an error pending. */
th_scheduler *th__scheduler_begin(void *self, int64_t last_epoch);
void th__scheduler_initial_step(th_scheduler *self);
void th__scheduler_step(th_scheduler *self);
void th__scheduler_any_step(th_scheduler *self);
/* LRScheduler._update_lr: epoch < 0 moves on by one, else jumps there. */
void th__scheduler_update(th_scheduler *self, int64_t epoch);
void th__scheduler_note_last_lr(th_scheduler *self);

/* lrs[g] *= factor; lrs[g] = base_lrs[g] * factor. */
static inline void th__scale_rates(const th_scheduler *self, double *lrs, double factor)
{
    for (size_t g = 0; g < self->base_lrs.n; g++) lrs[g] = lrs[g] * factor;
}
static inline void th__rates_from_base(const th_scheduler *self, double *lrs, double factor)
{
    for (size_t g = 0; g < self->base_lrs.n; g++) lrs[g] = self->base_lrs.data[g] * factor;
}

size_t th__scheduler_n_groups(const th_scheduler *self);
double *th__group_number(th_optimizer *optimizer, size_t group, const char *name);         /* NULL if there is none */
void th__group_put(th_optimizer *optimizer, size_t group, const char *name, double value); /* adds it */
/* `many` if given (it must have one value per group), else `one` for every group. False with an error. */
bool th__rates_fill(th__rates *rates, th_optimizer *optimizer, const char *what, double one, th_doubles many);
/* The index of `text` in a NULL-ended list; -1 with a ValueError that names the known ones. */
int th__text_index(const char *function, const char *what, const char *text, const char *const *texts);
/* Cycling momentum: the group's momentum or first beta. NULL with a ValueError if the optimizer has neither. */
double *th__momentum_of(th_optimizer *optimizer, size_t group);

#endif
