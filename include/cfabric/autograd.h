/* cfabric/autograd.h: gradients, grad modes, hooks, and autograd functions written in C. */
#ifndef CFABRIC_AUTOGRAD_H
#define CFABRIC_AUTOGRAD_H

#include <cfabric/tensor.h>
#include <cfabric/scope.h>

TH_BEGIN_DECLS

FABRIC_API bool th_requires_grad(th_tensor *tensor);
/** Tensor.requires_grad_(): returns `tensor`. [borrowed] */
FABRIC_API th_tensor *th_requires_grad_(th_tensor *tensor, bool requires_grad);
FABRIC_API bool th_is_leaf_of(th_tensor *tensor);
/** Tensor.grad, NULL if there is none (no error). [scoped] a handle to the gradient itself. */
FABRIC_API th_tensor *th_grad(th_tensor *tensor);
/** Tensor.grad = grad; NULL clears it. Shape, dtype and device must match. */
FABRIC_API th_status th_set_grad(th_tensor *tensor, th_tensor *grad);
/** True when a gradient is set; cheaper than th_grad. */
FABRIC_API bool th_has_grad(th_tensor *tensor);
/** Tensor.data = value: swaps storage, sizes and dtype under the same tensor object. No version bump. */
FABRIC_API th_status th_set_data(th_tensor *tensor, th_tensor *value);
/** A view of the same storage with its own version counter and no history (Tensor.data). [scoped] */
FABRIC_API th_tensor *th_data(th_tensor *tensor);

struct th_backward_args {
    th_tensor *tensor;
    th_tensor *gradient;       /**< NULL: a scalar output's gradient is 1 */
    th_opt_bool retain_graph;  /**< None: the value of create_graph */
    bool create_graph;
    th_tensors inputs;         /**< not given: every leaf */
};
/** Tensor.backward(). Statement: returns the pending status. */
FABRIC_API th_status th_backward_call(struct th_backward_args args);
#define th_backward(...) th_backward_call((struct th_backward_args){.tensor = __VA_ARGS__})

struct th_autograd_grad_args {
    th_tensors outputs;
    th_tensors inputs;
    th_tensors grad_outputs;   /**< not given: ones for scalars */
    th_opt_bool retain_graph;
    bool create_graph;
    bool allow_unused;         /**< an unreached input gives NULL instead of an error */
};
/** torch.autograd.grad(): one gradient per input. [scoped] */
FABRIC_API th_tensors th_autograd_grad_call(struct th_autograd_grad_args args);
#define th_autograd_grad(...) th_autograd_grad_call((struct th_autograd_grad_args){.outputs = __VA_ARGS__})

/* ---- grad modes: thread-local */
FABRIC_API bool th_is_grad_enabled(void);
/** Returns the previous mode. */
FABRIC_API bool th_set_grad_enabled(bool enabled);
static inline void th__grad_guard(const int *old) { th_set_grad_enabled(*old != 0); }
/** Opens / closes an inference_mode region; they nest. */
FABRIC_API void th_inference_mode_push(void);
FABRIC_API void th_inference_mode_pop(void);
static inline void th__inference_guard(const int *unused) { (void)unused; th_inference_mode_pop(); }
#if defined(__GNUC__)
/** with torch.no_grad(): to the end of the block. */
#define TH_NO_GRAD() \
    __attribute__((cleanup(th__grad_guard), unused)) const int TH__CAT(th__grad_, __COUNTER__) = th_set_grad_enabled(false)
/** with torch.enable_grad(): to the end of the block. */
#define TH_ENABLE_GRAD() \
    __attribute__((cleanup(th__grad_guard), unused)) const int TH__CAT(th__grad_, __COUNTER__) = th_set_grad_enabled(true)
/** with torch.inference_mode(): to the end of the block. */
#define TH_INFERENCE_MODE() \
    __attribute__((cleanup(th__inference_guard), unused)) const int TH__CAT(th__inf_, __COUNTER__) = \
        (th_inference_mode_push(), 0)
#endif

/* ---- hooks. A scope is open around every callback; a pending error after it ends the backward with that error. */

/** Tensor.register_hook: sees the gradient of `tensor`; returns NULL to leave it or another tensor to replace it. */
typedef th_tensor *(*th_grad_hook)(th_tensor *grad, void *user);
/** Tensor.register_post_accumulate_grad_hook: runs after the gradient of a leaf has been accumulated. */
typedef th_status (*th_post_accumulate_hook)(th_tensor *leaf, void *user);
/** A handle to a hook. [owned] by the caller; th_hook_remove ends the hook and the handle. */
typedef struct th_hook th_hook;
FABRIC_API th_hook *th_register_hook(th_tensor *tensor, th_grad_hook hook, void *user);
FABRIC_API th_hook *th_register_post_accumulate_grad_hook(th_tensor *leaf, th_post_accumulate_hook hook, void *user);
FABRIC_API void th_hook_remove(th_hook *hook);
/** Inside a backward only: runs `callback` once when this backward has finished, before th_backward returns. */
FABRIC_API th_status th_queue_backward_callback(th_status (*callback)(void *user), void *user);

/* ---- autograd functions in C (torch.autograd.Function) */

typedef struct th_function_ctx th_function_ctx;
typedef struct th_function {
    size_t size;       /**< sizeof(th_function) */
    const char *name;  /**< shown as grad_fn's name */
    /** Runs with grad mode off. Returns the outputs. [scoped] */
    th_tensors (*forward)(th_function_ctx *ctx, th_tensors inputs, void *user);
    /** One gradient per input, NULL where none is needed. [scoped] */
    th_tensors (*backward)(th_function_ctx *ctx, th_tensors grad_outputs, void *user);
    /** Called once when the graph node (and with it `user`) is no longer needed. May be NULL. */
    void (*free_user)(void *user);
} th_function;
/** Function.apply: `function` must stay valid as long as the graph (static). NULL inputs are allowed. [scoped] */
FABRIC_API th_tensors th_function_apply(const th_function *function, th_tensors inputs, void *user);
/** ctx.save_for_backward; inputs and outputs only. Once per forward. */
FABRIC_API th_status th_save_for_backward(th_function_ctx *ctx, th_tensors tensors);
/** ctx.saved_tensors. [scoped] */
FABRIC_API th_tensors th_saved_tensors(th_function_ctx *ctx);
/** ctx.needs_input_grad[i]. */
FABRIC_API bool th_needs_input_grad(th_function_ctx *ctx, size_t i);
/** ctx.mark_dirty, ctx.mark_non_differentiable. Only in forward. */
FABRIC_API th_status th_mark_dirty(th_function_ctx *ctx, th_tensors tensors);
FABRIC_API th_status th_mark_non_differentiable(th_function_ctx *ctx, th_tensors tensors);

TH_END_DECLS
#endif
