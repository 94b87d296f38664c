/* cfabric/nn.h: modules. The base is here; the built-in ones (th_nn_linear, ...) are in <cfabric/nn_modules.h>. */
#ifndef CFABRIC_NN_H
#define CFABRIC_NN_H

#include <cfabric/scope.h>
#include <cfabric/value.h>

TH_BEGIN_DECLS

/* ---- making modules. Modules are [owned]; registering a child hands it to its parent. */

struct th_module_args {
    const char *name;                                            /**< class name, for printing and errors */
    void *data;                                                  /**< the module's own struct */
    th_tensor *(*forward)(th_module *self, th_tensor *input);    /**< one input, one output [scoped]... */
    th_tensors (*forward_n)(th_module *self, th_tensors inputs); /**< ...or several. Exactly one of the two. */
    void (*free_data)(void *data);                               /**< may be NULL; free() is usual */
    th_status (*reset_parameters)(th_module *self);              /**< re-initialises own parameters; may be NULL */
    const char *extra_repr;                                      /**< copied; shown when printed; may be NULL */
    th_module *(*clone)(th_module *self); /**< a deep copy [owned]; may be NULL. Only th_module_clone uses it */
};
/** A user-defined module. [owned] If it fails, `data` stays the caller's. */
FABRIC_API FABRIC_NODISCARD th_module *th_module_new_call(struct th_module_args args);
#define th_module_new(...) th_module_new_call((struct th_module_args){.name = __VA_ARGS__})
/** The pointer given as .data. [borrowed] */
FABRIC_API void *th_module_data(th_module *module);
/** copy.deepcopy(module) [owned]: the transformer layers of this library and modules that have a `clone`; others are an error. */
FABRIC_API FABRIC_NODISCARD th_module *th_module_clone(th_module *module);
/** One more owner. Returns `module`. */
FABRIC_API th_module *th_module_retain(th_module *module);
/** One owner less; the last one frees it with its children. NULL is allowed. */
FABRIC_API void th_module_free(th_module *module);

/** Adds a child under a name; the parent takes over the caller's ownership. A NULL child only propagates a pending error.
 * Returns the child. [borrowed] from the parent. Names must be unique in the parent and contain no dot. */
FABRIC_API th_module *th_register_module(th_module *parent, const char *name, th_module *child);
/** Adds a parameter (retained); sets requires_grad for floating tensors. NULL registers an absent parameter (bias=False).
 * Returns the module's handle. [borrowed] from the module */
FABRIC_API th_tensor *th_register_parameter(th_module *module, const char *name, th_tensor *tensor);
/** Adds a buffer (retained); non-persistent ones are not in the state dict. [borrowed] from the module */
FABRIC_API th_tensor *th_register_buffer(th_module *module, const char *name, th_tensor *tensor, bool persistent);

/** By dotted path ("layers.0.weight"). A missing name is a KeyError. [borrowed] */
FABRIC_API th_module *th_module_get(th_module *module, const char *path);
FABRIC_API th_tensor *th_module_parameter(th_module *module, const char *path);
FABRIC_API th_tensor *th_module_buffer(th_module *module, const char *path);
/** Replaces a buffer or parameter by dotted path (retained). */
FABRIC_API th_status th_module_set_tensor(th_module *module, const char *path, th_tensor *tensor);

/* ---- running */

/** module(inputs...): runs the module and its hooks. Opens a scope; only the result leaves it. [scoped] The first output. A NULL
 * input is an absent one (an optional mask). A forward_n returns a list made by th_list(TH_TENSORS(a, b)). */
FABRIC_API th_tensor *th_forward_call(th_module *module, th_tensors inputs);
/** The same with all outputs. [scoped] */
FABRIC_API th_tensors th_forward_n(th_module *module, th_tensors inputs);
#ifndef __cplusplus
#define th_forward(module, ...) th_forward_call((module), TH_TENSORS(__VA_ARGS__))
#endif

