/* optim/lbfgs.h: what LBFGS and its line search share. */
#ifndef FABRIC_OPTIM_LBFGS_H
#define FABRIC_OPTIM_LBFGS_H

#include "optim/mixed_number.h"
#include "optim/optimizer.h"

/* The state that lives from step to step. Tensors are owned handles. */
typedef struct th__lbfgs {
    bool begun; /* a step has been made: the state dict has entries */
    int64_t func_evals, n_iter;
    size_t n_old, old_capacity; /* history, oldest first */
    th_tensor **old_dirs, **old_stps;
    double *ro, *al; /* al: the first n_al have been set at some time */
    size_t n_al;
    th_tensor *d, *prev_flat_grad;
    th__number t, H_diag;
    double prev_loss;
    bool single; /* scalars are float32 */
    /* of the running step */
    th_closure closure;
    void *user;
} th__lbfgs;

/* lbfgs_state.c: everything is on the first parameter, as in PyTorch. */
th_status th__lbfgs_save(th_optimizer *self, size_t group, size_t i, th_value *state);
th_status th__lbfgs_load(th_optimizer *self, size_t group, size_t i, th_value *state, bool validate_only);
void th__lbfgs_clear(th__lbfgs *state);
bool th__lbfgs_reserve(th__lbfgs *state, size_t n);

/* All gradients end to end. [scoped] */
th_tensor *th__lbfgs_flat_grad(th_optimizer *self);
/* params += step * direction */
void th__lbfgs_move(th_optimizer *self, double step, th_tensor *direction);
/* float(closure()) */
double th__lbfgs_evaluate(th_optimizer *self);
th__number th__lbfgs_dot(th_optimizer *self, th_tensor *a, th_tensor *b);
/* The largest magnitude. */
th__number th__lbfgs_peak(th_optimizer *self, th_tensor *a);

/* Strong-Wolfe line search from the parameters' present values along `d`. In: the step to try first, the loss and gradient there
 * and the slope. Out: loss, gradient (an owned handle), step, evaluations. The parameters are left where they were. */
typedef struct th__search {
    th_tensor *d;
    th__number t, f, gtd;
    th_tensor *g;
    int64_t evaluations;
} th__search;
th_status th__lbfgs_search(th_optimizer *self, th__search *search, double tolerance_change, int64_t max_ls);

#endif
