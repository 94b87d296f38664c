/* cfabric/amp.h: automatic mixed precision by hand (torch.amp): autocast and GradScaler. Fabric's "16-mixed" and "bf16-mixed" use the
 * same; a plain libtorch program may, too. */
#ifndef CFABRIC_AMP_H
#define CFABRIC_AMP_H

#include <cfabric/optim.h>

TH_BEGIN_DECLS

/** An open autocast region. */
typedef struct th_autocast_guard {
    int64_t state[4];
} th_autocast_guard;
/** torch.autocast(device, dtype): operators that gain from it compute in `dtype` (TH_BFLOAT16 or TH_FLOAT16) until
 * th_autocast_leave. Thread-local; regions nest. A dtype that this libtorch cannot autocast to on that device is TH_ERR_UNAVAILABLE. */
FABRIC_API th_autocast_guard th_autocast_enter(th_device_type device, th_dtype dtype);
/** Ends a region. Works with an error pending. */
FABRIC_API void th_autocast_leave(const th_autocast_guard *guard);
#if defined(__GNUC__)
/** with torch.autocast(device, dtype): to the end of the block. */
#define TH_AUTOCAST(device, dtype)                                                                                        \
    __attribute__((cleanup(th_autocast_leave), unused)) const th_autocast_guard TH__CAT(th__autocast_, __COUNTER__) = \
        th_autocast_enter((device), (dtype))
#endif

/** torch.amp.GradScaler: multiplies losses so that small float16 gradients do not vanish, divides the gradients again, skips steps with
 * an overflow and adapts the factor. [owned], reference-counted. */
typedef struct th_grad_scaler th_grad_scaler;

struct th_grad_scaler_args {
    double init_scale;       /**< 65536 */
    double growth_factor;    /**< 2; must be more than 1 */
    double backoff_factor;   /**< 0.5; must be less than 1 */
    int64_t growth_interval; /**< 2000 steps without an overflow */
};
FABRIC_API FABRIC_NODISCARD th_grad_scaler *th_grad_scaler_new_call(struct th_grad_scaler_args args);
#define th_grad_scaler_new(...)                                                                                             \
    th_grad_scaler_new_call((struct th_grad_scaler_args){.init_scale = 65536.0, .growth_factor = 2.0, .backoff_factor = 0.5, \
                                                         .growth_interval = 2000, __VA_ARGS__})
FABRIC_API th_grad_scaler *th_grad_scaler_retain(th_grad_scaler *scaler);
/** NULL is allowed. */
FABRIC_API void th_grad_scaler_free(th_grad_scaler *scaler);

/** scaler.scale(loss): the loss times the factor, at least in float32. [scoped] */
FABRIC_API th_tensor *th_grad_scaler_scale(th_grad_scaler *scaler, th_tensor *loss);
/** scaler.unscale_(optimizer): divides the gradients, for clipping before the step. Once per optimizer and update. float16 gradients
 * are TH_ERR_VALUE. */
FABRIC_API th_status th_grad_scaler_unscale_(th_grad_scaler *scaler, th_optimizer *optimizer);
/** scaler.step(optimizer): unscales unless that was done, then steps unless a gradient is infinite or NaN. Returns whether it stepped;
 * false with an error, too. */
FABRIC_API bool th_grad_scaler_step(th_grad_scaler *scaler, th_optimizer *optimizer);
/** scaler.update(): adapts the factor. Call it once after the steps of an iteration. */
FABRIC_API th_status th_grad_scaler_update(th_grad_scaler *scaler);
/** scaler.update(new_scale). */
FABRIC_API th_status th_grad_scaler_set_scale(th_grad_scaler *scaler, double new_scale);
FABRIC_API double th_grad_scaler_get_scale(th_grad_scaler *scaler);
/** Steps since the last overflow or growth (_growth_tracker). */
FABRIC_API int64_t th_grad_scaler_growth_tracker(th_grad_scaler *scaler);
/** PyTorch's form: scale, growth_factor, backoff_factor, growth_interval, _growth_tracker. [owned] */
FABRIC_API th_value *th_grad_scaler_state_dict(th_grad_scaler *scaler);
/** Borrows `state`. */
FABRIC_API th_status th_grad_scaler_load_state_dict(th_grad_scaler *scaler, th_value *state);
/** The scaler as an object in a state, for fabric_save and fabric_load. [owned] */
FABRIC_API th_value *th_state_grad_scaler(th_grad_scaler *scaler);

TH_END_DECLS
#endif
