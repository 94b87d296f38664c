/* environments/kubeflow.c: pods of a Kubeflow PyTorchJob, one process each. Never detected; to be given as a plugin. */
#include "environments/internal.h"

#include <stdlib.h>

#define NAME "KubeflowEnvironment"
#define HINT "the PyTorchJob operator sets it in every pod"

static const char *main_address(void *self)
{
    (void)self;
    const char *address = getenv("MASTER_ADDR");
    if (address == NULL) TH__FAIL(TH_ERR_KEY, NAME ": environment variable 'MASTER_ADDR' not found; " HINT);
    return address;
}

static int main_port(void *self)
{
    (void)self;
    if (getenv("MASTER_PORT") != NULL) return fabric__environment_port("MASTER_PORT");
    TH__FAIL(TH_ERR_KEY, NAME ": environment variable 'MASTER_PORT' not found; " HINT);
    return -1;
}

static int world_size(void *self)
{
    (void)self;
    return fabric__environment_int("WORLD_SIZE", NAME, HINT);
}
static int global_rank(void *self)
{
    (void)self;
    return fabric__environment_int("RANK", NAME, HINT);
}
static int local_rank(void *self)
{
    (void)self;
    return 0;
}

const fabric_environment_ops fabric__environment_kubeflow = {
    .size = sizeof(fabric_environment_ops),
    .name = "kubeflow",
    .type_name = NAME,
    .main_address = main_address,
    .main_port = main_port,
    .world_size = world_size,
    .global_rank = global_rank,
    .local_rank = local_rank,
    .node_rank = global_rank, /* one process per node */
};
