/* precision/grad_scaler.c: torch.amp.GradScaler with PyTorch's exact arithmetic. Scale and growth tracker are kept here as the
 * float32 and int32 that PyTorch keeps in tensors; a step has to look at the overflow flag anyway. */
#include "precision/grad_scaler.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/object.h"
#include "bridge/bridge.h"
#include "tensor/internal.h"
#include <cfabric/autograd.h>
#include <cfabric/ops.h>
#include <math.h>
#include <stdlib.h>

#define CHECK_OP "aten::_amp_foreach_non_finite_check_and_unscale_"

typedef enum stage { READY, UNSCALED, STEPPED } stage;

/* What happened to one optimizer since the last update. */
typedef struct optimizer_state {
    th_optimizer *optimizer; /* compared only */
    stage stage;
    bool checked; /* it had gradients */
    bool found_inf;
} optimizer_state;

struct th_grad_scaler {
    th__object object;
    float scale;
    double growth_factor, backoff_factor;
    int64_t growth_interval;
    int32_t growth_tracker;
    bool used; /* scale() was called: PyTorch makes its tensors then */
    optimizer_state *states;
    size_t n_states, capacity;
};

static bool own_check_only;
void th__grad_scaler_use_own_check(bool own) { own_check_only = own; }

static void destroy(void *object)
{
    th_grad_scaler *scaler = object;
    free(scaler->states);
    free(scaler);
}

static const th__class scaler_class = {"grad scaler", destroy};

#define CHECK(failed)                                                                                                            \
    do {                                                                                                                         \
        if (th__pending() != TH_OK || !th__object_check(scaler, &scaler_class, __func__, "grad scaler")) return (failed);        \
    } while (0)

th_grad_scaler *th_grad_scaler_new_call(struct th_grad_scaler_args args)
{
    TH__CHECK_PENDING_NULL();
    if (!(args.growth_factor > 1.0)) {
        TH__FAIL(TH_ERR_VALUE, "the growth factor must be > 1.0, got %g", args.growth_factor);
        return NULL;
    }
    if (!(args.backoff_factor < 1.0)) {
        TH__FAIL(TH_ERR_VALUE, "the backoff factor must be < 1.0, got %g", args.backoff_factor);
        return NULL;
    }
    th_grad_scaler *scaler = th__object_new(&scaler_class, sizeof *scaler);
    if (scaler == NULL) return NULL;
    scaler->scale = (float)args.init_scale;
    scaler->growth_factor = args.growth_factor;
    scaler->backoff_factor = args.backoff_factor;
    scaler->growth_interval = args.growth_interval;
    return scaler;
}

th_grad_scaler *th_grad_scaler_retain(th_grad_scaler *scaler) { return th__retain(scaler); }
void th_grad_scaler_free(th_grad_scaler *scaler) { th__release(scaler); }

/* A float32 number on the device of a tensor; 0-dimensional like PyTorch's, so that it does not raise or lower dtypes. */
static th_tensor *number_on(th_device device, float value)
{
    th_tensor *number = th_tensor_scalar(th_scalar_double(value), TH_FLOAT32);
    return device.type == TH_DEVICE_CPU ? number : th_to_device(number, device, TH_FLOAT32);
}

th_tensor *th_grad_scaler_scale(th_grad_scaler *scaler, th_tensor *loss)
{
    CHECK(NULL);
    th_device device = th_device_of(loss);
    TH__CHECK_PENDING_NULL();
    scaler->used = true;
    return th_mul(loss, number_on(device, scaler->scale));
}

/* ---- unscaling and the check */

static optimizer_state *state_of(th_grad_scaler *scaler, th_optimizer *optimizer, bool make)
{
    for (size_t i = 0; i < scaler->n_states; i++)
        if (scaler->states[i].optimizer == optimizer) return &scaler->states[i];
    optimizer_state fresh = {optimizer, READY, false, false};
    if (!make || TH__PUSH(scaler->states, scaler->n_states, scaler->capacity, fresh) != 0) return NULL;
    return &scaler->states[scaler->n_states - 1];
}

/* libtorch's operator for gradients of one device and dtype. */
static th_status check_by_operator(th_tensors grads, th_tensor *found, th_tensor *inverse)
{
    const th_arg args[] = {TH_A_TENSORS(grads), TH_A(found), TH_A(inverse)};
    th_arg none;
    int n = th_call_args(CHECK_OP, args, 3, &none, 1);
    return n < 0 ? th__pending() : TH_OK;
}

static bool operator_works_on(th_device_type device)
{
    if (own_check_only || !th_has_op(CHECK_OP)) return false;
    return device == TH_DEVICE_CUDA || th__op_has_cpu_kernel(CHECK_OP, "");
}

/* The same in plain operators, for libtorch 1.13 on the CPU. */
static th_status check_by_hand(th_tensors grads, float inverse_scale, th_tensor *found, th_tensor *inverse)
{
    for (size_t i = 0; i < grads.size; i++) {
        TH_SCOPE();
        bool finite = th_item_int(th_all(th_isfinite(grads.data[i]))) != 0;
        TH__CHECK_PENDING();
        if (!finite) th_fill_scalar_(found, th_scalar_double(1.0));
        if (inverse_scale != 1.0f) th_mul_(grads.data[i], inverse);
    }
    return th__pending();
}

