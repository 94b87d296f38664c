/* fabric/save.c: fabric_save, fabric_load, fabric_load_raw. The strategy decides who writes what. */
#include "checkpoint/internal.h"
#include "fabric/internal.h"
#include "strategies/internal.h"

/* One rank's failure is everybody's, so that all go on alike: nobody waits for a rank that gave up, and a program may handle the error. With an
 * error of its own a rank takes part as well, which no other collective allows. */
static th_status agree(fabric *fab, const char *what)
{
    th__saved_error mine;
    th__error_suspend(&mine);
    bool all = fabric_strategy_reduce_boolean_decision(fab->strategy, mine.status == TH_OK, true);
    if (!all && th__pending() == TH_OK && fabric_strategy_world_size(fab->strategy) > 1) {
        th_value *said = fabric_strategy_broadcast(fab->strategy, th_value_int(mine.status), 0); /* rank 0 writes: its reason counts */
        th_status first = (th_status)th_value_as_int(said, TH_OK);
        th_value_free(said);
        if (mine.status == TH_OK && first != TH_OK) TH__FAIL(first, "rank 0 could not %s (its own message says why)", what);
        else if (mine.status == TH_OK) TH__FAIL(TH_ERR_DISTRIBUTED, "another rank could not %s", what);
    }
    th__error_resume(&mine);
    return th__pending();
}

static th_status save(const struct fabric_save_args *args)
{
    FABRIC__ENTER_LAUNCHED(args->fab);
    if (args->path == NULL || args->path[0] == '\0') return TH__FAIL(TH_ERR_VALUE, "the path is empty");
    if (th_value_kind_of(args->state) != TH_VALUE_DICT && th_value_kind_of(args->state) != TH_VALUE_OBJECT)
        return TH__FAIL(TH_ERR_TYPE, "the state is a %s, expected a dict", th_value_kind_name(th_value_kind_of(args->state)));
    fabric_save_options options = {.filter = args->filter, .async = args->async};
    fabric_strategy_save_checkpoint(args->fab->strategy, args->path, args->state, &options);
    TH__TRY(agree(args->fab, "save the checkpoint"));
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
    if (args.state != NULL && th_value_kind_of(args.state) != TH_VALUE_DICT) {
        TH__FAIL(TH_ERR_TYPE, "the state is a %s, expected a dict; fabric_load_raw restores a single object",
                 th_value_kind_name(th_value_kind_of(args.state)));
        return NULL;
    }
    th_value *rest = fabric_strategy_load_checkpoint(args.fab->strategy, args.path, args.state, args.strict);
    if (agree(args.fab, "load the checkpoint") == TH_OK && fabric_strategy_barrier(args.fab->strategy, "load") == TH_OK) return rest;
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
