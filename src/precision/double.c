/* precision/double.c: "64-true" (float64 throughout) and "32-true" (nothing to do), and the default dtype as a context. */
#include "precision/internal.h"

#include "bridge/bridge.h"
#include <cfabric/nn.h>
#include <cfabric/ops.h>

th_tensor *fabric__convert_floating(th_tensor *tensor, th_dtype dtype)
{
    th_dtype from = th_dtype_of(tensor);
    TH__CHECK_PENDING_NULL();
    return from == dtype || !th_dtype_is_floating_point(from) ? tensor : th_to_dtype(tensor, dtype);
}

th_status fabric__default_dtype_enter(th_dtype dtype, fabric_context *context)
{
    context->slot[0] = th_get_default_dtype();
    return th_set_default_dtype(dtype);
}

void fabric__default_dtype_exit(const fabric_context *context)
{
    if (context->slot[0] != TH_DTYPE_NONE) th__restore_default_dtype((th_dtype)context->slot[0]);
}

/* ---- 32-true */

static const fabric_precision_ops full_ops = {.size = sizeof(fabric_precision_ops), .name = "32-true", .class_name = "Precision"};

fabric_precision *fabric__precision_full(const char *preset, th_device_type device)
{
    (void)preset;
    (void)device;
    return fabric_precision_new(&full_ops, NULL);
}

/* ---- 64-true */

static th_status convert_module(fabric_precision *precision, th_module *module)
{
    (void)precision;
    return th_module_to(module, (th_device){0}, TH_FLOAT64);
}

static th_tensor *convert_input(fabric_precision *precision, th_tensor *tensor)
{
    (void)precision;
    return fabric__convert_floating(tensor, TH_FLOAT64);
}

static th_tensor *convert_output(fabric_precision *precision, th_tensor *tensor)
{
    (void)precision;
    return fabric__convert_floating(tensor, th_get_default_dtype());
}

static th_status forward_enter(fabric_precision *precision, fabric_context *context)
{
    (void)precision;
    return fabric__default_dtype_enter(TH_FLOAT64, context);
}

static void forward_exit(fabric_precision *precision, const fabric_context *context)
{
    (void)precision;
    fabric__default_dtype_exit(context);
}

static th_dtype dtype(fabric_precision *precision)
{
    (void)precision;
    return TH_FLOAT64;
}

static const fabric_precision_ops double_ops = {
    .size = sizeof(fabric_precision_ops),
    .name = "64-true",
    .class_name = "DoublePrecision",
    .convert_module = convert_module,
    .convert_input = convert_input,
    .convert_output = convert_output,
    .forward_enter = forward_enter,
    .forward_exit = forward_exit,
    .init_dtype = dtype,
    .compute_dtype = dtype,
};

fabric_precision *fabric_precision_double(void) { return fabric_precision_new(&double_ops, NULL); }

fabric_precision *fabric__precision_double(const char *preset, th_device_type device)
{
    (void)preset;
    if (device != TH_DEVICE_MPS) return fabric_precision_double();
    TH__FAIL(TH_ERR_UNAVAILABLE, "precision '64-true' is not available on MPS, which has no float64");
    return NULL;
}
