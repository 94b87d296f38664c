/* cfabric/plugin/precision.h: writing a precision (lightning.fabric.plugins.precision). */
#ifndef CFABRIC_PLUGIN_PRECISION_H
#define CFABRIC_PLUGIN_PRECISION_H

#include <cfabric/amp.h>
#include <cfabric/plugin/types.h>

TH_BEGIN_DECLS

/** Room for what an `enter` slot must put back in `exit`. Zeroed before `enter`. */
typedef struct fabric_context {
    int64_t slot[8];
} fabric_context;

typedef struct fabric_precision_ops {
    size_t size;                  /**< sizeof(fabric_precision_ops) */
    const char *name;             /**< "bf16-mixed": the canonical text of `.precision` */
    const char *class_name;       /**< "MixedPrecision", for messages. NULL: the name */
    /** A plain th_backward outside fabric_backward is an error (loss scaling would be skipped). */
    bool requires_fabric_backward;
    /** Converts parameters and buffers in place. NULL: unchanged. */
    th_status (*convert_module)(fabric_precision *precision, th_module *module);
    /** One input tensor of a forward. NULL: unchanged. [scoped] or the tensor itself */
    th_tensor *(*convert_input)(fabric_precision *precision, th_tensor *tensor);
    /** One output tensor of a forward. NULL: unchanged. [scoped] or the tensor itself */
    th_tensor *(*convert_output)(fabric_precision *precision, th_tensor *tensor);
    /** Around every forward (autocast, default dtype). `forward_exit` also runs after an error and undoes `forward_enter` whatever
     * happened in between. NULL: nothing. Both or none. */
    th_status (*forward_enter)(fabric_precision *precision, fabric_context *context);
    void (*forward_exit)(fabric_precision *precision, const fabric_context *context);
    /** The default dtype inside fabric_init_tensor and fabric_init_module, TH_DTYPE_NONE for no change. NULL: no change. */
    th_dtype (*init_dtype)(fabric_precision *precision);
    /** Before and after `backward`; the module may be NULL. NULL: nothing. */
    th_status (*pre_backward)(fabric_precision *precision, th_tensor *tensor, th_module *module);
    th_status (*post_backward)(fabric_precision *precision, th_tensor *tensor, th_module *module);
    /** Computes gradients from `args->tensor`. NULL: th_backward. */
    th_status (*backward)(fabric_precision *precision, th_module *module, const struct th_backward_args *args);
    /** Steps a set-up optimizer. `closure` may be NULL. NULL: the optimizer's own step. [scoped] the closure's result, NULL without */
    th_tensor *(*optimizer_step)(fabric_precision *precision, th_optimizer *optimizer, th_closure closure, void *user);
    /** Removes the loss scale from the gradients before they are clipped. NULL: nothing. */
    th_status (*unscale_gradients)(fabric_precision *precision, th_optimizer *optimizer);
    /** The plugin's own state (a scaler's), for the user to save. NULL: an empty dict. [owned] */
    th_value *(*state_dict)(fabric_precision *precision);
    th_status (*load_state_dict)(fabric_precision *precision, th_value *state);
    /** The dtype that arithmetic mostly runs in, for throughput. NULL: TH_FLOAT32. */
    th_dtype (*compute_dtype)(fabric_precision *precision);
    /** NULL: nothing to do. */
    th_status (*teardown)(fabric_precision *precision);
    /** Ends `self`. NULL: nothing to free. */
    void (*free)(void *self);
} fabric_precision_ops;

/** A precision from a table. [owned] */
FABRIC_API FABRIC_NODISCARD fabric_precision *fabric_precision_new(const fabric_precision_ops *ops, void *self);
FABRIC_API fabric_precision *fabric_precision_retain(fabric_precision *precision);
/** NULL is allowed. */
FABRIC_API void fabric_precision_free(fabric_precision *precision);
FABRIC_API void *fabric_precision_self(fabric_precision *precision);
FABRIC_API const fabric_precision_ops *fabric_precision_ops_of(fabric_precision *precision);