/* The optimizer's gradients. The list belongs to the innermost scope; data NULL with an error. */
static th_tensors collect_gradients(th_optimizer *optimizer)
{
    size_t most = 0, n = 0, groups = th_optimizer_n_groups(optimizer);
    for (size_t group = 0; group < groups; group++) most += th_optimizer_params(optimizer, group).size;
    th_tensor **grads = th__scope_alloc((most + 1) * sizeof *grads);
    for (size_t group = 0; grads != NULL && group < groups; group++) {
        th_tensors params = th_optimizer_params(optimizer, group);
        for (size_t i = 0; i < params.size; i++) {
            if (!th_has_grad(params.data[i])) continue;
            grads[n++] = th_grad(params.data[i]);
            if (th_dtype_of(grads[n - 1]) == TH_FLOAT16) TH__FAIL(TH_ERR_VALUE, "attempting to unscale FP16 gradients");
        }
    }
    return th__pending() == TH_OK ? (th_tensors){grads, n} : (th_tensors){NULL, 0};
}

static bool alike(th_tensor *a, th_tensor *b)
{
    th_device x = th_device_of(a), y = th_device_of(b);
    return x.type == y.type && x.index == y.index && th_dtype_of(a) == th_dtype_of(b);
}

/* Divides every gradient of the optimizer by the scale: one call per device and dtype, whose flag is read once. */
static th_status unscale_all(th_optimizer *optimizer, float inverse_scale, bool *checked, bool *found)
{
    TH_SCOPE();
    TH_NO_GRAD();
    th_tensors all = collect_gradients(optimizer);
    TH__CHECK_PENDING();
    th_tensor **rest = (th_tensor **)all.data, **batch = th__scope_alloc((all.size + 1) * sizeof *batch);
    TH__CHECK_PENDING();
    *checked = all.size > 0;
    *found = false;
    for (size_t left = all.size; left > 0;) {
        th_tensor *first = rest[0];
        size_t n = 0, kept = 0;
        for (size_t i = 0; i < left; i++) *(alike(rest[i], first) ? &batch[n++] : &rest[kept++]) = rest[i];
        left = kept;
        th_device device = th_device_of(first);
        th_tensor *flag = number_on(device, 0.0f), *inverse = number_on(device, inverse_scale);
        th_tensors grads = {batch, n};
        TH__TRY(operator_works_on(device.type) ? check_by_operator(grads, flag, inverse)
                                               : check_by_hand(grads, inverse_scale, flag, inverse));
        if (th_item(flag) != 0.0) *found = true;
        TH__CHECK_PENDING();
    }
    return TH_OK;
}

static th_status not_scaled(const char *what)
{
    return TH__FAIL(TH_ERR_RUNTIME,
                    "attempted %s, but nothing was scaled; the loss may have gone backward without the scaler "
                    "(th_grad_scaler_scale, fabric_backward)",
                    what);
}

th_status th__grad_scaler_unscale(th_grad_scaler *scaler, th_optimizer *optimizer, const th__scaler_step *how)
{
    CHECK(th__pending());
    if (!scaler->used) return not_scaled("unscale_");
    optimizer_state *state = state_of(scaler, optimizer, true);
    if (state == NULL) return th__pending();
    if (state->stage == UNSCALED)
        return TH__FAIL(TH_ERR_RUNTIME, "unscale_() has already been called on this optimizer since the last update()");
    if (state->stage == STEPPED) return TH__FAIL(TH_ERR_RUNTIME, "unscale_() is being called after step()");
    float inverse = (float)(1.0 / (double)scaler->scale);
    TH__TRY(unscale_all(optimizer, inverse, &state->checked, &state->found_inf));
    if (how->combine != NULL) state->found_inf = how->combine(state->found_inf, how->user);
    TH__CHECK_PENDING();
    state->stage = UNSCALED;
    return TH_OK;
}

/* ---- step and update */

static th_tensor *plain_step(th_optimizer *optimizer, th_closure closure, void *user)
{
    (void)closure;
    (void)user;
    th_optimizer_step(optimizer);
    return NULL;
}

static const th__scaler_step alone = {.combine = NULL, .step = plain_step, .user = NULL};

th_status th_grad_scaler_unscale_(th_grad_scaler *scaler, th_optimizer *optimizer)
{
    return th__grad_scaler_unscale(scaler, optimizer, &alone);
}

bool th__grad_scaler_found_inf(th_grad_scaler *scaler, th_optimizer *optimizer)
{
    optimizer_state *state = state_of(scaler, optimizer, false);
    return state != NULL && state->stage == UNSCALED && state->found_inf;
}

