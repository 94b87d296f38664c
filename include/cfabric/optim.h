/* cfabric/optim.h: optimizers. The base is here; the built-in ones are in <cfabric/optimizers.h>, schedulers in
 * <cfabric/schedulers.h>.
 *
 * An optimizer is [owned] by its maker: th_optimizer_free. It retains its parameters. One thread at a time may use an optimizer.
 */
#ifndef CFABRIC_OPTIM_H
#define CFABRIC_OPTIM_H

#include <cfabric/scope.h>
#include <cfabric/value.h>

TH_BEGIN_DECLS

/** A closure re-evaluates the model and returns the loss. [scoped] It runs with grad mode on. */
typedef th_tensor *(*th_closure)(void *user);

struct th_optimizer_zero_grad_args {
    th_optimizer *optimizer;
    bool set_to_none; /**< true (the default): drop the gradients; false: fill them with zeros */
};
/** optimizer.zero_grad(set_to_none=True). */
FABRIC_API th_status th_optimizer_zero_grad_call(struct th_optimizer_zero_grad_args args);
#define th_optimizer_zero_grad(...)                                                                                              \
    th_optimizer_zero_grad_call((struct th_optimizer_zero_grad_args){.set_to_none = true, .optimizer = __VA_ARGS__})

/** optimizer.step(). Under Fabric it goes through the strategy and the precision. */
FABRIC_API th_status th_optimizer_step(th_optimizer *optimizer);
/** optimizer.step(closure): returns the closure's loss. [scoped] */
FABRIC_API th_tensor *th_optimizer_step_closure(th_optimizer *optimizer, th_closure closure, void *user);

/* ---- parameter groups and hyperparameters */

/** One hyperparameter by PyTorch's name. Booleans are 0 and 1, None is -1 (foreach, fused), pairs have two entries: "betas.0" and
 * "betas.1". */
typedef struct th_option {
    const char *name;
    double value;
} th_option;
typedef struct th_options {
    const th_option *data;
    size_t size;
} th_options;
#ifndef __cplusplus
/** TH_OPTIONS({"lr", 0.1}, {"weight_decay", 0.01}) */
#define TH_OPTIONS(...)                                                                                                          \
    ((th_options){(const th_option[]){__VA_ARGS__}, sizeof((const th_option[]){__VA_ARGS__}) / sizeof(th_option)})
#endif

struct th_optimizer_add_param_group_args {
    th_optimizer *optimizer;
    th_tensors params;  /**< leaves that are in no other group; retained */
    th_options options; /**< what is not given is inherited from the optimizer's own arguments (its defaults) */
};
/** optimizer.add_param_group: th_optimizer_add_param_group(opt, params, TH_OPTIONS({"lr", 0.01})). An unknown name is a KeyError,
 * a value outside the optimizer's range or a parameter that another group has is a ValueError; then nothing is added. */
FABRIC_API th_status th_optimizer_add_param_group_call(struct th_optimizer_add_param_group_args args);
#define th_optimizer_add_param_group(...)                                                                                        \
    th_optimizer_add_param_group_call((struct th_optimizer_add_param_group_args){.optimizer = __VA_ARGS__})

FABRIC_API size_t th_optimizer_n_groups(th_optimizer *optimizer);
/** Parameters of one group. [scoped] list, tensors [borrowed] from the optimizer */
FABRIC_API th_tensors th_optimizer_params(th_optimizer *optimizer, size_t group);
/** A hyperparameter by PyTorch's name ("lr", "momentum", "betas.0"; also what schedulers add, "initial_lr"). Booleans read as 0
 * and 1, None as -1. Missing is a KeyError, NaN returned. */
FABRIC_API double th_optimizer_get(th_optimizer *optimizer, size_t group, const char *name);
/** Sets one. As in Python, ranges are not checked here; a name the group does not have is a KeyError. */
FABRIC_API th_status th_optimizer_set(th_optimizer *optimizer, size_t group, const char *name, double value);
/** True when the group has this hyperparameter. No error. */
FABRIC_API bool th_optimizer_has(th_optimizer *optimizer, size_t group, const char *name);
/** The rate of group 0. */
FABRIC_API double th_optimizer_lr(th_optimizer *optimizer);
/** The class name, "SGD". [borrowed] */
FABRIC_API const char *th_optimizer_class(th_optimizer *optimizer);

/* ---- state */

/** optimizer.state[param][name] of the i-th parameter of a group: "momentum_buffer", "exp_avg", "step"... NULL if there is none
 * (no error). [borrowed] from the optimizer */
