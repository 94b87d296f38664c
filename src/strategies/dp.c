/* strategies/dp.c: "dp", one process that splits batches over several GPUs. On the CPU the connector turns it into ddp. */
#include "strategies/internal.h"

fabric_strategy *fabric__strategy_dp_create(const char *preset)
{
    (void)preset;
    th__fail(TH_ERR_UNAVAILABLE, "fabric_new", "strategy 'dp' is not available here: it needs several GPUs in one process; use 'ddp'");
    return NULL;
}
