/* fabric/place.c: moving things to Fabric's device, and creating them there. */
#include "fabric/internal.h"
#include "strategies/internal.h"
#include "tensor/internal.h"
#include <cfabric/ops.h>

bool fabric__same_device(th_device a, th_device b)
{
    return a.type == b.type && (a.type == TH_DEVICE_CPU || a.index == b.index || a.index < 0 || b.index < 0);
}

th_tensor *fabric__move(th_tensor *tensor, th_device device)
{
    if (tensor == NULL || device.type == TH_DEVICE_NONE || fabric__same_device(th_device_of(tensor), device)) return tensor;
    /* Copies to a GPU are queued; whatever uses the tensor comes later in the same queue. */
    return th_to_dtype_layout(tensor, .device = device, .non_blocking = device.type == TH_DEVICE_CUDA);
}

th_tensor *fabric_to_device(fabric *fab, th_tensor *tensor)
{
    FABRIC__ENTER_NULL(fab);
    if (tensor == NULL) {
        TH__FAIL(TH_ERR_TYPE, "the tensor is NULL");
        return NULL;
    }
    return fabric__move(tensor, fabric_device(fab));
}

th_status fabric_module_to_device(fabric *fab, th_module *module)
{
    FABRIC__ENTER(fab);
    if (fab->strategy->accelerator != NULL)
        TH__TRY(fabric_accelerator_setup_device(fab->strategy->accelerator, fabric_device(fab)));
    return th_module_to(module, fabric_device(fab), TH_DTYPE_NONE);
}

static th_tensor *move_one(th_tensor *tensor, void *user)
{
    return fabric__move(tensor, *(const th_device *)user);
}

th_status fabric_value_to_device(fabric *fab, th_value *value)
{
    FABRIC__ENTER(fab);
    th_device device = fabric_device(fab);
    int depth = th_scope_push();
    th_status status = th_value_map_tensors(value, move_one, &device);
    th_scope_pop(depth);
    return status;
}

/* ---- the precision's context without a module */

static void leave_autocast(fabric_guard *guard)
{
    fabric_precision_forward_exit(guard->fab->strategy->precision, &guard->context);
}

fabric_guard fabric_autocast(fabric *fab)
{
    fabric_guard guard = {.fab = fab};
    if (th__pending() != TH_OK || !fabric__check(fab, __func__)) return guard;
    if (fabric_precision_forward_enter(fab->strategy->precision, &guard.context) == TH_OK) guard.leave = leave_autocast;
    return guard;
}

/* ---- init_module, init_tensor: where and in which dtype new tensors are made */

enum { OLD_TYPE, OLD_INDEX, OLD_DTYPE, OLD_SKIP, OLD_DEFAULT };

static void leave_init(fabric_guard *guard)
{
    const int64_t *old = guard->context.slot;
    th__init_context_swap((th__init_context){{(th_device_type)old[OLD_TYPE], (int)old[OLD_INDEX]}, (th_dtype)old[OLD_DTYPE],
                                             old[OLD_SKIP] != 0});
    th__saved_error saved;
    th__error_suspend(&saved);
    th_set_default_dtype((th_dtype)old[OLD_DEFAULT]);
    th__error_resume(&saved);
}

static void enter_init(fabric_guard *guard, th_device device, bool skip_init)
{
    th_dtype dtype = fabric_precision_init_dtype(guard->fab->strategy->precision);
    th_dtype old_default = th_get_default_dtype();
    if (dtype != TH_DTYPE_NONE && th_set_default_dtype(dtype) != TH_OK) return;
    th__init_context old = th__init_context_swap((th__init_context){device, dtype, skip_init});
    int64_t *slot = guard->context.slot;
    slot[OLD_TYPE] = old.device.type;
    slot[OLD_INDEX] = old.device.index;
    slot[OLD_DTYPE] = old.dtype;
    slot[OLD_SKIP] = old.skip_init;
    slot[OLD_DEFAULT] = old_default;
    guard->leave = leave_init;
}

fabric_guard fabric_init_module(fabric *fab, int empty_init)
{
    fabric_guard guard = {.fab = fab};
    th_device device = {TH_DEVICE_NONE, 0};
    bool skip_init = false;
    if (th__pending() != TH_OK || !fabric__check_launched(fab, __func__)) return guard;
    if (fabric_strategy_module_init(fab->strategy, empty_init, &device, &skip_init) == TH_OK) enter_init(&guard, device, skip_init);
    return guard;
}

fabric_guard fabric_init_tensor(fabric *fab)
{
    fabric_guard guard = {.fab = fab};
    if (th__pending() != TH_OK || !fabric__check(fab, __func__)) return guard;
    enter_init(&guard, fabric_device(fab), false);
    return guard;
}
