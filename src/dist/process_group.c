/* dist/process_group.c: making, finding and ending process groups. */
#include "dist/rendezvous.h"
#include <ctype.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static th_process_group *default_group;
static th_process_group *all_groups;
static int groups_made;      /* sub-groups so far; the same on every rank, names their keys */
static int attempts_here;    /* init after destroy in one program */
static char bind_address[INET6_ADDRSTRLEN];
static char *bind_interfaces;

th_process_group *th__default_group(void) { return default_group; }

static th_process_group *group_new(const char *name, const char *backend, int rank, int size)
{
    th_process_group *group = th__calloc(1, sizeof *group);
    if (!group || !(group->ranks = th__calloc((size_t)(size > 0 ? size : 1), sizeof *group->ranks))) {
        free(group);
        return NULL;
    }
    snprintf(group->name, sizeof group->name, "%s", name);
    snprintf(group->backend, sizeof group->backend, "%s", backend);
    group->rank = rank;
    group->size = size;
    group->caps.host_only = strcmp(backend, "gloo") == 0;
    group->device = strcmp(backend, "nccl") == 0 ? TH_CUDA(-1) : TH_CPU;
    for (int i = 0; i < size; i++) group->ranks[i] = i;
    group->next = all_groups;
    all_groups = group;
    return group;
}

static void group_close(th_process_group *group)
{
    if (group->closed) return;
    group->closed = true;
    th_free(group->header);
    group->header = NULL;
    /* Ending a communicator waits for its threads, and those for peers that may never answer. */
    bool stuck = group->dead || group->in_flight > 0 || th__pending() != TH_OK;
    if (stuck) return; /* they stay as they are until the program ends */
    if (group->comm) th__comm_free(group->comm);
    if (group->store) th__store_free(group->store);
    group->comm = NULL;
    group->store = NULL;
}

void th_dist_destroy_process_group(th_process_group *group)
{
    if (group && group != default_group) {
        group_close(group);
        return;
    }
    for (th_process_group *i = all_groups; i; i = i->next) group_close(i);
    default_group = NULL;
}

/* ---------------------------------------------------------------- init */

static th_status check_backend(const char *backend)
{
    if (strcmp(backend, "gloo") != 0 && strcmp(backend, "nccl") != 0 && strcmp(backend, "mpi") != 0)
        return th__fail(TH_ERR_VALUE, "th_dist_init_process_group", "backend '%s' is not known; known: gloo, nccl, mpi", backend);
    if (!th__comm_has_backend(backend))
        return th__fail(TH_ERR_UNAVAILABLE, "th_dist_init_process_group",
                        "backend '%s' is not available: this build of cfabric has no %s support", backend, backend);
    return TH_OK;
}

/* "Gloo" to "gloo". */
static void lower_name(const char *text, char *out, size_t size)
{
    size_t i = 0;
    for (; text[i] && i + 1 < size; i++) out[i] = (char)tolower((unsigned char)text[i]);
    out[i] = '\0';
}

static th_status start_mpi(th_process_group *group)
{
    th__comm_error error;
    group->comm = th__comm_mpi(NULL, 0, &group->rank, &group->size, &error);
    if (!group->comm) return th__fail(error.status, "th_dist_init_process_group", "MPI could not be started: %s", error.text);
    int *ranks = th__calloc((size_t)group->size, sizeof *ranks);
    if (!ranks) return th__pending();
    for (int i = 0; i < group->size; i++) ranks[i] = i;
    free(group->ranks);
    group->ranks = ranks;
    return TH_OK;
}

static th_status start(th_process_group *group, const struct th_dist_init_args *args, const th__rendezvous *r)
{
    int64_t deadline = th__now_ms() + r->timeout_ms;
    const char *interfaces;
    if (strcmp(group->backend, "mpi") == 0) return start_mpi(group);
    if (group->size == 1) return TH_OK;
    TH__TRY(th__route_choose(r, args->interface, bind_address, sizeof bind_address, &interfaces));
    free(bind_interfaces);
    bind_interfaces = interfaces ? th__strdup(interfaces) : NULL;
    group->store = th__rendezvous_store(r, deadline);
    if (!group->store) return th__pending();
    TH__TRY(th__group_connect(group, bind_address[0] ? bind_address : NULL, bind_interfaces, deadline));
    return th__compat_probe(group);
}

th_status th_dist_init_process_group_call(struct th_dist_init_args args)
{
    TH__CHECK_PENDING();
    th__rendezvous r;
    char backend[16];
    lower_name(args.backend ? args.backend : "gloo", backend, sizeof backend);
    if (default_group)
        return th__fail(TH_ERR_RUNTIME, "th_dist_init_process_group", "the default process group exists already (backend %s, %d ranks)",
                        default_group->backend, default_group->size);
    TH__TRY(check_backend(backend));
    TH__TRY(th__rendezvous_read(&args, &r));
    r.attempt = r.attempt * 1000 + attempts_here++;
    th_process_group *group = group_new("default", backend, r.rank, r.world_size);
    if (!group) return th__pending();
    group->timeout_ms = r.timeout_ms;
    group->check = args.check;
    th__set_message_rank(r.rank);
    th_status status = start(group, &args, &r);
    if (status != TH_OK) {
        th__group_kill(group, th_error_message());
        group_close(group);
        return status;
    }
    default_group = group;
    return TH_OK;
}

bool th_dist_is_backend_available(const char *backend) { return backend && th__comm_has_backend(backend); }
bool th_dist_is_initialized(void) { return default_group != NULL; }

/* ---------------------------------------------------------------- looking at groups */

