/* strategies/single_device.c: one process on one device. Everything else is the default. */
#include "strategies/internal.h"

static th_status no_backward_sync(fabric_strategy *strategy, th_module *module, void *state, bool enter)
{
    (void)strategy, (void)module, (void)state, (void)enter;
    return TH_OK;    /* nothing is ever synchronised, so there is nothing to say */
}

static const fabric_strategy_ops single_device_ops = {
    .size = sizeof single_device_ops,
    .name = "SingleDeviceStrategy",
    .single_process = true,
    .no_backward_sync = no_backward_sync,
};

fabric_strategy *fabric_strategy_single_device(th_device device)
{
    fabric_strategy *s = fabric_strategy_new(&single_device_ops, NULL);
    if (s == NULL)
        return NULL;
    if (device.type == TH_DEVICE_NONE)
        device = TH_CPU;
    if (fabric_strategy_set_parallel_devices(s, (fabric_devices){&device, 1}) != TH_OK) {
        fabric_strategy_free(s);
        return NULL;
    }
    return s;
}