/* ---- the slots with their defaults; strategies call these */
FABRIC_API const char *fabric_precision_name(fabric_precision *precision);
FABRIC_API bool fabric_precision_requires_fabric_backward(fabric_precision *precision);
FABRIC_API th_status fabric_precision_convert_module(fabric_precision *precision, th_module *module);
FABRIC_API th_tensor *fabric_precision_convert_input(fabric_precision *precision, th_tensor *tensor);
FABRIC_API th_tensor *fabric_precision_convert_output(fabric_precision *precision, th_tensor *tensor);
FABRIC_API th_status fabric_precision_forward_enter(fabric_precision *precision, fabric_context *context);
/** Works with an error pending. */
FABRIC_API void fabric_precision_forward_exit(fabric_precision *precision, const fabric_context *context);
FABRIC_API th_dtype fabric_precision_init_dtype(fabric_precision *precision);
FABRIC_API th_status fabric_precision_pre_backward(fabric_precision *precision, th_tensor *tensor, th_module *module);
FABRIC_API th_status fabric_precision_backward(fabric_precision *precision, th_module *module, const struct th_backward_args *args);
FABRIC_API th_status fabric_precision_post_backward(fabric_precision *precision, th_tensor *tensor, th_module *module);
FABRIC_API th_tensor *fabric_precision_optimizer_step(fabric_precision *precision, th_optimizer *optimizer, th_closure closure,
                                                      void *user);
FABRIC_API th_status fabric_precision_unscale_gradients(fabric_precision *precision, th_optimizer *optimizer);
FABRIC_API th_value *fabric_precision_state_dict(fabric_precision *precision);
FABRIC_API th_status fabric_precision_load_state_dict(fabric_precision *precision, th_value *state);
FABRIC_API th_dtype fabric_precision_compute_dtype(fabric_precision *precision);
FABRIC_API th_status fabric_precision_teardown(fabric_precision *precision);

/** A name that `.precision = "..."` accepts. */
typedef struct fabric_precision_entry {
    size_t size;              /**< sizeof(fabric_precision_entry) */
    const char *name;
    const char *description;
    fabric_precision *(*create)(const char *preset, th_device_type device);  /**< for tensors on that kind of device. [owned] */
    const char *preset;       /**< handed to `create`; may be NULL */
    bool override;            /**< replaces an entry of that name instead of being TH_ERR_VALUE */
} fabric_precision_entry;

/** Adds a name; the entry and its texts must stay valid. Call it before fabric_new. Any thread. */
FABRIC_API th_status fabric_precision_register(const fabric_precision_entry *entry);
FABRIC_API th_status fabric_precision_unregister(const char *name);
/** Makes one by its canonical name. An unknown name is TH_ERR_KEY and lists the known ones. [owned] */
FABRIC_API FABRIC_NODISCARD fabric_precision *fabric_precision_create(const char *name, th_device_type device);
FABRIC_API const char *fabric_precision_registered(size_t i);

/* ---- the built-in ones as objects, for .plugins */

/** "64-true": weights, inputs and new tensors in float64. [owned] */
FABRIC_API FABRIC_NODISCARD fabric_precision *fabric_precision_double(void);
/** "16-true" or "bf16-true": weights, inputs and new tensors in that format. What tensors on `device` cannot compute here is
 * TH_ERR_UNAVAILABLE. [owned] */
FABRIC_API FABRIC_NODISCARD fabric_precision *fabric_precision_half(const char *precision, th_device_type device);

struct fabric_precision_mixed_args {
    const char *precision;   /**< "16-mixed" or "bf16-mixed" */
    th_device_type device;   /**< where autocast works; not given: the CPU */
    th_grad_scaler *scaler;  /**< handed over; NULL: "16-mixed" makes its own. With "bf16-mixed" it is TH_ERR_VALUE */
};
/** Autocast with float32 weights; "16-mixed" scales losses. Asked for like this, float16 works on the CPU too, where libtorch can (2.3 and
 * later; else TH_ERR_UNAVAILABLE): fabric_precision_mixed("16-mixed", .device = TH_DEVICE_CPU). [owned] */
FABRIC_API FABRIC_NODISCARD fabric_precision *fabric_precision_mixed_call(struct fabric_precision_mixed_args args);
#define fabric_precision_mixed(...) fabric_precision_mixed_call((struct fabric_precision_mixed_args){.precision = __VA_ARGS__})
/** The scaler of a mixed precision, NULL without one. [borrowed] */
FABRIC_API th_grad_scaler *fabric_precision_scaler(fabric_precision *precision);

TH_END_DECLS
#endif
