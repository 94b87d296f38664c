/* nn/move.c: Module.to() and to_empty(): other devices and dtypes for the whole tree. */
#include "nn/module_impl.h"

#include <cfabric/ops.h>
#include <stdlib.h>

typedef struct replaced {
    th_tensor *old, *fresh;
} replaced; /* both retained here */

typedef struct move {
    th_device device;
    th_dtype dtype;
    bool empty;      /* to_empty: new memory, no copy */
    replaced *items; /* meta tensors that got a new object, so that tied ones stay tied */
    size_t count, capacity;
} move;

static bool is_moved_dtype(th_dtype dtype) { return th_dtype_is_floating_point(dtype) || th_dtype_is_complex(dtype); }

/* What the tensor becomes; itself when nothing changes. [scoped] */
static th_tensor *converted(const move *state, th_tensor *tensor)
{
    th_dtype dtype = is_moved_dtype(th_dtype_of(tensor)) ? state->dtype : TH_DTYPE_NONE;
    if (state->empty) return th_empty_like(tensor, .dtype = dtype, .device = state->device);
    if (th_device_of(tensor).type == TH_DEVICE_META && state->device.type != TH_DEVICE_NONE &&
        state->device.type != TH_DEVICE_META) {
        th__fail(TH_ERR_NOT_IMPLEMENTED, "th_module_to",
                 "a meta tensor has no data to copy; use th_module_to_empty, then th_module_reset_parameters or load a state");
        return NULL;
    }
    return th_to_dtype_layout(tensor, .dtype = dtype, .device = state->device);
}

/* A tensor that changes between meta and a real device cannot keep its object: the slot gets a new one. */
static th_status replace(move *state, th_tensor **slot, th_tensor *fresh)
{
    replaced entry = {th_retain(*slot), NULL};
    th_requires_grad_(fresh, th_requires_grad(*slot));
    entry.fresh = th_retain(fresh);
    if (TH__PUSH(state->items, state->count, state->capacity, entry) != 0) {
        th_free(entry.old);
        th_free(entry.fresh);
        return th__pending();
    }
    th_assign(slot, fresh);
    return th__pending();
}

static th_status move_slot(move *state, th_tensor **slot)
{
    if (*slot == NULL) return TH_OK;
    TH_SCOPE();
    TH_NO_GRAD();
    for (size_t i = 0; i < state->count; i++)
        if (th_is_same(state->items[i].old, *slot)) {
            th_assign(slot, state->items[i].fresh);
            return th__pending();
        }
    th_tensor *fresh = converted(state, *slot);
    if (fresh == NULL || th_is_same(fresh, *slot)) return th__pending();
    bool was_meta = th_device_of(*slot).type == TH_DEVICE_META, is_meta = th_device_of(fresh).type == TH_DEVICE_META;
    if (was_meta != is_meta) return replace(state, slot, fresh);
    th_tensor *grad = th_has_grad(*slot) ? th_grad(*slot) : NULL;
    TH__TRY(th_set_data(*slot, fresh));
    if (grad == NULL) return th__pending();
    th_tensor *fresh_grad = converted(state, grad);
    return fresh_grad != NULL && !th_is_same(fresh_grad, grad) ? th_set_data(grad, fresh_grad) : th__pending();
}

static int move_module(const char *path, th_module *module, void *user)
{
    (void)path;
    for (size_t i = 0; i < module->parameters.count; i++) TH__TRY(move_slot(user, &module->parameters.items[i].tensor));
    for (size_t i = 0; i < module->buffers.count; i++) TH__TRY(move_slot(user, &module->buffers.items[i].tensor));
    return TH_OK;
}

static th_status run(th_module *module, move state)
{
    th__module_walk(module, move_module, &state);
    for (size_t i = 0; i < state.count; i++) {
        th_free(state.items[i].old);
        th_free(state.items[i].fresh);
    }
    free(state.items);
    return th__pending();
}

th_status th_module_to(th_module *module, th_device device, th_dtype dtype)
{
    TH__CHECK_PENDING();
    if (!th__module_check(module, __func__)) return th__pending();
    if (dtype != TH_DTYPE_NONE && !is_moved_dtype(dtype))
        return TH__FAIL(TH_ERR_TYPE, "dtype %s, expected a floating point or complex one", th_dtype_name(dtype));
    if (dtype == TH_DTYPE_NONE && device.type == TH_DEVICE_NONE) return TH_OK;
    return run(module, (move){.device = device, .dtype = dtype});
}

th_status th_module_to_empty(th_module *module, th_device device)
{
    TH__CHECK_PENDING();
    if (!th__module_check(module, __func__)) return th__pending();
    return run(module, (move){.device = device, .empty = true});
}

/* ---------------------------------------------------------------- copying */

static th_status copy_table(th__tensor_table *to, const th__tensor_table *from)
{
    for (size_t i = 0; i < to->count && i < from->count; i++) {
        if (from->items[i].tensor == NULL) continue;
        TH_SCOPE();
        TH_NO_GRAD();
        th_tensor *copy = th_clone(th_detach(from->items[i].tensor));
        th_requires_grad_(copy, th_requires_grad(from->items[i].tensor));
        th_assign(&to->items[i].tensor, copy);
    }
    return th__pending();
}

th_status th__module_copy_state(th_module *to, const th_module *from)
{
    TH__CHECK_PENDING();
    to->training = from->training;
    TH__TRY(copy_table(&to->parameters, &from->parameters));
    TH__TRY(copy_table(&to->buffers, &from->buffers));
    for (size_t i = 0; i < to->n_children && i < from->n_children; i++)
        TH__TRY(th__module_copy_state(to->children[i].module, from->children[i].module));
    return th__pending();
}
