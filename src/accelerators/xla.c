/* accelerators/xla.c: "tpu" is a known name that answers why it cannot be used. */
#include "accelerators/internal.h"

static bool is_available(fabric_accelerator *accelerator)
{
    (void)accelerator;
    return false;
}

static const char *unavailable_reason(fabric_accelerator *accelerator)
{
    (void)accelerator;
    return "TPUs need PyTorch/XLA, which has no C or C++ interface";
}

static int parse_devices(fabric_accelerator *accelerator, const char *devices, th_device *out, size_t capacity)
{
    (void)out;
    (void)capacity;
    return TH__FAIL(TH_ERR_UNAVAILABLE, "devices='%s' is not possible with XLAAccelerator: %s",
                    devices != NULL ? devices : "(null)", unavailable_reason(accelerator));
}

static const fabric_accelerator_ops ops = {
    .size = sizeof(fabric_accelerator_ops),
    .name = "tpu",
    .class_name = "XLAAccelerator",
    .is_available = is_available,
    .unavailable_reason = unavailable_reason,
    .parse_devices = parse_devices,
    .device_type = TH_DEVICE_XLA,
};

static fabric_accelerator *create(const char *preset)
{
    (void)preset;
    return fabric_accelerator_new(&ops, NULL);
}

const fabric_accelerator_entry fabric__accelerator_tpu = {
    .size = sizeof(fabric_accelerator_entry), .name = "tpu", .description = "TPUs through PyTorch/XLA", .create = create};
