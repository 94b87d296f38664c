/* fabric/connector.c: runs the connector's steps in order and binds the parts to the strategy. */
#include "fabric/connector_internal.h"

#include "base/memory.h"
#include "precision/internal.h"
#include <stdlib.h>

const char *fabric__choices_text(fabric__choices *choices, const char *text)
{
    if (choices->n_owned == sizeof choices->owned / sizeof choices->owned[0]) {
        TH__FAIL(TH_ERR_INTERNAL, "the connector holds too many texts");
        return NULL;
    }
    char *copy = th__strdup(text);
    if (copy != NULL) choices->owned[choices->n_owned++] = copy;
    return copy;
}

const char *fabric__accelerator_class(fabric_accelerator *accelerator)
{
    const fabric_accelerator_ops *ops = fabric_accelerator_ops_of(accelerator);
    return ops == NULL ? "" : ops->class_name != NULL ? ops->class_name : ops->name;
}

static void free_plugin(fabric_plugin plugin)
{
    switch (plugin.kind) {
    case FABRIC_PLUGIN_PRECISION: fabric_precision_free(plugin.object); break;
    case FABRIC_PLUGIN_CHECKPOINT_IO: fabric_checkpoint_io_free(plugin.object); break;
    case FABRIC_PLUGIN_ENVIRONMENT: fabric_environment_free(plugin.object); break;
    case FABRIC_PLUGIN_NONE: break;
    }
}

static void release(fabric__choices *choices)
{
    fabric_accelerator_free(choices->accelerator_object);
    fabric_strategy_free(choices->strategy_object);
    fabric_precision_free(choices->precision_object);
    fabric_checkpoint_io_free(choices->checkpoint_io);
    fabric_environment_free(choices->environment);
    free(choices->parallel_devices);
    for (size_t i = 0; i < choices->n_owned; i++) free(choices->owned[i]);
}

static th_status decide(fabric__choices *choices, fabric_plugins plugins)
{
    TH__TRY(fabric__apply_environment(choices));
    TH__TRY(fabric__check_strategy_name(choices));
    TH__TRY(fabric__check_accelerator_name(choices));
    TH__TRY(fabric__check_mps_conflict(choices));
    TH__TRY(fabric__normalize_precision(choices));
    TH__TRY(fabric__take_plugins(choices, plugins));
    TH__TRY(fabric__take_strategy_parts(choices));
    TH__TRY(fabric__check_devices(choices));
    TH__TRY(fabric__choose_accelerator(choices));
    TH__TRY(fabric__choose_devices(choices));
    TH__TRY(fabric__choose_environment(choices));
    TH__TRY(fabric__choose_strategy(choices));
    return fabric__choose_precision(choices);
}

/* The setters take over what they are given; what the strategy brought itself stays. */
static th_status bind(fabric__choices *choices)
{
    fabric_strategy *strategy = choices->strategy_object;
    if (fabric_strategy_accelerator(strategy) == NULL)
        TH__TRY(fabric_strategy_set_accelerator(strategy, fabric_accelerator_retain(choices->accelerator_object)));
    if (fabric_strategy_precision(strategy) == NULL)
        TH__TRY(fabric_strategy_set_precision(strategy, fabric_precision_retain(choices->precision_object)));
    if (fabric_strategy_checkpoint_io(strategy) == NULL && choices->checkpoint_io != NULL)
        TH__TRY(fabric_strategy_set_checkpoint_io(strategy, fabric_checkpoint_io_retain(choices->checkpoint_io)));
    if (fabric_strategy_environment(strategy) == NULL)
        TH__TRY(fabric_strategy_set_environment(strategy, fabric_environment_retain(choices->environment)));
    if (fabric_strategy_parallel_devices(strategy).size == 0) {
        fabric_devices devices = {choices->parallel_devices, choices->n_parallel_devices};
        TH__TRY(fabric_strategy_set_parallel_devices(strategy, devices));
    }
    TH__TRY(fabric_strategy_set_num_nodes(strategy, choices->num_nodes));
    fabric__precision_bind(choices->precision_object, strategy);
    return fabric_strategy_validate(strategy);
}

fabric_strategy *fabric__connector_resolve(const struct fabric_new_args *args)
{
    fabric__choices choices = {
        .accelerator = args->accelerator,
        .strategy = args->strategy,
        .devices = args->devices,
        .num_nodes = args->num_nodes,
        .precision = args->precision,
        .accelerator_object = args->accelerator_object,
        .strategy_object = args->strategy_object,
    };
    fabric_strategy *strategy = NULL;
    if (th__pending() == TH_OK && decide(&choices, args->plugins) == TH_OK && bind(&choices) == TH_OK)
        strategy = fabric_strategy_retain(choices.strategy_object);
    for (size_t i = 0; i < args->plugins.size; i++) free_plugin(args->plugins.data[i]); /* take_plugins retained what it uses */
    release(&choices);
    return strategy;
}
