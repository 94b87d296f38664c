/* fabric/launch.c: fabric_launch: from one process to all of them. */
#include "fabric/internal.h"
#include "strategies/internal.h"

static th_status set_up_environment(fabric *fab)
{
    if (fab->launched) return TH_OK;
    TH__TRY(fabric_strategy_setup_environment(fab->strategy));
    fab->launched = true;
    return TH_OK;
}

static th_status check_not_under_cli(fabric *fab, const char *function)
{
    if (!fab->under_cli) return TH_OK;
    return th__fail(TH_ERR_RUNTIME, function, "this program was started by 'fabric run', which has launched it already: remove the call");
}

bool fabric_is_launched(fabric *fab)
{
    return fabric__check(fab, __func__) && fab->launched;
}

th_status fabric_launch(fabric *fab)
{
    FABRIC__ENTER(fab);
    TH__TRY(check_not_under_cli(fab, __func__));
    return set_up_environment(fab);
}

th_value *fabric_launch_fn(fabric *fab, fabric_entry function, void *user)
{
    FABRIC__ENTER_NULL(fab);
    TH__TRY_NULL(check_not_under_cli(fab, __func__));
    if (function == NULL) {
        TH__FAIL(TH_ERR_TYPE, "the function is NULL: pass the function to run in every process");
        return NULL;
    }
    TH__TRY_NULL(set_up_environment(fab));
    return function(fab, user);
}
