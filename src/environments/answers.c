/* environments/answers.c: asking an environment object, with the stated default for every slot that its table leaves out. */
#include "environments/internal.h"

#define OPS_OR_RETURN(failed)                                                                                                    \
    void *self = NULL;                                                                                                           \
    const fabric_environment_ops *ops = fabric__environment_ops_of(environment, __func__, &self);                                \
    if (ops == NULL) return (failed)

/* A negative answer without an error of its own still has to be an error. */
static int checked(int value, const fabric_environment_ops *ops, const char *function, const char *what)
{
    if (value < 0 && th__pending() == TH_OK)
        th__fail(TH_ERR_RUNTIME, function, "environment '%s' gave %d as its %s; expected 0 or more", ops->name, value, what);
    return th__pending() == TH_OK ? value : -1;
}

const char *fabric_environment_name(fabric_environment *environment)
{
    OPS_OR_RETURN("");
    return ops->name;
}

const char *fabric_environment_type_name(fabric_environment *environment)
{
    OPS_OR_RETURN("");
    return ops->type_name != NULL ? ops->type_name : ops->name;
}

bool fabric_environment_creates_processes_externally(fabric_environment *environment)
{
    OPS_OR_RETURN(false);
    return ops->creates_processes_externally == NULL || ops->creates_processes_externally(self);
}

const char *fabric_environment_main_address(fabric_environment *environment)
{
    OPS_OR_RETURN(NULL);
    const char *address = ops->main_address(self);
    if (address == NULL && th__pending() == TH_OK) TH__FAIL(TH_ERR_RUNTIME, "environment '%s' gave no main address", ops->name);
    return th__pending() == TH_OK ? address : NULL;
}

int fabric_environment_main_port(fabric_environment *environment)
{
    OPS_OR_RETURN(-1);
    return checked(ops->main_port(self), ops, __func__, "main port");
}

int fabric_environment_world_size(fabric_environment *environment)
{
    OPS_OR_RETURN(-1);
    return checked(ops->world_size(self), ops, __func__, "world size");
}

int fabric_environment_global_rank(fabric_environment *environment)
{
    OPS_OR_RETURN(-1);
    return checked(ops->global_rank(self), ops, __func__, "global rank");
}

int fabric_environment_local_rank(fabric_environment *environment)
{
    OPS_OR_RETURN(-1);
    return checked(ops->local_rank(self), ops, __func__, "local rank");
}

int fabric_environment_node_rank(fabric_environment *environment)
{
    OPS_OR_RETURN(-1);
    return ops->node_rank != NULL ? checked(ops->node_rank(self), ops, __func__, "node rank") : 0;
}

th_status fabric_environment_set_world_size(fabric_environment *environment, int size)
{
    OPS_OR_RETURN(th__pending());
    if (size < 1) return TH__FAIL(TH_ERR_VALUE, "world size %d is not possible; expected 1 or more", size);
    return ops->set_world_size != NULL ? ops->set_world_size(self, size) : TH_OK;
}

th_status fabric_environment_set_global_rank(fabric_environment *environment, int rank)
{
    OPS_OR_RETURN(th__pending());
    if (rank < 0) return TH__FAIL(TH_ERR_VALUE, "global rank %d is not possible; expected 0 or more", rank);
    return ops->set_global_rank != NULL ? ops->set_global_rank(self, rank) : TH_OK;
}

th_status fabric_environment_validate_settings(fabric_environment *environment, int num_devices, int num_nodes)
{
    OPS_OR_RETURN(th__pending());
    return ops->validate_settings != NULL ? ops->validate_settings(self, num_devices, num_nodes) : TH_OK;
}

th_status fabric_environment_teardown(fabric_environment *environment)
{
    OPS_OR_RETURN(th__pending());
    return ops->teardown != NULL ? ops->teardown(self) : TH_OK;
}
