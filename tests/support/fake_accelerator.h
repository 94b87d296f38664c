/* Accelerators and strategies that exist only in tests, so that choosing devices can be tested without hardware. */
#ifndef TEST_FAKE_ACCELERATOR_H
#define TEST_FAKE_ACCELERATOR_H

#include "accelerators/internal.h"
#include <cfabric/plugin/strategy.h>

/* ---- "tpu" as if TPUs were there: override the built-in name with it and unregister it afterwards. */

static int fake_tpu_count;
static inline bool fake_tpu_available(fabric_accelerator *a)
{
    (void)a;
    return fake_tpu_count > 0;
}
static inline int fake_tpu_auto(fabric_accelerator *a)
{
    (void)a;
    return fake_tpu_count;
}
static const fabric_accelerator_ops fake_tpu_ops = {
    .size = sizeof(fabric_accelerator_ops),
    .name = "tpu",
    .class_name = "XLAAccelerator",
    .is_available = fake_tpu_available,
    .auto_device_count = fake_tpu_auto,
    .device_type = TH_DEVICE_XLA,
};
static inline fabric_accelerator *fake_tpu_create(const char *preset)
{
    (void)preset;
    return fabric_accelerator_new(&fake_tpu_ops, NULL);
}
static const fabric_accelerator_entry fake_tpu_entry = {
    .size = sizeof(fabric_accelerator_entry), .name = "tpu", .create = fake_tpu_create, .override = true};

/* ---- a user's accelerator on the CPU with `preset` devices; counts what is asked of it */

static int fake_setups, fake_teardowns, fake_frees;
static inline int fake_auto(fabric_accelerator *a)
{
    (void)a;
    return 2;
}
static inline th_status fake_setup(fabric_accelerator *a, th_device d)
{
    (void)a, (void)d;
    fake_setups++;
    return TH_OK;
}
static inline th_status fake_teardown(fabric_accelerator *a)
{
    (void)a;
    fake_teardowns++;
    return TH_OK;
}
static inline void fake_free(void *self)
{
    (void)self;
    fake_frees++;
}
static const fabric_accelerator_ops fake_ops = {
    .size = sizeof(fabric_accelerator_ops),
    .name = "fake",
    .class_name = "FakeAccelerator",
    .auto_device_count = fake_auto,
    .setup_device = fake_setup,
    .teardown = fake_teardown,
    .device_type = TH_DEVICE_CPU,
    .free = fake_free,
};
static inline fabric_accelerator *fake_create(const char *preset)
{
    (void)preset;
    return fabric_accelerator_new(&fake_ops, NULL);
}
static const fabric_accelerator_entry fake_entry = {
    .size = sizeof(fabric_accelerator_entry), .name = "fake", .description = "for tests", .create = fake_create};

/* Makes the compiler accept that a test uses only some of them. */
static inline void fake_accelerator_unused(void) { (void)fake_tpu_entry, (void)fake_entry; }

#endif
