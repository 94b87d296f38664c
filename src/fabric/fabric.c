/* fabric/fabric.c: making a Fabric, its properties. Its end is in finish.c. */
#include "fabric/connector.h"
#include "fabric/internal.h"
#include "launch/job.h"
#include "strategies/internal.h"
#include "tensor/internal.h"

int fabric__list_add(fabric__list *list, void *item)
{
    return TH__PUSH(list->items, list->size, list->capacity, item);
}

bool fabric__check(const fabric *fab, const char *function)
{
    if (TH__LIKELY(fab != NULL && fab->magic == FABRIC__LIVE)) return true;
    if (th__pending() != TH_OK) return false;
    if (fab == NULL) th__fail(TH_ERR_TYPE, function, "the Fabric is NULL");
    else if (fab->magic == FABRIC__FINISHED)
        th__fail(TH_ERR_RUNTIME, function, "fabric_finish has ended this Fabric; make a new one with fabric_new");
    else th__fail(TH_ERR_TYPE, function, "this is not a Fabric");
    return false;
}

bool fabric__check_launched(const fabric *fab, const char *function)
{
    if (!fabric__check(fab, function)) return false;
    if (fab->launched || fabric__strategy_single_process(fab->strategy)) return true;
    th__fail(TH_ERR_RUNTIME, function, "%s works with several processes: call fabric_launch before this", fab->strategy->ops->name);
    return false;
}

/* ---- making one */

static void free_plugins(fabric_plugins plugins)
{
    for (size_t i = 0; i < plugins.size; i++) {
        void *object = plugins.data[i].object;
        if (plugins.data[i].kind == FABRIC_PLUGIN_PRECISION) fabric_precision_free(object);
        if (plugins.data[i].kind == FABRIC_PLUGIN_CHECKPOINT_IO) fabric_checkpoint_io_free(object);
        if (plugins.data[i].kind == FABRIC_PLUGIN_ENVIRONMENT) fabric_environment_free(object);
    }
}

/* What fabric_new was handed and cannot use because an error came first. */
static void free_handed_over(const struct fabric_new_args *args)
{
    free_plugins(args->plugins);
    fabric_accelerator_free(args->accelerator_object);
    fabric_strategy_free(args->strategy_object);
}

static th_status take_loggers_and_callbacks(fabric *fab, const struct fabric_new_args *args)
{
    for (size_t i = 0; i < args->loggers.size; i++) {
        if (args->loggers.data[i] == NULL) return TH__FAIL(TH_ERR_TYPE, "logger %zu is NULL", i);
        if (fabric__list_add(&fab->loggers, args->loggers.data[i]) != 0) return th__pending();
        fabric_logger_retain(args->loggers.data[i]);
    }
    for (size_t i = 0; i < args->callbacks.size; i++) TH__TRY(fabric_add_callback(fab, args->callbacks.data[i]));
    return TH_OK;
}

/* Under `fabric run` the processes exist already; do they agree with what is asked for here? */
static th_status join_processes(fabric *fab)
{
    fabric_strategy *strategy = fab->strategy;
    size_t devices = fabric_strategy_parallel_devices(strategy).size;
    if (fabric_strategy_launcher(strategy)[0] != '\0')
        TH__TRY(fabric_environment_validate_settings(fabric_strategy_environment(strategy), devices > 0 ? (int)devices : 1,
                                                     fabric_strategy_num_nodes(strategy)));
    return fabric_strategy_setup_environment(strategy);
}

fabric *fabric_new_call(struct fabric_new_args args)
{
    fabric *fab = th__pending() == TH_OK ? th__calloc(1, sizeof *fab) : NULL;
    fabric__fork_guard_install(th__tensors_have_run);
    if (fab == NULL) {
        free_handed_over(&args);
    } else {
        fab->magic = FABRIC__LIVE;
        if (take_loggers_and_callbacks(fab, &args) == TH_OK) fab->strategy = fabric__connector_resolve(&args);
        else free_handed_over(&args);
    }
    for (size_t i = 0; i < args.loggers.size; i++) fabric_logger_free(args.loggers.data[i]);
    if (fab == NULL) return NULL;
    fab->under_cli = fabric__connector_cli_used();
    if (th__pending() == TH_OK && fab->under_cli) fab->launched = join_processes(fab) == TH_OK;
    if (th__pending() == TH_OK) return fab;
    fabric_finish(fab);
    return NULL;
}

/* ---- properties */

fabric_strategy *fabric_strategy_of(fabric *fab)
{
    return fabric__check(fab, __func__) ? fab->strategy : NULL;
}

fabric_accelerator *fabric_accelerator_of(fabric *fab)
{
    return fabric__check(fab, __func__) ? fab->strategy->accelerator : NULL;
}

fabric_precision *fabric_precision_of(fabric *fab)
{
    return fabric__check(fab, __func__) ? fab->strategy->precision : NULL;
}

th_device fabric_device(fabric *fab)
{
    return fabric__check(fab, __func__) ? fabric_strategy_root_device(fab->strategy) : TH_CPU;
}

int fabric_global_rank(fabric *fab)
{
    return fabric__check(fab, __func__) ? fabric_strategy_global_rank(fab->strategy) : -1;
}

int fabric_local_rank(fabric *fab)
{
    return fabric__check(fab, __func__) ? fabric_strategy_local_rank(fab->strategy) : -1;
}

int fabric_node_rank(fabric *fab)
{
    return fabric__check(fab, __func__) ? fabric_strategy_node_rank(fab->strategy) : -1;
}

int fabric_world_size(fabric *fab)
{
    return fabric__check(fab, __func__) ? fabric_strategy_world_size(fab->strategy) : -1;
}

bool fabric_is_global_zero(fabric *fab)
{
    return fabric_global_rank(fab) == 0;
}

size_t fabric_n_loggers(fabric *fab)
{
    return fabric__check(fab, __func__) ? fab->loggers.size : 0;
}

fabric_logger *fabric_logger_at(fabric *fab, size_t i)
{
    FABRIC__ENTER_NULL(fab);
    if (i < fab->loggers.size) return fab->loggers.items[i];
    TH__FAIL(TH_ERR_VALUE, "logger %zu was asked for, but there are %zu", i, fab->loggers.size);
    return NULL;
}
