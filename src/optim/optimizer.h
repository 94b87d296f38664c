/* optim/optimizer.h: the inside of an optimizer, for the files of this room only. Other rooms use internal.h. */
#ifndef FABRIC_OPTIM_OPTIMIZER_H
#define FABRIC_OPTIM_OPTIMIZER_H

#include "base/error.h"
#include "base/memory.h"
#include "base/object.h"
#include "optim/internal.h"
#include "tensor/internal.h"

/* A hyperparameter of a group. The first n_options of a group are the class's, in its order, so that a class finds its own by
 * index; what schedulers add ("initial_lr") comes after them and has an owned name. */
typedef struct th__hyper {
    const char *name;
    th_option_kind kind;
    double v[2];
    const char *text;
    bool owned;
} th__hyper;

typedef struct th__param {
    th_tensor *tensor; /* owned handle */
    th_tensor **state; /* n_state owned handles, NULL where there is none yet */
} th__param;

typedef struct th__group {
    th__param *params;
    size_t n;
    th__hyper *hyper;
    size_t n_hyper, hyper_capacity;
} th__group;

struct th_optimizer {
    th__object object;
    const th_optimizer_ops *ops;
    void *data;
    th__hyper *defaults; /* n_options: what the constructor was given */
    th__group *groups;
    size_t n_groups, groups_capacity;
    const th__optimizer_wrapper *wrapper_ops;
    void *wrapper;
    th_tensor *grad_scale, *found_inf; /* borrowed, for one fused step */
    bool stepped;                      /* step was called: schedulers warn when it was not */
};

extern const th__class th__optimizer_cls;

/* Builds an optimizer from `values`, one per ops->options (a class's own keyword arguments); takes over `data`. */
th_optimizer *th__optimizer_build(const th_optimizer_ops *ops, th_tensors params, const th__hyper *values, void *data);
/* The class's defaults as values to overwrite. `values` has ops->n_options elements. */
void th__optimizer_default_values(const th_optimizer_ops *ops, th__hyper *values);

th__hyper *th__group_find(th__group *group, const char *name);
/* Finds or adds; NULL with an error. */
th__hyper *th__group_add(th__group *group, const char *name, th_option_kind kind);
void th__group_clear(th__group *group, size_t n_state);
/* hyperparameters.c: reads "betas.1" as the second value of "betas". NULL if there is none. */
double *th__hyper_slot(th__hyper *list, size_t n, const char *name);

/* Index access for classes: their options are always at the front of a group. */
static inline double th__opt(const th__group *group, size_t index) { return group->hyper[index].v[0]; }
static inline bool th__opt_bool(const th__group *group, size_t index) { return group->hyper[index].v[0] > 0; }
/* An optional bool argument as a TH_OPTION_MAYBE value. */
static inline double th__maybe(th_opt_bool value) { return value.has ? (value.value ? 1.0 : 0.0) : -1.0; }

/* Checks shared by the classes: raises PyTorch's "Invalid <what>: <value>". */
th_status th__check_range(const char *cls, const char *what, double value, double low, bool ok);
th_status th__check_not_negative(const char *cls, const char *what, double value);
/* fused with foreach, capturable, differentiable: what is refused at construction. Index -1: the class lacks that option. */
th_status th__check_implementation(const th__group *group, const char *cls, int foreach, int fused, int capturable,
                                   int differentiable);

#endif
