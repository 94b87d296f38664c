/* fabric/connector.c: from the flags of fabric_new and the environment to a strategy with all its parts. */
#include "base/env.h"
#include "fabric/connector.h"
#include "fabric/internal.h"
#include <string.h>

bool fabric__connector_cli_used(void)
{
    bool used = false;
    th__env_bool("LT_CLI_USED", false, &used);
    return used;
}

/* So far: one CPU, 32-true. */
fabric_strategy *fabric__connector_resolve(const struct fabric_new_args *args)
{
    TH__CHECK_PENDING_NULL();
    if (args->strategy != NULL && strcmp(args->strategy, "auto") != 0) return fabric_strategy_create(args->strategy);
    fabric_strategy *s = fabric_strategy_single_device(TH_CPU);
    if (s == NULL) return NULL;
    fabric_strategy_set_accelerator(s, fabric_accelerator_create("cpu"));
    fabric_strategy_set_precision(s, fabric_precision_create("32-true", TH_DEVICE_CPU));
    fabric_strategy_set_environment(s, fabric_environment_detect());
    if (fabric_strategy_validate(s) == TH_OK) return s;
    fabric_strategy_free(s);
    return NULL;
}