static th_process_group *or_default(th_process_group *group) { return group ? group : default_group; }

int th_dist_get_rank(th_process_group *group)
{
    group = or_default(group);
    return group ? group->rank : 0;
}

int th_dist_get_world_size(th_process_group *group)
{
    group = or_default(group);
    return !group ? 1 : group->rank < 0 ? -1 : group->size;
}

const char *th_dist_get_backend(th_process_group *group)
{
    group = or_default(group);
    return group ? group->backend : "";
}

int th_dist_get_global_rank(th_process_group *group, int group_rank)
{
    group = or_default(group);
    int size = group ? group->size : 1;
    if (group_rank < 0 || group_rank >= size)
        return TH__FAIL(TH_ERR_VALUE, "rank %d is not in the group: it has ranks 0 to %d", group_rank, size - 1), -1;
    return group ? group->ranks[group_rank] : 0;
}

int th__group_rank_of(th_process_group *group, int global_rank, const char *function, const char *argument)
{
    for (int i = 0; group && i < group->size; i++)
        if (group->ranks[i] == global_rank) return i;
    if (!group && global_rank == 0) return 0;
    th__fail(TH_ERR_VALUE, function, "%s: global rank %d is not in the group", argument, global_rank);
    return -1;
}

int th_dist_get_group_rank(th_process_group *group, int global_rank)
{
    return th__group_rank_of(or_default(group), global_rank, __func__, "global_rank");
}

bool th__group_enter(th_process_group **group, const char *function)
{
    if (th__pending() != TH_OK) return false;
    *group = or_default(*group);
    th_process_group *g = *group;
    if (!g) return false;
    if (g->closed) {
        th__fail(TH_ERR_RUNTIME, function, "the process group '%s' has been destroyed", g->name);
        return false;
    }
    if (g->dead) {
        th__fail(TH_ERR_DISTRIBUTED, function, "the process group '%s' is unusable since an earlier failure: %s", g->name, g->dead);
        return false;
    }
    return g->comm != NULL;
}

/* ---------------------------------------------------------------- sub-groups */

static th_status check_members(const int *ranks, size_t n, int world)
{
    for (size_t i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= world)
            return th__fail(TH_ERR_VALUE, "th_dist_new_group", "rank %d is not in the default group: it has ranks 0 to %d", ranks[i],
                            world - 1);
        for (size_t j = 0; j < i; j++)
            if (ranks[j] == ranks[i]) return th__fail(TH_ERR_VALUE, "th_dist_new_group", "rank %d is listed twice", ranks[i]);
    }
    return TH_OK;
}

/* The members, as text: what the ranks must agree on. */
static void describe_members(const struct th_dist_new_group_args *args, char *text, size_t size)
{
    size_t at = (size_t)snprintf(text, size, args->ranks ? "ranks" : "all ranks");
    for (size_t i = 0; args->ranks && i < args->n_ranks && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, " %d", args->ranks[i]);
}

static th_status connect_members(th_process_group *group, th_process_group *world)
{
    th__comm_error error;
    if (strcmp(group->backend, "mpi") == 0) {
        group->comm = th__comm_mpi(group->ranks, (size_t)group->size, &group->rank, &group->size, &error);
        return group->comm || group->rank < 0 ? TH_OK : th__fail(error.status, "th_dist_new_group", "%s", error.text);
    }
    if (group->rank < 0 || group->size == 1) return TH_OK;
    group->store = th__store_prefix(world->store, group->name, &error);
    if (!group->store) return th__fail(error.status, "th_dist_new_group", "%s", error.text);
    TH__TRY(th__group_connect(group, bind_address[0] ? bind_address : NULL, bind_interfaces, th__now_ms() + group->timeout_ms));
    return th__compat_probe(group);
}

th_process_group *th_dist_new_group_call(struct th_dist_new_group_args args)
{
    TH__CHECK_PENDING_NULL();
    th_process_group *world = NULL;
    char backend[16], name[32], what[TH__WHAT_SIZE];
    if (!th__group_enter(&world, "th_dist_new_group") && !world && th__pending() == TH_OK)
        th__fail(TH_ERR_RUNTIME, "th_dist_new_group", "there is no default process group: call th_dist_init_process_group first");
    TH__CHECK_PENDING_NULL();
    lower_name(args.backend ? args.backend : world->backend, backend, sizeof backend);
    TH__TRY_NULL(check_backend(backend));
    size_t n = args.ranks ? args.n_ranks : (size_t)world->size;
    if (n == 0) return TH__FAIL(TH_ERR_VALUE, "the list of ranks is empty"), NULL;
    if (args.ranks) TH__TRY_NULL(check_members(args.ranks, n, world->size));
    describe_members(&args, what, sizeof what);
    if (world->comm) {
        th__call call;
        TH__TRY_NULL(th__call_begin(&call, world, "new_group", what, NULL, NULL));
    }
    snprintf(name, sizeof name, "group%d", ++groups_made);
    th_process_group *group = group_new(name, backend, -1, (int)n);
    if (!group) return NULL;
    group->check = world->check;
    group->timeout_ms = args.timeout > 0 ? (int64_t)(args.timeout * 1000.0) : world->timeout_ms;
    for (size_t i = 0; i < n; i++) {
        group->ranks[i] = args.ranks ? args.ranks[i] : (int)i;
        if (group->ranks[i] == world->rank) group->rank = (int)i;
    }
    if (connect_members(group, world) == TH_OK) return group;
    th__group_kill(group, th_error_message());
    group_close(group);
    return NULL;
}
