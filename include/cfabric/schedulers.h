/* cfabric/schedulers.h: learning rate schedulers (torch.optim.lr_scheduler).
 *
 * torch.optim.lr_scheduler.StepLR is th_lr_scheduler_step_lr, and so on. The rates are PyTorch's to the last bit: the same
 * recursive
 * ("chainable") forms in double arithmetic. A scheduler is [owned] (th_scheduler_free) and keeps its optimizer alive; making one
 * sets the optimizer's first rate, as in PyTorch. `last_epoch` -1 starts a schedule; another value resumes one and needs
 * "initial_lr" in the optimizer's groups (an optimizer state dict saved under a scheduler has it), else it is a KeyError. All
 * makers return NULL with an error pending. One thread at a time may use a scheduler and its optimizer. */
#ifndef CFABRIC_SCHEDULERS_H
#define CFABRIC_SCHEDULERS_H

#include <cfabric/optim.h>

TH_BEGIN_DECLS

/* ---- every scheduler */

/** scheduler.step(). Call it after th_optimizer_step; the other order is warned about once. */
FABRIC_API th_status th_scheduler_step(th_scheduler *scheduler);
/** scheduler.step(metrics), for ReduceLROnPlateau only. */
FABRIC_API th_status th_scheduler_step_metric(th_scheduler *scheduler, double metric);
/** scheduler.step(epoch): jumps to an epoch (closed form where there is one). CosineAnnealingWarmRestarts also takes fractions.
 */
FABRIC_API th_status th_scheduler_step_epoch(th_scheduler *scheduler, double epoch);
/** scheduler.get_last_lr(): one rate per group. [borrowed] until the next step. */
FABRIC_API th_doubles th_scheduler_get_last_lr(th_scheduler *scheduler);
/** get_last_lr()[0]; NaN with an error pending. */
FABRIC_API double th_scheduler_last_lr(th_scheduler *scheduler);
FABRIC_API int64_t th_scheduler_last_epoch(th_scheduler *scheduler);
/** "StepLR". [borrowed] */
FABRIC_API const char *th_scheduler_class(th_scheduler *scheduler);
/** The optimizer that it drives. [borrowed] */
FABRIC_API th_optimizer *th_scheduler_optimizer(th_scheduler *scheduler);
/** PyTorch's keys. Callbacks are not part of it. [owned] */
FABRIC_API th_value *th_scheduler_state_dict(th_scheduler *scheduler);
/** Takes such a dict, also one that PyTorch wrote. The optimizer's rate is in the optimizer's own state. */
FABRIC_API th_status th_scheduler_load_state_dict(th_scheduler *scheduler, th_value *state);
FABRIC_API th_scheduler *th_scheduler_retain(th_scheduler *scheduler);
/** NULL is allowed. */
FABRIC_API void th_scheduler_free(th_scheduler *scheduler);

/* ---- the schedulers */

/** A factor for an epoch (LambdaLR, MultiplicativeLR). */
typedef double (*th_lr_lambda)(int64_t epoch, void *user);

struct th_lr_scheduler_lambda_lr_args {
    th_optimizer *optimizer;
    th_lr_lambda lr_lambda; /**< for every group... */
    void *user;
    const th_lr_lambda *lr_lambdas; /**< ...or one per group (then n_lambdas must be the number of groups) */
    size_t n_lambdas;
    int64_t last_epoch;
};
/** LambdaLR: initial_lr * lr_lambda(epoch). */
FABRIC_API FABRIC_NODISCARD th_scheduler *th_lr_scheduler_lambda_lr_call(struct th_lr_scheduler_lambda_lr_args args);
#define th_lr_scheduler_lambda_lr(...)                                                                                           \
    th_lr_scheduler_lambda_lr_call((struct th_lr_scheduler_lambda_lr_args){.last_epoch = -1, .optimizer = __VA_ARGS__})
/** MultiplicativeLR: lr *= lr_lambda(epoch). */
FABRIC_API FABRIC_NODISCARD th_scheduler *th_lr_scheduler_multiplicative_lr_call(struct th_lr_scheduler_lambda_lr_args args);
#define th_lr_scheduler_multiplicative_lr(...)                                                                                   \
    th_lr_scheduler_multiplicative_lr_call((struct th_lr_scheduler_lambda_lr_args){.last_epoch = -1, .optimizer = __VA_ARGS__})

