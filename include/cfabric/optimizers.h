/* cfabric/optimizers.h: the built-in optimizers (torch.optim).
 *
 * Names, defaults and ranges are PyTorch's, word for word; each function's table below lists the defaults. What a later parameter
 * group does not set it inherits from these arguments. All return an [owned] optimizer, NULL with an error pending; a value out
 * of range is a ValueError that names it.
 *
 * Which implementation runs: `foreach` and `fused` are None (not given), TH_SOME_BOOL(true) or TH_SOME_BOOL(false), as in
 * PyTorch, and None chooses as PyTorch does: one parameter at a time on the CPU, _foreach_ operators on CUDA. All three compute
 * the same formula, but not always the same bits. Measured on libtorch 2.13 (CPU, x86-64, 20 steps): foreach gives the loop's
 * bits in float32 and float64 for every class, not in bfloat16; fused gives them for SGD without momentum in float32 and float64
 * and otherwise differs in the last bits (it contracts multiply and add). So fused is the fastest but is used only where it is
 * asked for, which keeps every default run bit-identical to PyTorch's default run. fused on the CPU needs libtorch 2.4 (SGD,
 * Adam, AdamW) or 2.5 (Adagrad).
 *
 * capturable and differentiable exist so that state dicts have PyTorch's keys; true is refused. */
#ifndef CFABRIC_OPTIMIZERS_H
#define CFABRIC_OPTIMIZERS_H

#include <cfabric/optim.h>

TH_BEGIN_DECLS

/** SGD: lr 1e-3, momentum 0, dampening 0, weight_decay 0, nesterov, maximize. Sparse gradients are accepted. State:
 * momentum_buffer. nesterov needs a momentum and zero dampening. */
struct th_optim_sgd_args {
    th_tensors params;
    double lr, momentum, dampening, weight_decay;
    bool nesterov, maximize;
    th_opt_bool foreach;
    bool differentiable;
    th_opt_bool fused;
};
#define TH_OPTIM_SGD_DEFAULTS .lr = 1e-3
FABRIC_API FABRIC_NODISCARD th_optimizer *th_optim_sgd_call(struct th_optim_sgd_args args);
#define th_optim_sgd(...) th_optim_sgd_call((struct th_optim_sgd_args){TH_OPTIM_SGD_DEFAULTS, .params = __VA_ARGS__})

/** Adam: lr 1e-3, betas 0.9 and 0.999, eps 1e-8, weight_decay 0 (added to the gradient, or to the parameter with
 * decoupled_weight_decay), amsgrad, maximize. Sparse gradients are refused. State: step, exp_avg, exp_avg_sq, max_exp_avg_sq. */
struct th_optim_adam_args {
    th_tensors params;
    double lr;
    double betas[2];
    double eps, weight_decay;
    bool amsgrad;
    th_opt_bool foreach;
    bool maximize, capturable, differentiable;
    th_opt_bool fused;
    bool decoupled_weight_decay;
};
#define TH_OPTIM_ADAM_DEFAULTS .lr = 1e-3, .betas = {0.9, 0.999}, .eps = 1e-8
FABRIC_API FABRIC_NODISCARD th_optimizer *th_optim_adam_call(struct th_optim_adam_args args);
#define th_optim_adam(...) th_optim_adam_call((struct th_optim_adam_args){TH_OPTIM_ADAM_DEFAULTS, .params = __VA_ARGS__})

/** AdamW: as Adam with decoupled_weight_decay always on and weight_decay 1e-2. */
struct th_optim_adamw_args {
    th_tensors params;
    double lr;
    double betas[2];
    double eps, weight_decay;
    bool amsgrad, maximize;
    th_opt_bool foreach;
    bool capturable, differentiable;
    th_opt_bool fused;
};
#define TH_OPTIM_ADAMW_DEFAULTS .lr = 1e-3, .betas = {0.9, 0.999}, .eps = 1e-8, .weight_decay = 1e-2
FABRIC_API FABRIC_NODISCARD th_optimizer *th_optim_adamw_call(struct th_optim_adamw_args args);
#define th_optim_adamw(...) th_optim_adamw_call((struct th_optim_adamw_args){TH_OPTIM_ADAMW_DEFAULTS, .params = __VA_ARGS__})

