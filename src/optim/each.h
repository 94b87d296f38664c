/* optim/each.h: arithmetic on lists of tensors, so that every optimizer is written once.
 *
 * The plain implementation hands an update lists of one tensor, and each function here is then one operator call; the foreach
 * implementation hands it all tensors of the group, and each function is one _foreach_ operator. Results are [scoped]. */
#ifndef FABRIC_OPTIM_EACH_H
#define FABRIC_OPTIM_EACH_H

#include "optim/optimizer.h"

enum { TH__STATES_MAX = 4 };

/* Parameters that have a gradient, with their gradients and state. Lists have `n` entries. */
typedef struct th__batch {
    size_t n;
    th_tensor **params, **grads;
    th_tensor **whole; /* the parameters themselves where `params` has real views of complex ones */
    th_tensor **state[TH__STATES_MAX];
    double *steps; /* the step counters after this step; NULL when the class keeps none */
    size_t n_state;
    bool sparse;  /* a gradient is sparse */
    bool as_real; /* a parameter is complex and the class works on real views */
} th__batch;

static inline th_tensors th__params_of(const th__batch *b) { return (th_tensors){b->params, b->n}; }
static inline th_tensors th__grads_of(const th__batch *b) { return (th_tensors){b->grads, b->n}; }
static inline th_tensors th__state_of(const th__batch *b, size_t k) { return (th_tensors){b->state[k], b->n}; }

typedef struct th__gather {
    unsigned states;        /* bit k: state k is needed and made where it is missing, as zeros */
    bool has_step;          /* state 0 is the step counter */
    bool fused;             /* counters live beside the parameters */
    bool complex_as_real;   /* complex parameters are worked on as real ones */
    const char *dense_only; /* the error for sparse gradients; NULL: they are accepted */
    double initial;         /* what new state (except the counter) is filled with */
} th__gather;

/* Collects a group. Everything is [scoped]. */
th_status th__batch_gather(th_optimizer *self, size_t group, const th__gather *what, th__batch *batch);
/* Adds one to every step counter and fills batch->steps. */
void th__batch_advance(th__batch *batch);
/* Makes the missing state of one parameter. */
th_status th__state_init(th_optimizer *self, th__param *param, const th__gather *what);

/* How gradients are changed before anything else. */
typedef struct th__decay {
    bool maximize;
    double weight_decay;
} th__decay;
typedef void (*th__update)(const th__batch *batch, const th__group *group);
/* Runs `update` once for all (foreach) or for one parameter at a time in a scope of its own. The gradients that it sees have
 * their sign and weight decay, and complex tensors are real views: the loop takes the views last, foreach first, as in PyTorch.
 */
th_status th__batch_run(const th__batch *batch, const th__group *group, bool foreach, th__decay decay, th__update update);
/* What "not given" means: PyTorch's default, the loop on the CPU and foreach on CUDA. */
bool th__use_foreach(const th__batch *batch, double foreach, double fused);

void th__mul_number_(th_tensor *tensor, double x);
void th__each_add_(th_tensors a, th_tensors b, double alpha); /* a += alpha * b */
void th__each_add_scalar_(th_tensors a, double x);
void th__each_mul_(th_tensors a, th_tensors b);
void th__each_mul_scalar_(th_tensors a, double x);
void th__each_div_(th_tensors a, th_tensors b);
void th__each_div_scalars_(th_tensors a, const double *x); /* a[i] /= x[i] */
void th__each_sqrt_(th_tensors a);
void th__each_lerp_(th_tensors a, th_tensors b, double weight); /* a += weight * (b - a) */
void th__each_maximum_(th_tensors a, th_tensors b);
void th__each_addcmul_(th_tensors a, th_tensors b, th_tensors c, double value);         /* a += value * b * c */
void th__each_addcdiv_(th_tensors a, th_tensors b, th_tensors c, const double *values); /* a[i] += values[i] * b[i] / c[i] */
th_tensors th__each_add(th_tensors a, th_tensors b, double alpha);
th_tensors th__each_add_scalar(th_tensors a, double x);
th_tensors th__each_neg(th_tensors a);
th_tensors th__each_sqrt(th_tensors a);
th_tensors th__each_addcmul(th_tensors a, th_tensors b, th_tensors c, double value);

/* PyTorch before 2.1 moved averages by mul and add instead of lerp, which rounds differently. */
void th__each_average_(th_tensors average, th_tensors value, double beta);

/* fused.c: calls a _fused_ operator once per device and dtype. `numbers` follow the lists in schema order; grad_scale and
 * found_inf follow the numbers. Raises when this libtorch has no kernel for the device. */
th_status th__fused_run(th_optimizer *self, const char *op, const th__batch *batch, const unsigned *lists, size_t n_lists,
                        const th_arg *numbers, size_t n_numbers);
/* Entries of `lists`: which list comes next. TH__FUSED_EMPTY is an empty list. */
enum { TH__FUSED_PARAMS = 100, TH__FUSED_GRADS, TH__FUSED_EMPTY };

#endif
