/* precision/half.c: "16-true" and "bf16-true": weights, inputs and new tensors in 16 bits. And the names that nothing here can
 * do. */
#include "precision/internal.h"

#include "bridge/bridge.h"
#include <cfabric/nn.h>
#include <string.h>

/* `self` is the address of one of these. */
static const th_dtype float16 = TH_FLOAT16, bfloat16 = TH_BFLOAT16;

static th_dtype dtype_of(fabric_precision *precision) { return *(const th_dtype *)fabric_precision_self(precision); }

static th_status convert_module(fabric_precision *precision, th_module *module)
{
    return th_module_to(module, (th_device){0}, dtype_of(precision));
}

static th_tensor *convert_input(fabric_precision *precision, th_tensor *tensor)
{
    return fabric__convert_floating(tensor, dtype_of(precision));
}

static th_tensor *convert_output(fabric_precision *precision, th_tensor *tensor)
{
    (void)precision;
    return fabric__convert_floating(tensor, th_get_default_dtype());
}

static th_status forward_enter(fabric_precision *precision, fabric_context *context)
{
    return fabric__default_dtype_enter(dtype_of(precision), context);
}

static void forward_exit(fabric_precision *precision, const fabric_context *context)
{
    (void)precision;
    fabric__default_dtype_exit(context);
}

#define HALF_OPS(text)                                                                                                           \
    {                                                                                                                            \
        .size = sizeof(fabric_precision_ops), .name = (text), .class_name = "HalfPrecision", .convert_module = convert_module,   \
        .convert_input = convert_input, .convert_output = convert_output, .forward_enter = forward_enter,                        \
        .forward_exit = forward_exit, .init_dtype = dtype_of, .compute_dtype = dtype_of,                                         \
    }
static const fabric_precision_ops float16_ops = HALF_OPS("16-true"), bfloat16_ops = HALF_OPS("bf16-true");

fabric_precision *fabric_precision_half(const char *precision, th_device_type device)
{
    TH__CHECK_PENDING_NULL();
    if (precision != NULL && strcmp(precision, "bf16-true") == 0) return fabric_precision_new(&bfloat16_ops, (void *)&bfloat16);
    if (precision == NULL || strcmp(precision, "16-true") != 0) {
        TH__FAIL(TH_ERR_VALUE, "half precision '%s' is not known; expected '16-true' or 'bf16-true'",
                 precision != NULL ? precision : "(null)");
        return NULL;
    }
    if ((device == TH_DEVICE_CPU || device == TH_DEVICE_NONE) && !th__half_works_on_cpu()) {
        TH__FAIL(TH_ERR_UNAVAILABLE,
                 "precision '16-true' is not available on the CPU: libtorch %s has no float16 matrix products there; "
                 "choose 'bf16-true'",
                 th_torch_version());
        return NULL;
    }
    return fabric_precision_new(&float16_ops, (void *)&float16);
}

fabric_precision *fabric__precision_half(const char *preset, th_device_type device)
{
    return fabric_precision_half(preset, device);
}

fabric_precision *fabric__precision_unavailable(const char *preset, th_device_type device)
{
    (void)device;
    bool engine = strncmp(preset, "transformer-engine", 18) == 0;
    TH__FAIL(TH_ERR_UNAVAILABLE, "precision '%s' is not available here because %s; choose 'bf16-mixed' or 'bf16-true'", preset,
             engine ? "NVIDIA's Transformer Engine swaps Python modules and needs a Hopper GPU"
                    : "bitsandbytes replaces Python's Linear modules and has no C interface for training");
    return NULL;
}
