/* strategies/ddp.c: data parallel training with one process per device. The work is in src/dist; here it meets Fabric. */
#include "dist/internal.h"
#include "strategies/internal.h"
#include <cfabric/ops.h>
#include <cfabric/strategies.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One set-up module. */
typedef struct ddp_module {
    th_module *module;    /* borrowed: the th_ddp keeps it */
    th_ddp *ddp;
    int without_sync;     /* open no_backward_sync regions */
    struct ddp_module *next;
} ddp_module;

typedef struct ddp_strategy {
    struct fabric_strategy_ddp_args args;
    ddp_module *modules;
    bool owns_group;
} ddp_strategy;

static ddp_strategy *self_of(fabric_strategy *s) { return fabric_strategy_self(s); }

/* ---------------------------------------------------------------- facts */

static const char *launcher(fabric_strategy *s)
{
    const char *method = self_of(s)->args.start_method;
    return strcmp(method, "popen") == 0 ? "subprocess" : strcmp(method, "spawn") == 0 ? "spawn" : "fork";
}

static int processes_here(fabric_strategy *s)
{
    size_t n = fabric_strategy_parallel_devices(s).size;
    return n > 0 ? (int)n : 1;
}

static int global_rank(fabric_strategy *s)
{
    fabric_environment *environment = fabric_strategy_environment(s);
    return environment ? fabric_environment_global_rank(environment) : 0;
}

static int local_rank(fabric_strategy *s)
{
    fabric_environment *environment = fabric_strategy_environment(s);
    return environment ? fabric_environment_local_rank(environment) : 0;
}

static int node_rank(fabric_strategy *s)
{
    fabric_environment *environment = fabric_strategy_environment(s);
    return environment ? fabric_environment_node_rank(environment) : 0;
}

static int world_size(fabric_strategy *s)
{
    fabric_environment *environment = fabric_strategy_environment(s);
    return environment ? fabric_environment_world_size(environment) : 1;
}

static bool sampler_args(fabric_strategy *s, int *num_replicas, int *rank)
{
    *num_replicas = fabric_strategy_num_nodes(s) * processes_here(s);
    *rank = global_rank(s);
    return true;
}

/* ---------------------------------------------------------------- start and end */

/* Only environments without a cluster of their own take these over. */
static th_status set_world_ranks(fabric_strategy *s)
{
    fabric_environment *environment = fabric_strategy_environment(s);
    if (!environment) return TH_OK;
    int here = processes_here(s);
    TH__TRY(fabric_environment_set_global_rank(environment, node_rank(s) * here + local_rank(s)));
    return fabric_environment_set_world_size(environment, fabric_strategy_num_nodes(s) * here);
}

static const char *backend_of(fabric_strategy *s)
{
    const char *chosen = self_of(s)->args.process_group_backend;
    if (chosen) return chosen;
    return fabric_strategy_root_device(s).type == TH_DEVICE_CUDA ? "nccl" : "gloo";
}

static th_status join_group(fabric_strategy *s)
{
    ddp_strategy *self = self_of(s);
    fabric_environment *environment = fabric_strategy_environment(s);
    if (th_dist_is_initialized()) return TH_OK;
    int rank = global_rank(s), size = world_size(s);
    const char *address = environment ? fabric_environment_main_address(environment) : "127.0.0.1";
    int port = environment ? fabric_environment_main_port(environment) : 0;
    char number[16];
    TH__CHECK_PENDING();
    snprintf(number, sizeof number, "%d", port);
    setenv("MASTER_ADDR", address, 1);
    if (port > 0) setenv("MASTER_PORT", number, 1);
    th__info_rank_zero("Initializing distributed: GLOBAL_RANK: %d, MEMBER: %d/%d", rank, rank + 1, size);
    TH__TRY(th_dist_init_process_group(.backend = backend_of(s), .timeout = self->args.timeout, .rank = rank, .world_size = size,
                                       .master_addr = address, .master_port = port, .check = self->args.check_collectives));
    self->owns_group = true;
    if (rank != 0) return TH_OK;
    static const char line[] = "----------------------------------------------------------------------------------------------------";
    th__info_rank_zero("%s", line);
    th__info_rank_zero("distributed_backend=%s", th_dist_get_backend(NULL));
    th__info_rank_zero("All distributed processes registered. Starting with %d processes", size);
    th__info_rank_zero("%s", line);
    return TH_OK;
}

