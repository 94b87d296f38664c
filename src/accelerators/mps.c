/* accelerators/mps.c: the GPU of Apple silicon. */
#include "accelerators/internal.h"

#define CLASS "MPSAccelerator"

static bool is_available(fabric_accelerator *accelerator)
{
    (void)accelerator;
    return fabric__mps_count() > 0;
}

static const char *unavailable_reason(fabric_accelerator *accelerator)
{
    (void)accelerator;
    return "it needs macOS on Apple silicon, a libtorch with MPS, and DISABLE_MPS not set to 1";
}

/* There is one GPU; devices are numbered from 0 whatever was named. */
static int parse_devices(fabric_accelerator *accelerator, const char *devices, th_device *out, size_t capacity)
{
    (void)accelerator;
    int ids[16];
    int n = fabric__parse_gpu_ids(devices, fabric__mps_count(), CLASS, ids, 16);
    for (int i = 0; i < n && (size_t)i < capacity; i++) out[i] = TH_DEVICE(TH_DEVICE_MPS, i);
    return n;
}

static th_status setup_device(fabric_accelerator *accelerator, th_device device)
{
    (void)accelerator;
    char text[32];
    if (device.type == TH_DEVICE_MPS) return TH_OK;
    return TH__FAIL(TH_ERR_VALUE, "device should be MPS, got %s instead", th_device_format(device, text, sizeof text));
}

static const fabric_accelerator_ops ops = {
    .size = sizeof(fabric_accelerator_ops),
    .name = "mps",
    .class_name = CLASS,
    .is_available = is_available,
    .unavailable_reason = unavailable_reason,
    .parse_devices = parse_devices,
    .setup_device = setup_device,
    .device_type = TH_DEVICE_MPS,
};

static fabric_accelerator *create(const char *preset)
{
    (void)preset;
    return fabric_accelerator_new(&ops, NULL);
}

const fabric_accelerator_entry fabric__accelerator_mps = {
    .size = sizeof(fabric_accelerator_entry), .name = "mps", .description = "the GPU of Apple silicon", .create = create};
