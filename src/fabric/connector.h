/* fabric/connector.h: from the flags of fabric_new and the environment to a strategy with all its parts. */
#ifndef FABRIC_FABRIC_CONNECTOR_H
#define FABRIC_FABRIC_CONNECTOR_H

#include <cfabric/fabric.h>

/* Resolves accelerator, strategy, devices, num_nodes, precision and plugins. The objects among the arguments (plugins,
 * accelerator_object, strategy_object) are consumed, also on error; callbacks and loggers are not looked at. The result has
 * accelerator, precision, checkpoint IO (NULL until the checkpoint room registers one), environment, parallel devices and
 * num_nodes bound and has passed fabric_strategy_validate. [owned], NULL with an error raised. */
fabric_strategy *fabric__connector_resolve(const struct fabric_new_args *args);
/* True when LT_CLI_USED says that `fabric run` has started this process. */
bool fabric__connector_cli_used(void);

#endif