FABRIC_API th_tensor *th_optimizer_state(th_optimizer *optimizer, size_t group, size_t i, const char *name);
/** Sets one (retained; NULL removes it). A name that the class does not declare is a KeyError. */
FABRIC_API th_status th_optimizer_set_state(th_optimizer *optimizer, size_t group, size_t i, const char *name, th_tensor *tensor);

/** PyTorch's form: {"state": {0: {...}}, "param_groups": [{..., "params": [0, 1]}]}. Tensors are shared. [owned] */
FABRIC_API th_value *th_optimizer_state_dict(th_optimizer *optimizer);
/** Takes such a dict, also one that PyTorch wrote. Tensors are copied (and cast to the parameters' dtype and device, "step"
 * excepted). A wrong number of groups or parameters and wrongly shaped state are ValueErrors that name both sides; then nothing
 * has changed. Parameters without saved state start afresh. */
FABRIC_API th_status th_optimizer_load_state_dict(th_optimizer *optimizer, th_value *state);

/* ---- optimizers of your own */

typedef enum th_option_kind {
    TH_OPTION_DOUBLE = 0,
    TH_OPTION_INT, /**< kept as a double, an int in the state dict */
    TH_OPTION_BOOL,
    TH_OPTION_MAYBE, /**< None, False or True: -1, 0, 1 */
    TH_OPTION_PAIR,  /**< two doubles, a tuple in the state dict */
    TH_OPTION_TEXT   /**< a text or None */
} th_option_kind;

/** A hyperparameter that a class has, with its default. */
typedef struct th_option_spec {
    const char *name;
    th_option_kind kind;
    double value;     /**< the default; of a pair the first */
    double second;    /**< the second of a pair */
    const char *text; /**< TH_OPTION_TEXT; must be static; NULL is None */
} th_option_spec;

/** What an optimizer class is. Everything in it must stay valid as long as optimizers of that class live (static). */
typedef struct th_optimizer_ops {
    size_t size;                   /**< sizeof(th_optimizer_ops) */
    const char *name;              /**< the class name */
    const th_option_spec *options; /**< in the order of the state dict; the first should be "lr" */
    size_t n_options;
    const char *const *state_names; /**< tensors kept per parameter, in the order of the state dict; may be NULL */
    size_t n_state;
    /** Updates the parameters of one group that have gradients. Runs with grad mode off inside a scope. */
    th_status (*step)(th_optimizer *self, size_t group);
    /** Instead of `step`, for classes that evaluate the closure themselves. Grad mode is off; th_closure_call turns it on.
     * [scoped] */
    th_tensor *(*step_closure)(th_optimizer *self, th_closure closure, void *user);
    /** Checks the hyperparameters of a new group and raises TH_ERR_VALUE. May be NULL. */
    th_status (*check)(th_optimizer *self, size_t group);
    /** Adds to / takes from the state of the i-th parameter of a group what is not in state_names. `validate_only` checks without
     * changing anything. Both may be NULL. */
    th_status (*save_state)(th_optimizer *self, size_t group, size_t i, th_value *state);
    th_status (*load_state)(th_optimizer *self, size_t group, size_t i, th_value *state, bool validate_only);
    /** Frees `data`. May be NULL. */
    void (*free_data)(void *data);
} th_optimizer_ops;

struct th_optimizer_new_args {
    const th_optimizer_ops *ops;
    th_tensors params;  /**< the first group; must not be empty */
    th_options options; /**< what differs from the class's defaults; inherited by later groups */
    void *data;         /**< the class's own; freed by ops->free_data, also when this call fails */
};
/** An optimizer of a user-defined class. [owned] */
FABRIC_API FABRIC_NODISCARD th_optimizer *th_optimizer_new_call(struct th_optimizer_new_args args);
#define th_optimizer_new(...) th_optimizer_new_call((struct th_optimizer_new_args){.ops = __VA_ARGS__})
/** The pointer given as .data. [borrowed] */
FABRIC_API void *th_optimizer_data(th_optimizer *optimizer);
/** Calls a closure with grad mode on, as optimizers must. [scoped] */
FABRIC_API th_tensor *th_closure_call(th_closure closure, void *user);

FABRIC_API th_optimizer *th_optimizer_retain(th_optimizer *optimizer);
/** NULL is allowed. */
FABRIC_API void th_optimizer_free(th_optimizer *optimizer);

TH_END_DECLS
#endif
