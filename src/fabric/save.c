/* fabric/save.c: fabric_save, fabric_load, fabric_load_raw. The strategy decides who writes what. */
#include "checkpoint/internal.h"
#include "fabric/internal.h"
#include "strategies/internal.h"

static th_status save(const struct fabric_save_args *args)
{
    FABRIC__ENTER_LAUNCHED(args->fab);
    if (args->path == NULL || args->path[0] == '\0') return TH__FAIL(TH_ERR_VALUE, "the path is empty");
    if (th_value_kind_of(args->state) != TH_VALUE_DICT && th_value_kind_of(args->state) != TH_VALUE_OBJECT)
        return TH__FAIL(TH_ERR_TYPE, "the state is a %s, expected a dict", th_value_kind_name(th_value_kind_of(args->state)));
    fabric_save_options options = {.filter = args->filter, .async = args->async};
    TH__TRY(fabric_strategy_save_checkpoint(args->fab->strategy, args->path, args->state, &options));
    return fabric_strategy_barrier(args->fab->strategy, "save");
}

th_status fabric_save_call(struct fabric_save_args args)
{
    th_status status = save(&args);
    th_value_free(args.state);
    return status;
}

th_status fabric__wait_for_saves(void)
{
    return th__checkpoint_wait();
}

th_status fabric_save_wait(fabric *fab)
{
    FABRIC__ENTER(fab);
    return fabric__wait_for_saves();
}

th_value *fabric_load_call(struct fabric_load_args args)
{
    FABRIC__ENTER_LAUNCHED_NULL(args.fab);
    if (args.path == NULL || args.path[0] == '\0') {
        TH__FAIL(TH_ERR_VALUE, "the path is empty");
        return NULL;
    }
    th_value *rest = fabric_strategy_load_checkpoint(args.fab->strategy, args.path, args.state, args.strict);
    if (rest != NULL && fabric_strategy_barrier(args.fab->strategy, "load") == TH_OK) return rest;
    th_value_free(rest);
    return NULL;
}

th_status fabric_load_raw_call(struct fabric_load_args args)
{
    th_status status = th__pending();
    if (status == TH_OK && fabric__check(args.fab, __func__))
        fabric_strategy_load_raw(args.fab->strategy, args.path, args.state, args.strict);
    th_value_free(args.state);
    return th__pending();
}