struct th_lr_scheduler_step_lr_args {
    th_optimizer *optimizer;
    int64_t step_size;
    double gamma;
    int64_t last_epoch;
};
/** StepLR: lr *= gamma (0.1) every step_size epochs. */
FABRIC_API FABRIC_NODISCARD th_scheduler *th_lr_scheduler_step_lr_call(struct th_lr_scheduler_step_lr_args args);
#define th_lr_scheduler_step_lr(...)                                                                                             \
    th_lr_scheduler_step_lr_call((struct th_lr_scheduler_step_lr_args){.gamma = 0.1, .last_epoch = -1, .optimizer = __VA_ARGS__})

struct th_lr_scheduler_multi_step_lr_args {
    th_optimizer *optimizer;
    th_ints milestones;
    double gamma;
    int64_t last_epoch;
};
/** MultiStepLR: lr *= gamma (0.1) at each milestone; one given twice counts twice. */
FABRIC_API FABRIC_NODISCARD th_scheduler *th_lr_scheduler_multi_step_lr_call(struct th_lr_scheduler_multi_step_lr_args args);
#define th_lr_scheduler_multi_step_lr(...)                                                                                       \
    th_lr_scheduler_multi_step_lr_call(                                                                                          \
        (struct th_lr_scheduler_multi_step_lr_args){.gamma = 0.1, .last_epoch = -1, .optimizer = __VA_ARGS__})

struct th_lr_scheduler_constant_lr_args {
    th_optimizer *optimizer;
    double factor;
    int64_t total_iters, last_epoch;
};
/** ConstantLR: lr * factor (1/3) until total_iters (5). */
FABRIC_API FABRIC_NODISCARD th_scheduler *th_lr_scheduler_constant_lr_call(struct th_lr_scheduler_constant_lr_args args);
#define th_lr_scheduler_constant_lr(...)                                                                                         \
    th_lr_scheduler_constant_lr_call((struct th_lr_scheduler_constant_lr_args){                                                  \
        .factor = 1.0 / 3, .total_iters = 5, .last_epoch = -1, .optimizer = __VA_ARGS__})

struct th_lr_scheduler_linear_lr_args {
    th_optimizer *optimizer;
    double start_factor, end_factor;
    int64_t total_iters, last_epoch;
};
/** LinearLR: from lr * start_factor (1/3) to lr * end_factor (1.0) over total_iters (5). */
FABRIC_API FABRIC_NODISCARD th_scheduler *th_lr_scheduler_linear_lr_call(struct th_lr_scheduler_linear_lr_args args);
#define th_lr_scheduler_linear_lr(...)                                                                                           \
    th_lr_scheduler_linear_lr_call((struct th_lr_scheduler_linear_lr_args){                                                      \
        .start_factor = 1.0 / 3, .end_factor = 1.0, .total_iters = 5, .last_epoch = -1, .optimizer = __VA_ARGS__})

struct th_lr_scheduler_exponential_lr_args {
    th_optimizer *optimizer;
    double gamma;
    int64_t last_epoch;
};
/** ExponentialLR: lr *= gamma every epoch. */
FABRIC_API FABRIC_NODISCARD th_scheduler *th_lr_scheduler_exponential_lr_call(struct th_lr_scheduler_exponential_lr_args args);
#define th_lr_scheduler_exponential_lr(...)                                                                                      \
    th_lr_scheduler_exponential_lr_call((struct th_lr_scheduler_exponential_lr_args){.last_epoch = -1, .optimizer = __VA_ARGS__})

struct th_lr_scheduler_polynomial_lr_args {
    th_optimizer *optimizer;
    int64_t total_iters;
    double power;
    int64_t last_epoch;
};
/** PolynomialLR: falls to 0 over total_iters (5) as (1 - epoch / total_iters) ** power (1.0). */
FABRIC_API FABRIC_NODISCARD th_scheduler *th_lr_scheduler_polynomial_lr_call(struct th_lr_scheduler_polynomial_lr_args args);
#define th_lr_scheduler_polynomial_lr(...)                                                                                       \
    th_lr_scheduler_polynomial_lr_call(                                                                                          \
        (struct th_lr_scheduler_polynomial_lr_args){.total_iters = 5, .power = 1.0, .last_epoch = -1, .optimizer = __VA_ARGS__})

