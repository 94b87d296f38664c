/* strategies/unavailable.c: names that are known and cannot be had here, each with the reason. */
#include "base/strings.h"
#include "strategies/internal.h"

static const char *reason(const char *name)
{
    if (th__starts_with(name, "fsdp"))
        return "sharded training is not part of this version of cfabric";
    if (th__starts_with(name, "deepspeed"))
        return "DeepSpeed has no C interface, and ZeRO is not part of this version of cfabric";
    return "PyTorch/XLA has no C interface";
}

fabric_strategy *fabric__strategy_unavailable(const char *preset)
{
    th__fail(TH_ERR_UNAVAILABLE, "fabric_new", "strategy '%s' is not available here: %s; use 'ddp'", preset, reason(preset));
    return NULL;
}