/** Adadelta: lr 1.0, rho 0.9, eps 1e-6, weight_decay 0, maximize. Sparse gradients are refused. State: step, square_avg,
 * acc_delta. */
struct th_optim_adadelta_args {
    th_tensors params;
    double lr, rho, eps, weight_decay;
    th_opt_bool foreach;
    bool capturable, maximize, differentiable;
};
#define TH_OPTIM_ADADELTA_DEFAULTS .lr = 1.0, .rho = 0.9, .eps = 1e-6
FABRIC_API FABRIC_NODISCARD th_optimizer *th_optim_adadelta_call(struct th_optim_adadelta_args args);
#define th_optim_adadelta(...)                                                                                                   \
    th_optim_adadelta_call((struct th_optim_adadelta_args){TH_OPTIM_ADADELTA_DEFAULTS, .params = __VA_ARGS__})

/** Adagrad: lr 1e-2, lr_decay 0, weight_decay 0 (not with sparse gradients), initial_accumulator_value 0, eps 1e-10, maximize.
 * Sparse gradients are accepted. State (from the start): step, sum. */
struct th_optim_adagrad_args {
    th_tensors params;
    double lr, lr_decay, weight_decay, initial_accumulator_value, eps;
    th_opt_bool foreach;
    bool maximize, differentiable;
    th_opt_bool fused;
};
#define TH_OPTIM_ADAGRAD_DEFAULTS .lr = 1e-2, .eps = 1e-10
FABRIC_API FABRIC_NODISCARD th_optimizer *th_optim_adagrad_call(struct th_optim_adagrad_args args);
#define th_optim_adagrad(...)                                                                                                    \
    th_optim_adagrad_call((struct th_optim_adagrad_args){TH_OPTIM_ADAGRAD_DEFAULTS, .params = __VA_ARGS__})

/** RMSprop: lr 1e-2, alpha 0.99, eps 1e-8, weight_decay 0, momentum 0, centered, maximize. Sparse gradients are refused. State:
 * step, square_avg, momentum_buffer, grad_avg. */
struct th_optim_rmsprop_args {
    th_tensors params;
    double lr, alpha, eps, weight_decay, momentum;
    bool centered, capturable;
    th_opt_bool foreach;
    bool maximize, differentiable;
};
#define TH_OPTIM_RMSPROP_DEFAULTS .lr = 1e-2, .alpha = 0.99, .eps = 1e-8
FABRIC_API FABRIC_NODISCARD th_optimizer *th_optim_rmsprop_call(struct th_optim_rmsprop_args args);
#define th_optim_rmsprop(...)                                                                                                    \
    th_optim_rmsprop_call((struct th_optim_rmsprop_args){TH_OPTIM_RMSPROP_DEFAULTS, .params = __VA_ARGS__})

/** LBFGS: lr 1, max_iter 20, max_eval max_iter * 5 / 4, tolerance_grad 1e-7, tolerance_change 1e-9, history_size 100,
 * line_search_fn NULL (fixed step) or "strong_wolfe". One parameter group only; steps need a closure (th_optimizer_step_closure).
 * Sparse gradients are made dense. State, on the first parameter: func_evals, n_iter, al, d, t, old_dirs, old_stps, ro, H_diag,
 * prev_flat_grad, prev_loss. */
struct th_optim_lbfgs_args {
    th_tensors params;
    double lr;
    int64_t max_iter;
    th_opt_int max_eval;
    double tolerance_grad, tolerance_change;
    int64_t history_size;
    const char *line_search_fn;
};
#define TH_OPTIM_LBFGS_DEFAULTS .lr = 1.0, .max_iter = 20, .tolerance_grad = 1e-7, .tolerance_change = 1e-9, .history_size = 100
FABRIC_API FABRIC_NODISCARD th_optimizer *th_optim_lbfgs_call(struct th_optim_lbfgs_args args);
#define th_optim_lbfgs(...) th_optim_lbfgs_call((struct th_optim_lbfgs_args){TH_OPTIM_LBFGS_DEFAULTS, .params = __VA_ARGS__})

TH_END_DECLS
#endif
