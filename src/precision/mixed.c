/* precision/mixed.c: "16-mixed" and "bf16-mixed": float32 weights, autocast around forwards, a scaler for float16. And autocast
 * regions for plain programs. */
#include "precision/internal.h"

#include "base/memory.h"
#include "bridge/bridge.h"
#include "optim/internal.h"
#include "precision/grad_scaler.h"
#include <cfabric/plugin/strategy.h>
#include <stdlib.h>
#include <string.h>

typedef struct mixed {
    th_dtype dtype;
    th_device_type device;
    th_grad_scaler *scaler; /* NULL with bfloat16 */
} mixed;

static mixed *mixed_of(fabric_precision *precision) { return fabric_precision_self(precision); }

/* ---- around the forward */

static th_tensor *convert_input(fabric_precision *precision, th_tensor *tensor)
{
    return fabric__convert_floating(tensor, mixed_of(precision)->dtype);
}

static th_tensor *convert_output(fabric_precision *precision, th_tensor *tensor)
{
    (void)precision;
    return fabric__convert_floating(tensor, th_get_default_dtype());
}

static void keep_state(int64_t slot[4], const th__autocast_state *state)
{
    slot[0] = state->device;
    slot[1] = state->dtype;
    slot[2] = state->enabled;
    slot[3] = state->entered;
}

static th__autocast_state kept_state(const int64_t slot[4])
{
    return (th__autocast_state){(th_device_type)slot[0], (th_dtype)slot[1], slot[2] != 0, slot[3] != 0};
}

static th_status forward_enter(fabric_precision *precision, fabric_context *context)
{
    th__autocast_state old = {0};
    TH__TRY(th__autocast_enter(mixed_of(precision)->device, mixed_of(precision)->dtype, true, &old));
    keep_state(context->slot, &old);
    return TH_OK;
}

static void forward_exit(fabric_precision *precision, const fabric_context *context)
{
    (void)precision;
    th__autocast_state old = kept_state(context->slot);
    th__autocast_exit(&old);
}

th_autocast_guard th_autocast_enter(th_device_type device, th_dtype dtype)
{
    th_autocast_guard guard = {{0}};
    th__autocast_state old = {0};
    char name[32];
    if (th__pending() != TH_OK) return guard;
    if (!th__autocast_supports(device, dtype))
        TH__FAIL(TH_ERR_UNAVAILABLE, "autocast to %s on %s is not available with libtorch %s", th_dtype_name(dtype),
                 th_device_format(TH_DEVICE(device, -1), name, sizeof name), th_torch_version());
    else if (th__autocast_enter(device, dtype, true, &old) == TH_OK)
        keep_state(guard.state, &old);
    return guard;
}

void th_autocast_leave(const th_autocast_guard *guard)
{
    th__autocast_state old = kept_state(guard->state);
    th__autocast_exit(&old);
}

/* ---- backward and step */

static th_status backward(fabric_precision *precision, th_module *module, const struct th_backward_args *args)
{
    (void)module;
    struct th_backward_args scaled = *args;
    if (mixed_of(precision)->scaler != NULL) scaled.tensor = th_grad_scaler_scale(mixed_of(precision)->scaler, args->tensor);
    return th_backward_call(scaled);
}

/* One overflow anywhere and nobody steps. Flags of 0 and 1 travel, never the values: a maximum would lose a NaN. */
static bool combine(bool found, void *user) { return !fabric_strategy_reduce_boolean_decision(user, !found, true); }

static th__scaler_step how_to_step(fabric_precision *precision)
{
    fabric_strategy *strategy = fabric__precision_strategy(precision);
    bool several = strategy != NULL && fabric_strategy_world_size(strategy) > 1;
    return (th__scaler_step){.combine = several ? combine : NULL, .step = th__optimizer_step_inner, .user = strategy};
}

static th_tensor *optimizer_step(fabric_precision *precision, th_optimizer *optimizer, th_closure closure, void *user)
{
    th_grad_scaler *scaler = mixed_of(precision)->scaler;
    if (scaler == NULL) return th__optimizer_step_inner(optimizer, closure, user);
    if (strcmp(th__optimizer_class(optimizer), "LBFGS") == 0) {
        TH__FAIL(TH_ERR_TYPE, "AMP and the LBFGS optimizer are not compatible");
        return NULL;
    }
    if (closure != NULL) {
        TH__FAIL(TH_ERR_RUNTIME,
                 "a closure is not supported with precision '16-mixed': the gradients must be complete before the step");
        return NULL;
    }
    th__scaler_step how = how_to_step(precision);
    th__grad_scaler_step(scaler, optimizer, &how);
    th_grad_scaler_update(scaler);
    return NULL;
}

