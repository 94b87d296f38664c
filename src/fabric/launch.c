/* fabric/launch.c: fabric_launch: from one process to all of them. The launchers make them; here is what each does afterwards. */
#include "dist/internal.h"
#include "fabric/internal.h"
#include "strategies/internal.h"
#include "tensor/internal.h"
#include <cfabric/plugin/launcher.h>
#include <stdlib.h>

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

static void set_num_threads(int threads)
{
    (void)th_set_num_threads(threads);
}

static fabric_launch_request request_of(fabric *fab)
{
    fabric_devices devices = fabric_strategy_parallel_devices(fab->strategy);
    return (fabric_launch_request){
        .size = sizeof(fabric_launch_request),
        .num_processes = devices.size > 0 ? (int)devices.size : 1,
        .num_nodes = fabric_strategy_num_nodes(fab->strategy),
        .environment = fabric_strategy_environment(fab->strategy),
        .tensors_have_run = th__tensors_have_run,
        .set_num_threads = set_num_threads,
    };
}

bool fabric_is_launched(fabric *fab)
{
    return fabric__check(fab, __func__) && fab->launched;
}

th_status fabric_launch(fabric *fab)
{
    FABRIC__ENTER(fab);
    TH__TRY(check_not_under_cli(fab, __func__));
    const char *launcher = fabric_strategy_launcher(fab->strategy);
    if (launcher[0] != '\0') {
        if (fab->launched) return TH__FAIL(TH_ERR_RUNTIME, "fabric_launch has been called already");
        fabric_launch_request request = request_of(fab);
        TH__TRY(fabric_launcher_launch(launcher, &request, NULL));
    }
    return set_up_environment(fab);
}

/* ---- with a function */

typedef struct call {
    fabric *fab;
    fabric_entry function;
    void *user;
} call;

/* In a worker of the spawn and fork launchers, whose results come back to another process. */
static th_status run_in_worker(void *user, fabric_launch_result *result)
{
    call *c = user;
    TH__TRY(set_up_environment(c->fab));
    th_value *value = c->function(c->fab, c->user);
    if (th__pending() == TH_OK && value != NULL && fabric_global_rank(c->fab) == 0) {
        char *data = NULL;
        if (th__wire_encode(value, &data, &result->size) == TH_OK) result->data = data;
    }
    th_value_free(value);
    return th__pending();
}

static th_value *launch_workers(call *c, const char *launcher)
{
    fabric_launch_request request = request_of(c->fab);
    request.function = run_in_worker;
    request.user = c;
    fabric_launch_result result = {0};
    TH__TRY_NULL(fabric_launcher_launch(launcher, &request, &result));
    th_value *value = result.data != NULL ? th__wire_decode(result.data, result.size) : NULL;
    free(result.data);
    return value;
}

th_value *fabric_launch_fn(fabric *fab, fabric_entry function, void *user)
{
    FABRIC__ENTER_NULL(fab);
    TH__TRY_NULL(check_not_under_cli(fab, __func__));
    if (function == NULL) {
        TH__FAIL(TH_ERR_TYPE, "the function is NULL: pass the function to run in every process");
        return NULL;
    }
    const char *launcher = fabric_strategy_launcher(fab->strategy);
    const fabric_launcher_ops *ops = launcher[0] != '\0' ? fabric_launcher_find(launcher) : NULL;
    TH__CHECK_PENDING_NULL();
    if (ops != NULL && ops->needs_function) return launch_workers(&(call){fab, function, user}, launcher);
    TH__TRY_NULL(fabric_launch(fab));
    return function(fab, user);
}
