/* strategies/ddp.c: data parallel training with one process per device. */
#include "strategies/internal.h"

fabric_strategy *fabric__strategy_ddp_create(const char *preset)
{
    (void)preset;
    th__fail(TH_ERR_UNAVAILABLE, "fabric_new", "strategy 'ddp' is not available yet");
    return NULL;
}