struct th_lr_scheduler_cosine_annealing_lr_args {
    th_optimizer *optimizer;
    int64_t T_max;
    double eta_min;
    int64_t last_epoch;
};
/** CosineAnnealingLR: half a cosine from lr to eta_min (0) over T_max epochs. */
FABRIC_API FABRIC_NODISCARD th_scheduler *
th_lr_scheduler_cosine_annealing_lr_call(struct th_lr_scheduler_cosine_annealing_lr_args args);
#define th_lr_scheduler_cosine_annealing_lr(...)                                                                                 \
    th_lr_scheduler_cosine_annealing_lr_call(                                                                                    \
        (struct th_lr_scheduler_cosine_annealing_lr_args){.last_epoch = -1, .optimizer = __VA_ARGS__})

struct th_lr_scheduler_cosine_annealing_warm_restarts_args {
    th_optimizer *optimizer;
    int64_t T_0, T_mult;
    double eta_min;
    int64_t last_epoch;
};
/** CosineAnnealingWarmRestarts: cosines of T_0 epochs, each T_mult (1) times longer than the last. */
FABRIC_API FABRIC_NODISCARD th_scheduler *
th_lr_scheduler_cosine_annealing_warm_restarts_call(struct th_lr_scheduler_cosine_annealing_warm_restarts_args args);
#define th_lr_scheduler_cosine_annealing_warm_restarts(...)                                                                      \
    th_lr_scheduler_cosine_annealing_warm_restarts_call(                                                                         \
        (struct th_lr_scheduler_cosine_annealing_warm_restarts_args){.T_mult = 1, .last_epoch = -1, .optimizer = __VA_ARGS__})

struct th_lr_scheduler_one_cycle_lr_args {
    th_optimizer *optimizer;
    double max_lr;       /**< for every group... */
    int64_t total_steps; /**< or epochs and steps_per_epoch */
    int64_t epochs, steps_per_epoch;
    double pct_start;                    /**< 0.3 */
    const char *anneal_strategy;         /**< "cos" or "linear" */
    bool cycle_momentum;                 /**< true: moves momentum or betas[0] against the rate */
    double base_momentum, max_momentum;  /**< 0.85, 0.95 */
    double div_factor, final_div_factor; /**< 25, 1e4 */
    bool three_phase;
    int64_t last_epoch;
    th_doubles max_lrs, base_momentums, max_momentums; /**< ...or one per group */
};
/** OneCycleLR. Stepping more than total_steps times is a ValueError. */
FABRIC_API FABRIC_NODISCARD th_scheduler *th_lr_scheduler_one_cycle_lr_call(struct th_lr_scheduler_one_cycle_lr_args args);
#define th_lr_scheduler_one_cycle_lr(...)                                                                                        \
    th_lr_scheduler_one_cycle_lr_call((struct th_lr_scheduler_one_cycle_lr_args){.pct_start = 0.3,                               \
                                                                                 .anneal_strategy = "cos",                       \
                                                                                 .cycle_momentum = true,                         \
                                                                                 .base_momentum = 0.85,                          \
                                                                                 .max_momentum = 0.95,                           \
                                                                                 .div_factor = 25.0,                             \
                                                                                 .final_div_factor = 1e4,                        \
                                                                                 .last_epoch = -1,                               \
                                                                                 .optimizer = __VA_ARGS__})