/* ---- state of the whole tree */
FABRIC_API void th_train(th_module *module, bool mode);
FABRIC_API void th_eval(th_module *module);
FABRIC_API bool th_is_training(th_module *module);
/** Module.to(): floating parameters and buffers to `dtype` (TH_DTYPE_NONE: unchanged), all to `device` (none: unchanged). The
 * tensor objects stay the same, so optimizers keep working. */
FABRIC_API th_status th_module_to(th_module *module, th_device device, th_dtype dtype);
/** Module.to_empty(): new memory without values on `device`. Tensors that leave the meta device become new objects: ask the
 * module for them again. Shared ones stay shared. */
FABRIC_API th_status th_module_to_empty(th_module *module, th_device device);
/** Runs the module's own reset_parameters, if it has one; not its children's (use th_module_apply). */
FABRIC_API th_status th_module_reset_parameters(th_module *module);
/** Gradients of all parameters to none. */
FABRIC_API void th_module_zero_grad(th_module *module);
FABRIC_API void th_module_requires_grad_(th_module *module, bool requires_grad);

/** Distinct parameters in registration order (shared ones once). [scoped] list, tensors [borrowed] from the module. */
FABRIC_API th_tensors th_parameters(th_module *module);
FABRIC_API th_tensors th_buffers(th_module *module);
FABRIC_API size_t th_module_n_children(th_module *module);
FABRIC_API th_module *th_module_child_at(th_module *module, size_t i, const char **name);
FABRIC_API const char *th_module_class(th_module *module);

/** Visits name and tensor of every parameter / buffer (depth first, own ones before children's; shared ones once) until `fn`
 * returns non-zero; that value is returned. `name` is the dotted path. */
FABRIC_API int th_named_parameters(th_module *module, int (*fn)(const char *name, th_tensor *tensor, void *user), void *user);
FABRIC_API int th_named_buffers(th_module *module, int (*fn)(const char *name, th_tensor *tensor, void *user), void *user);
/** Visits every module, itself first under "". */
FABRIC_API int th_named_modules(th_module *module, int (*fn)(const char *name, th_module *module, void *user), void *user);
/** Module.apply: children first, then itself. Stops at the first error. */
FABRIC_API th_status th_module_apply(th_module *module, th_status (*fn)(th_module *module, void *user), void *user);

/** state_dict(): dotted name to tensor (sharing memory, detached), PyTorch's key names and order. [owned] */
FABRIC_API th_value *th_module_state_dict(th_module *module);
/** load_state_dict(): copies into the existing tensors. Strict: missing, unexpected or wrongly shaped entries are one error that
 * names them. Not strict: shapes are still checked; no key in common is an error. */
FABRIC_API th_status th_module_load_state_dict(th_module *module, th_value *state, bool strict);
/** A copy of a state dict whose keys that start with `from` start with `to` instead, for states saved with another prefix or
 * other names: th_state_dict_renamed(state, "module.", ""). Tensors are shared. [owned] */
FABRIC_API th_value *th_state_dict_renamed(const th_value *state, const char *from, const char *to);
/** print(module), PyTorch's text. */
FABRIC_API void th_module_print(th_module *module);
/** The same as a string. [owned] free() it. */
FABRIC_API char *th_module_to_string(th_module *module);

/* ---- forward hooks (register_forward_pre_hook, register_forward_hook) */
typedef th_tensors (*th_forward_pre_hook)(th_module *module, th_tensors inputs, void *user); /**< return inputs for no change */
typedef th_tensors (*th_forward_hook)(th_module *module, th_tensors inputs, th_tensors outputs, void *user);
FABRIC_API th_status th_register_forward_pre_hook(th_module *module, th_forward_pre_hook hook, void *user);
FABRIC_API th_status th_register_forward_hook(th_module *module, th_forward_hook hook, void *user);
/** Removes the first hook with this function and `user`. Returns whether there was one. Not from inside a hook. */
FABRIC_API bool th_remove_forward_pre_hook(th_module *module, th_forward_pre_hook hook, void *user);
FABRIC_API bool th_remove_forward_hook(th_module *module, th_forward_hook hook, void *user);

TH_END_DECLS
#endif