static th_status setup_environment(fabric_strategy *s)
{
    TH__TRY(set_world_ranks(s));
    TH__TRY(fabric_strategy_default_setup_environment(s));
    return join_group(s);
}

static th_status teardown(fabric_strategy *s)
{
    ddp_strategy *self = self_of(s);
    if (self->owns_group) th_dist_destroy_process_group(NULL);
    self->owns_group = false;
    return TH_OK;
}

static void forget(ddp_strategy *self, ddp_module *module)
{
    for (ddp_module **i = &self->modules; *i; i = &(*i)->next)
        if (*i == module) {
            *i = module->next;
            break;
        }
    th_ddp_free(module->ddp);
    free(module);
}

static void free_self(void *object)
{
    ddp_strategy *self = object;
    while (self->modules) forget(self, self->modules);
    free((char *)self->args.start_method);
    free((char *)self->args.process_group_backend);
    free(self);
}

/* ---------------------------------------------------------------- modules */

static th_status setup_module(fabric_strategy *s, th_module *module, void **state)
{
    ddp_strategy *self = self_of(s);
    const struct fabric_strategy_ddp_args *a = &self->args;
    ddp_module *made = th__calloc(1, sizeof *made);
    if (!made) return th__pending();
    made->module = module;
    made->ddp = th_ddp_new(module, .bucket_cap_mb = a->bucket_cap_mb, .find_unused_parameters = a->find_unused_parameters,
                           .static_graph = a->static_graph, .gradient_as_bucket_view = a->gradient_as_bucket_view,
                           .broadcast_buffers = a->broadcast_buffers, .init_sync = a->init_sync, .check_batches = a->check_batches);
    if (made->ddp && a->comm_hook) th_ddp_register_comm_hook(made->ddp, a->comm_hook, a->comm_hook_user);
    if (th__pending() != TH_OK) {
        th_ddp_free(made->ddp);
        free(made);
        return th__pending();
    }
    made->next = self->modules;
    self->modules = made;
    *state = made;
    return TH_OK;
}

static void free_module(fabric_strategy *s, th_module *module, void *state)
{
    (void)module;
    if (state) forget(self_of(s), state);
}

static th_tensors forward(fabric_strategy *s, th_module *module, void *state, th_tensors inputs)
{
    ddp_module *m = state;
    if (th_ddp_pre_forward(m->ddp) != TH_OK) return (th_tensors){0};
    th_tensors outputs = fabric_strategy_default_forward(s, module, state, inputs);
    if (th__pending() != TH_OK || th_ddp_post_forward(m->ddp, outputs) != TH_OK) return (th_tensors){0};
    return outputs;
}

static th_status no_backward_sync(fabric_strategy *s, th_module *module, void *state, bool enter)
{
    (void)s, (void)module;
    ddp_module *m = state;
    m->without_sync += enter ? 1 : -1;
    th_ddp_set_require_sync(m->ddp, m->without_sync == 0);
    return TH_OK;
}

th_ddp *fabric_strategy_ddp_of(fabric_strategy *strategy, th_module *module)
{
    if (!fabric__strategy_check(strategy, __func__) || strategy->ops->setup_module != setup_module) return NULL;
    for (ddp_module *m = self_of(strategy)->modules; m; m = m->next)
        if (m->module == module) return m->ddp;
    return NULL;
}

th_status fabric_strategy_ddp_join(fabric_strategy *s)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__) || s->ops->setup_module != setup_module) return th__pending();
    size_t n = 0, i = 0;
    for (ddp_module *m = self_of(s)->modules; m; m = m->next) n++;
    th_ddp **all = th__calloc(n ? n : 1, sizeof *all);
    for (ddp_module *m = self_of(s)->modules; all && m; m = m->next) all[n - 1 - i++] = m->ddp; /* in the order of set-up */
    th_status status = all ? th_ddp_join(all, n) : th__pending();
    free(all);
    return status;
}

/* ---------------------------------------------------------------- collectives */