bool th__grad_scaler_step(th_grad_scaler *scaler, th_optimizer *optimizer, const th__scaler_step *how)
{
    CHECK(false);
    if (!scaler->used) return not_scaled("step") == TH_OK;
    optimizer_state *state = state_of(scaler, optimizer, true);
    if (state == NULL) return false;
    if (state->stage == STEPPED) {
        TH__FAIL(TH_ERR_RUNTIME, "step() has already been called since the last update()");
        return false;
    }
    if (state->stage == READY && th__grad_scaler_unscale(scaler, optimizer, how) != TH_OK) return false;
    if (!state->checked) {
        TH__FAIL(TH_ERR_RUNTIME, "no inf checks were recorded for this optimizer: none of its parameters has a gradient");
        return false;
    }
    bool stepped = !state->found_inf;
    state->stage = STEPPED;
    if (stepped) how->step(optimizer, NULL, NULL);
    return stepped && th__pending() == TH_OK;
}

bool th_grad_scaler_step(th_grad_scaler *scaler, th_optimizer *optimizer)
{
    return th__grad_scaler_step(scaler, optimizer, &alone);
}

/* In double, rounded to float32 once, as the kernels do. */
static void adapt(th_grad_scaler *scaler, bool found_inf)
{
    if (found_inf) {
        scaler->scale = (float)((double)scaler->scale * scaler->backoff_factor);
        scaler->growth_tracker = 0;
        return;
    }
    int32_t successful = scaler->growth_tracker + 1;
    if (successful != scaler->growth_interval) {
        scaler->growth_tracker = successful;
        return;
    }
    float grown = (float)((double)scaler->scale * scaler->growth_factor);
    if (isfinite(grown)) scaler->scale = grown;
    scaler->growth_tracker = 0;
}

th_status th_grad_scaler_update(th_grad_scaler *scaler)
{
    CHECK(th__pending());
    if (!scaler->used) return not_scaled("update");
    bool checked = false, found_inf = false;
    for (size_t i = 0; i < scaler->n_states; i++) {
        checked = checked || scaler->states[i].checked;
        found_inf = found_inf || scaler->states[i].found_inf;
    }
    if (!checked) return TH__FAIL(TH_ERR_RUNTIME, "no inf checks were recorded prior to update");
    adapt(scaler, found_inf);
    scaler->n_states = 0;
    return TH_OK;
}

th_status th_grad_scaler_set_scale(th_grad_scaler *scaler, double new_scale)
{
    CHECK(th__pending());
    scaler->scale = (float)new_scale;
    scaler->n_states = 0;
    return TH_OK;
}

double th_grad_scaler_get_scale(th_grad_scaler *scaler)
{
    CHECK((double)NAN);
    return (double)scaler->scale;
}

int64_t th_grad_scaler_growth_tracker(th_grad_scaler *scaler)
{
    CHECK(-1);
    return scaler->growth_tracker;
}

/* ---- state */

th_value *th_grad_scaler_state_dict(th_grad_scaler *scaler)
{
    CHECK(NULL);
    const th_state_entry entries[] = {
        {"scale", th_value_double((double)scaler->scale)},           {"growth_factor", th_value_double(scaler->growth_factor)},
        {"backoff_factor", th_value_double(scaler->backoff_factor)}, {"growth_interval", th_value_int(scaler->growth_interval)},
        {"_growth_tracker", th_value_int(scaler->growth_tracker)},
    };
    return th_state_of(entries, sizeof entries / sizeof entries[0]);
}

th_status th_grad_scaler_load_state_dict(th_grad_scaler *scaler, th_value *state)
{
    static const char *const keys[] = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"};
    CHECK(th__pending());
    if (th_value_size(state) == 0)
        return TH__FAIL(TH_ERR_RUNTIME, "the scaler's state dict is empty, possibly because it was saved without a scaler");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        th_value *value = th_value_get(state, keys[i]);
        if (value == NULL) return TH__FAIL(TH_ERR_KEY, "the scaler's state dict has no '%s'", keys[i]);
        if (!isfinite(th_value_as_double(value, (double)NAN)))
            return TH__FAIL(TH_ERR_VALUE, "the scaler's '%s' is not a finite number", keys[i]);
    }
    scaler->scale = (float)th_value_as_double(th_value_get(state, keys[0]), 0.0);
    scaler->growth_factor = th_value_as_double(th_value_get(state, keys[1]), 0.0);
    scaler->backoff_factor = th_value_as_double(th_value_get(state, keys[2]), 0.0);
    scaler->growth_interval = th_value_as_int(th_value_get(state, keys[3]), 0);
    scaler->growth_tracker = (int32_t)th_value_as_int(th_value_get(state, keys[4]), 0);
    return TH_OK;
}

static th_value *object_state_dict(void *object) { return th_grad_scaler_state_dict(object); }

static th_status object_load_state_dict(void *object, th_value *state, bool strict)
{
    (void)strict;
    return th_grad_scaler_load_state_dict(object, state);
}

static const th_stateful stateful = {sizeof(th_stateful), "grad_scaler", object_state_dict, object_load_state_dict};

th_value *th_state_grad_scaler(th_grad_scaler *scaler)
{
    CHECK(NULL);
    return th_value_object(&stateful, scaler);
}
