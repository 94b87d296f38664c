/* fabric/backward.c: gradients: backward through strategy and precision, clipping, skipping synchronisation. */
#include "fabric/internal.h"
#include "strategies/internal.h"
#include <stdatomic.h>

/* Process-wide, not per thread: backward nodes of GPU tensors run on libtorch's own threads. */
static atomic_int backwards_under_way;

bool fabric__in_backward(void)
{
    return atomic_load(&backwards_under_way) > 0;
}

th_status fabric_backward_call(struct fabric_backward_args args)
{
    FABRIC__ENTER(args.fab);
    if (args.tensor == NULL) return TH__FAIL(TH_ERR_TYPE, "the tensor is NULL, expected a loss");
    struct th_backward_args backward = {
        .tensor = args.tensor,
        .gradient = args.gradient,
        .retain_graph = args.retain_graph,
        .create_graph = args.create_graph,
        .inputs = args.inputs,
    };
    atomic_fetch_add(&backwards_under_way, 1);
    th_status status = fabric_strategy_backward(args.fab->strategy, args.model, &backward);
    atomic_fetch_sub(&backwards_under_way, 1);
    return status;
}

th_tensor *fabric_clip_gradients_call(struct fabric_clip_gradients_args args)
{
    FABRIC__ENTER_NULL(args.fab);
    bool by_value = !isnan(args.clip_val), by_norm = !isnan(args.max_norm);
    if (by_value && by_norm) {
        TH__FAIL(TH_ERR_VALUE, "clip_val is %g and max_norm is %g, expected only one of them", args.clip_val, args.max_norm);
        return NULL;
    }
    if (!by_value && !by_norm) {
        TH__FAIL(TH_ERR_VALUE, "neither clip_val nor max_norm was given, expected one of them");
        return NULL;
    }
    if (by_norm)
        return fabric_strategy_clip_gradients_norm(args.fab->strategy, args.module, args.optimizer, args.max_norm, args.norm_type,
                                                   args.error_if_nonfinite);
    fabric_strategy_clip_gradients_value(args.fab->strategy, args.module, args.optimizer, args.clip_val);
    return NULL;
}

static void leave_no_sync(fabric_guard *guard)
{
    void *state = NULL;
    if (fabric__module_state(guard->object, &state))
        fabric_strategy_no_backward_sync(guard->fab->strategy, guard->object, state, false);
}

fabric_guard fabric_no_backward_sync(fabric *fab, th_module *module, bool enabled)
{
    fabric_guard guard = {.fab = fab, .object = module};
    void *state = NULL;
    if (th__pending() != TH_OK || !fabric__check(fab, __func__)) return guard;
    if (!fabric__module_state(module, &state)) {
        TH__FAIL(TH_ERR_TYPE, "the module is not set up: call fabric_setup or fabric_setup_module with it first");
        return guard;
    }
    if (enabled && fabric_strategy_no_backward_sync(fab->strategy, module, state, true) == TH_OK) guard.leave = leave_no_sync;
    return guard;
}

void fabric_leave(fabric_guard *guard)
{
    void (*leave)(fabric_guard *) = guard->leave;
    guard->leave = NULL;
    if (leave != NULL && guard->fab->magic == FABRIC__LIVE) leave(guard);
}
