/* environments/torchelastic.c: processes made by torchrun or by `fabric run`, which sets the same variables. */
#include "environments/internal.h"

#include "base/env.h"
#include <stdlib.h>

#define NAME "TorchElasticEnvironment"
#define HINT "torchrun and `fabric run` set it for every process"

/* Present even when empty: what PyTorch's own detection keys on. */
static bool detect(void) { return getenv("TORCHELASTIC_RUN_ID") != NULL; }

static const char *main_address(void *self)
{
    (void)self;
    if (getenv("MASTER_ADDR") == NULL) {
        th__warn_rank_zero("MASTER_ADDR environment variable is not defined. Set as localhost");
        if (th__env_set("MASTER_ADDR", "127.0.0.1") != TH_OK) return NULL;
    }
    return getenv("MASTER_ADDR");
}

static int main_port(void *self)
{
    (void)self;
    if (getenv("MASTER_PORT") == NULL) {
        th__warn_rank_zero("MASTER_PORT environment variable is not defined. Set as 12910");
        if (th__env_set("MASTER_PORT", "12910") != TH_OK) return -1;
    }
    return fabric__environment_port("MASTER_PORT");
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
    return fabric__environment_int("LOCAL_RANK", NAME, HINT);
}
static int node_rank(void *self)
{
    (void)self;
    return fabric__environment_int_or("GROUP_RANK", NAME, 0);
}

static th_status validate_settings(void *self, int num_devices, int num_nodes)
{
    int world = world_size(self);
    if (world < 0) return th__pending();
    if ((long long)num_devices * num_nodes == world) return TH_OK;
    return TH__FAIL(TH_ERR_VALUE,
                    "devices=%d and num_nodes=%d were set, but the product (%d * %d) does not match the world size (%d)",
                    num_devices, num_nodes, num_devices, num_nodes, world);
}

const fabric_environment_ops fabric__environment_torchelastic = {
    .size = sizeof(fabric_environment_ops),
    .name = "torchelastic",
    .type_name = NAME,
    .detect = detect,
    .main_address = main_address,
    .main_port = main_port,
    .world_size = world_size,
    .global_rank = global_rank,
    .local_rank = local_rank,
    .node_rank = node_rank,
    .validate_settings = validate_settings,
};