static th_status unscale_gradients(fabric_precision *precision, th_optimizer *optimizer)
{
    th_grad_scaler *scaler = mixed_of(precision)->scaler;
    if (scaler == NULL) return TH_OK;
    th__scaler_step how = how_to_step(precision);
    return th__grad_scaler_unscale(scaler, optimizer, &how);
}

static th_value *state_dict(fabric_precision *precision)
{
    th_grad_scaler *scaler = mixed_of(precision)->scaler;
    return scaler != NULL ? th_grad_scaler_state_dict(scaler) : th_value_dict();
}

static th_status load_state_dict(fabric_precision *precision, th_value *state)
{
    th_grad_scaler *scaler = mixed_of(precision)->scaler;
    return scaler != NULL ? th_grad_scaler_load_state_dict(scaler, state) : TH_OK;
}

static th_dtype compute_dtype(fabric_precision *precision) { return mixed_of(precision)->dtype; }

static void free_mixed(void *self)
{
    th_grad_scaler_free(((mixed *)self)->scaler);
    free(self);
}

#define MIXED_OPS(text)                                                                                                          \
    {                                                                                                                            \
        .size = sizeof(fabric_precision_ops), .name = (text), .class_name = "MixedPrecision", .requires_fabric_backward = true,  \
        .convert_input = convert_input, .convert_output = convert_output, .forward_enter = forward_enter,                        \
        .forward_exit = forward_exit, .backward = backward, .optimizer_step = optimizer_step,                                    \
        .unscale_gradients = unscale_gradients, .state_dict = state_dict, .load_state_dict = load_state_dict,                    \
        .compute_dtype = compute_dtype, .free = free_mixed,                                                                      \
    }
static const fabric_precision_ops float16_ops = MIXED_OPS("16-mixed"), bfloat16_ops = MIXED_OPS("bf16-mixed");

/* ---- making one */

static th_status check_args(const struct fabric_precision_mixed_args *args, th_dtype dtype)
{
    if (dtype == TH_DTYPE_NONE)
        return TH__FAIL(TH_ERR_VALUE, "mixed precision '%s' is not known; precision must be '16-mixed' or 'bf16-mixed'",
                        args->precision != NULL ? args->precision : "(null)");
    if (args->scaler != NULL && dtype == TH_BFLOAT16)
        return TH__FAIL(TH_ERR_VALUE, "precision 'bf16-mixed' does not use a scaler, but one was given");
    char name[32];
    if (!th__autocast_supports(args->device, dtype))
        return TH__FAIL(TH_ERR_UNAVAILABLE, "precision '%s' is not available on %s with libtorch %s%s", args->precision,
                        th_device_format(TH_DEVICE(args->device, -1), name, sizeof name), th_torch_version(),
                        dtype == TH_FLOAT16 ? "; choose 'bf16-mixed'" : "");
    return TH_OK;
}

fabric_precision *fabric_precision_mixed_call(struct fabric_precision_mixed_args args)
{
    fabric_precision *precision = NULL;
    mixed *self = NULL;
    bool known = args.precision != NULL;
    th_dtype dtype = known && strcmp(args.precision, "16-mixed") == 0     ? TH_FLOAT16
                     : known && strcmp(args.precision, "bf16-mixed") == 0 ? TH_BFLOAT16
                                                                          : TH_DTYPE_NONE;
    if (args.device == TH_DEVICE_NONE) args.device = TH_DEVICE_CPU;
    if (th__pending() == TH_OK && check_args(&args, dtype) == TH_OK) self = th__calloc(1, sizeof *self);
    if (self != NULL) {
        self->dtype = dtype;
        self->device = args.device;
        self->scaler = args.scaler == NULL && dtype == TH_FLOAT16 ? th_grad_scaler_new() : th_grad_scaler_retain(args.scaler);
        if (th__pending() == TH_OK) precision = fabric_precision_new(dtype == TH_FLOAT16 ? &float16_ops : &bfloat16_ops, self);
        if (precision == NULL) free_mixed(self);
    }
    th_grad_scaler_free(args.scaler);
    return precision;
}

fabric_precision *fabric__precision_mixed(const char *preset, th_device_type device)
{
    return fabric_precision_mixed(preset, .device = device);
}

static bool is_mixed(fabric_precision *precision)
{
    const fabric_precision_ops *ops = fabric_precision_ops_of(precision);
    return ops == &float16_ops || ops == &bfloat16_ops;
}

th_grad_scaler *fabric_precision_scaler(fabric_precision *precision)
{
    return is_mixed(precision) ? mixed_of(precision)->scaler : NULL;
}

bool fabric__precision_found_overflow(fabric_precision *precision, th_optimizer *optimizer)
{
    th_grad_scaler *scaler = fabric_precision_scaler(precision);
    return scaler != NULL && th__grad_scaler_found_inf(scaler, optimizer);
}