struct th_lr_scheduler_cyclic_lr_args {
    th_optimizer *optimizer;
    double base_lr, max_lr;                   /**< for every group... */
    int64_t step_size_up;                     /**< 2000 */
    th_opt_int step_size_down;                /**< None: step_size_up */
    const char *mode;                         /**< "triangular", "triangular2", "exp_range" */
    double gamma;                             /**< 1.0, for exp_range */
    double (*scale_fn)(double x, void *user); /**< replaces mode when given */
    void *user;
    const char *scale_mode;             /**< "cycle" or "iterations": what scale_fn gets */
    bool cycle_momentum;                /**< true */
    double base_momentum, max_momentum; /**< 0.8, 0.9 */
    int64_t last_epoch;
    th_doubles base_lrs, max_lrs, base_momentums, max_momentums; /**< ...or one per group */
};
/** CyclicLR. */
FABRIC_API FABRIC_NODISCARD th_scheduler *th_lr_scheduler_cyclic_lr_call(struct th_lr_scheduler_cyclic_lr_args args);
#define th_lr_scheduler_cyclic_lr(...)                                                                                           \
    th_lr_scheduler_cyclic_lr_call((struct th_lr_scheduler_cyclic_lr_args){.step_size_up = 2000,                                 \
                                                                           .mode = "triangular",                                 \
                                                                           .gamma = 1.0,                                         \
                                                                           .scale_mode = "cycle",                                \
                                                                           .cycle_momentum = true,                               \
                                                                           .base_momentum = 0.8,                                 \
                                                                           .max_momentum = 0.9,                                  \
                                                                           .last_epoch = -1,                                     \
                                                                           .optimizer = __VA_ARGS__})

struct th_lr_scheduler_reduce_lr_on_plateau_args {
    th_optimizer *optimizer;
    const char *mode;           /**< "min" or "max" */
    double factor;              /**< 0.1; less than 1 */
    int64_t patience;           /**< 10 */
    double threshold;           /**< 1e-4 */
    const char *threshold_mode; /**< "rel" or "abs" */
    int64_t cooldown;
    double min_lr;
    double eps;         /**< 1e-8 */
    th_doubles min_lrs; /**< one per group instead of min_lr */
};
/** ReduceLROnPlateau: step it with th_scheduler_step_metric. */
FABRIC_API FABRIC_NODISCARD th_scheduler *
th_lr_scheduler_reduce_lr_on_plateau_call(struct th_lr_scheduler_reduce_lr_on_plateau_args args);
#define th_lr_scheduler_reduce_lr_on_plateau(...)                                                                                \
    th_lr_scheduler_reduce_lr_on_plateau_call((struct th_lr_scheduler_reduce_lr_on_plateau_args){.mode = "min",                  \
                                                                                                 .factor = 0.1,                  \
                                                                                                 .patience = 10,                 \
                                                                                                 .threshold = 1e-4,              \
                                                                                                 .threshold_mode = "rel",        \
                                                                                                 .eps = 1e-8,                    \
                                                                                                 .optimizer = __VA_ARGS__})

/** Schedulers that are handed over to a composed one, also when that fails. NULL elements only propagate a pending error. */
typedef struct th_schedulers {
    th_scheduler *const *data;
    size_t size;
} th_schedulers;
#ifndef __cplusplus
#define TH_SCHEDULERS(...)                                                                                                       \
    ((th_schedulers){(th_scheduler *const[]){__VA_ARGS__}, sizeof((th_scheduler *const[]){__VA_ARGS__}) / sizeof(th_scheduler *)})
#endif

struct th_lr_scheduler_sequential_lr_args {
    th_optimizer *optimizer;
    th_schedulers schedulers;
    th_ints milestones; /**< one less than schedulers: where the next one takes over */
    int64_t last_epoch;
};
/** SequentialLR. */
FABRIC_API FABRIC_NODISCARD th_scheduler *th_lr_scheduler_sequential_lr_call(struct th_lr_scheduler_sequential_lr_args args);
#define th_lr_scheduler_sequential_lr(...)                                                                                       \
    th_lr_scheduler_sequential_lr_call((struct th_lr_scheduler_sequential_lr_args){.last_epoch = -1, .optimizer = __VA_ARGS__})

struct th_lr_scheduler_chained_scheduler_args {
    th_schedulers schedulers;
    th_optimizer *optimizer; /**< NULL: the first scheduler's */
};
/** ChainedScheduler: all of them step every time. */
FABRIC_API FABRIC_NODISCARD th_scheduler *
th_lr_scheduler_chained_scheduler_call(struct th_lr_scheduler_chained_scheduler_args args);
#define th_lr_scheduler_chained_scheduler(...)                                                                                   \
    th_lr_scheduler_chained_scheduler_call((struct th_lr_scheduler_chained_scheduler_args){.schedulers = __VA_ARGS__})

TH_END_DECLS
#endif
