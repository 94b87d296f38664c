/* accelerators/cpu.c: the processor. Always there; N devices are N processes on it. */
#include "accelerators/internal.h"

static th_status setup_device(fabric_accelerator *accelerator, th_device device)
{
    (void)accelerator;
    char text[32];
    if (device.type == TH_DEVICE_CPU) return TH_OK;
    return TH__FAIL(TH_ERR_VALUE, "device should be cpu, got %s instead", th_device_format(device, text, sizeof text));
}

static const fabric_accelerator_ops ops = {
    .size = sizeof(fabric_accelerator_ops),
    .name = "cpu",
    .class_name = "CPUAccelerator",
    .setup_device = setup_device,
    .device_type = TH_DEVICE_CPU,
};

static fabric_accelerator *create(const char *preset)
{
    (void)preset;
    return fabric_accelerator_new(&ops, NULL);
}

const fabric_accelerator_entry fabric__accelerator_cpu = {
    .size = sizeof(fabric_accelerator_entry), .name = "cpu", .description = "the processor", .create = create};