static th_tensor *all_reduce(fabric_strategy *s, th_tensor *tensor, const char *op, th_process_group *group)
{
    (void)s;
    th_reduce_op which;
    TH__TRY_NULL(th_reduce_op_parse(op, &which));
    return th_dist_all_reduce(tensor, .op = which, .group = group) == TH_OK ? tensor : NULL;
}

static th_tensor *all_gather(fabric_strategy *s, th_tensor *tensor, bool sync_grads, th_process_group *group)
{
    (void)s;
    if (sync_grads) return th_dist_all_gather_autograd(tensor, group);
    TH_NO_GRAD();
    th_tensors parts = th_dist_all_gather(tensor, .group = group);
    return th__pending() == TH_OK ? th_stack(parts, 0) : NULL;
}

static th_value *broadcast(fabric_strategy *s, th_value *value, int src)
{
    (void)s;
    return th_dist_broadcast_value(value, src, NULL);
}

static th_status barrier(fabric_strategy *s, const char *name)
{
    (void)s, (void)name;
    return th_dist_barrier(NULL);
}

static bool reduce_boolean_decision(fabric_strategy *s, bool decision, bool all)
{
    (void)s;
    return th_dist_reduce_boolean_decision(decision, all, NULL);
}

static th_status infinite_barrier(fabric_strategy *s)
{
    (void)s;
    return th__infinite_barrier();
}

/* ---------------------------------------------------------------- the table */

static const fabric_strategy_ops ddp_ops = {
    .size = sizeof ddp_ops,
    .name = "DDPStrategy",
    .launcher = launcher,
    .global_rank = global_rank,
    .local_rank = local_rank,
    .node_rank = node_rank,
    .world_size = world_size,
    .sampler_args = sampler_args,
    .setup_environment = setup_environment,
    .setup_module = setup_module,
    .free_module = free_module,
    .forward = forward,
    .no_backward_sync = no_backward_sync,
    .all_reduce = all_reduce,
    .all_gather = all_gather,
    .broadcast = broadcast,
    .barrier = barrier,
    .reduce_boolean_decision = reduce_boolean_decision,
    .infinite_barrier = infinite_barrier,
    .teardown = teardown,
    .free = free_self,
};

static th_status check(const struct fabric_strategy_ddp_args *a)
{
    static const char *const methods[] = {"popen", "spawn", "fork", "forkserver"};
    bool known = false;
    for (size_t i = 0; a->start_method && i < 4; i++) known = known || strcmp(a->start_method, methods[i]) == 0;
    if (!known)
        return th__fail(TH_ERR_VALUE, "fabric_strategy_ddp_new", "start_method '%s', expected popen, spawn, fork or forkserver",
                        a->start_method ? a->start_method : "NULL");
    if (!(a->timeout >= 0)) return th__fail(TH_ERR_VALUE, "fabric_strategy_ddp_new", "timeout %g, expected seconds", a->timeout);
    if (!(a->bucket_cap_mb >= 0))
        return th__fail(TH_ERR_VALUE, "fabric_strategy_ddp_new", "bucket_cap_mb %g, expected above 0", a->bucket_cap_mb);
    return TH_OK;
}

fabric_strategy *fabric_strategy_ddp_new_call(struct fabric_strategy_ddp_args args)
{
    TH__CHECK_PENDING_NULL();
    TH__TRY_NULL(check(&args));
    ddp_strategy *self = th__calloc(1, sizeof *self);
    if (!self) return NULL;
    self->args = args;
    self->args.start_method = th__strdup(args.start_method);
    self->args.process_group_backend = args.process_group_backend ? th__strdup(args.process_group_backend) : NULL;
    fabric_strategy *s = th__pending() == TH_OK ? fabric_strategy_new(&ddp_ops, self) : NULL;
    if (!s) free_self(self);
    return s;
}

fabric_strategy *fabric__strategy_ddp_create(const char *preset)
{
    const char *method = strstr(preset ? preset : "", "start_method="), *end = method ? strchr(method, ',') : NULL;
    char name[24] = "popen";
    if (method) {
        method += strlen("start_method=");
        snprintf(name, sizeof name, "%.*s", end ? (int)(end - method) : (int)strlen(method), method);
    }
    return fabric_strategy_ddp_new(.start_method = name,
                                   .find_unused_parameters = preset && strstr(preset, "find_unused_parameters=true"));
}
