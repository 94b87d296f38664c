/* dist/rendezvous.c: how the ranks of a group find each other: the store, who has arrived, the connections, the first exchange. One
 * deadline covers all of it. */
#include "dist/internal.h"
#include "dist/rendezvous.h"
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int64_t left(int64_t deadline)
{
    int64_t ms = deadline - th__now_ms();
    return ms > 1 ? ms : 1;
}

/* ---------------------------------------------------------------- store */

/* Returns when somebody listens, or at the deadline. c10d's client sleeps a whole second after a refused connection, which a rank that
 * starts a little before rank 0 would always pay. */
static void await_listener(const th__rendezvous *r, int64_t deadline)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", r->port);
    if (getaddrinfo(r->host, port, &hints, &found) != 0) return; /* c10d's own error is good enough */
    bool there = false;
    for (int64_t pause_ms = 2; !there && th__now_ms() < deadline; pause_ms += pause_ms < 50 ? 2 : 0) {
        for (struct addrinfo *i = found; i && !there; i = i->ai_next) {
            int fd = socket(i->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
            there = fd >= 0 && connect(fd, i->ai_addr, i->ai_addrlen) == 0;
            if (fd >= 0) close(fd);
        }
        if (!there) nanosleep(&(struct timespec){0, pause_ms * 1000000L}, NULL);
    }
    freeaddrinfo(found);
}

static th_status tcp_failed(const th__rendezvous *r, bool server, const th__comm_error *error)
{
    if (server && (strstr(error->text, "EADDRINUSE") || strcasestr(error->text, "address already in use")))
        return th__fail(TH_ERR_DISTRIBUTED, "th_dist_init_process_group",
                        "port %d is taken on this machine: choose another MASTER_PORT", r->port);
    if (server)
        return th__fail(TH_ERR_DISTRIBUTED, "th_dist_init_process_group", "rank 0 cannot open its store on port %d: %s", r->port,
                        error->text);
    return th__fail(error->status, "th_dist_init_process_group", "rank %d could not reach the store of rank 0 at %s:%d within %g s: %s",
                    r->rank, r->host, r->port, (double)r->timeout_ms / 1000.0, error->text);
}

/* Kept until the program ends: ranks that leave a group and meet again do not race for the port. */
static struct kept_store {
    th__store *store;
    char host[256];
    int port;
    bool server;
} kept;

static th__store *tcp_store(const th__rendezvous *r, int64_t deadline)
{
    th__comm_error error;
    bool server = r->rank == 0 && !r->agent_store;
    if (kept.store && kept.port == r->port && kept.server == server && strcmp(kept.host, r->host) == 0) {
        if (th__store_set_timeout(kept.store, left(deadline), &error)) return kept.store;
    }
    if (!server) await_listener(r, deadline);
    th__store *store = th__store_tcp(r->host, r->port, server, true, left(deadline), &error);
    if (!store) return tcp_failed(r, server, &error), NULL;
    kept = (struct kept_store){.store = store, .port = r->port, .server = server};
    snprintf(kept.host, sizeof kept.host, "%s", r->host);
    return store;
}

th__store *th__rendezvous_store(const th__rendezvous *r, int64_t deadline)
{
    th__comm_error error;
    th__store *base;
    if (r->file) {
        base = th__store_file(r->file, r->world_size, left(deadline), &error);
        if (!base)
            return th__fail(error.status, "th_dist_init_process_group", "the store file '%s' cannot be used: %s", r->file, error.text),
                   NULL;
    } else {
        base = tcp_store(r, deadline);
        if (!base) return NULL;
    }
    char prefix[64];
    snprintf(prefix, sizeof prefix, "cfabric/%d", r->attempt);
    th__store *store = th__store_prefix(base, prefix, &error);
    if (r->file) th__store_free(base); /* the view keeps it */
    if (!store) th__fail(error.status, "th_dist_init_process_group", "%s", error.text);
    return store;
}

/* ---------------------------------------------------------------- arrival */

/* The ranks for which there is no "<stage>/<rank>" in the store. */
static th_status missing_ranks(th_process_group *group, const char *stage, const char *what, int64_t timeout_ms)
{
    char list[600] = "", key[48];
    const char *name = key;
    size_t at = 0;
    int there = 0;
    th__comm_error error;
    for (int i = 0; i < group->size; i++) {
        char value[8];
        snprintf(key, sizeof key, "%s/%d", stage, i);
        if (!th__store_peek(group->store, &name, 1, value, sizeof value, 2000, &error))
            return th__fail(TH_ERR_TIMEOUT, "th_dist_init_process_group", "rank 0, which keeps the store, stopped answering while %s",
                            what);
        if (value[0])
            there++;
        else if (at < sizeof list)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", at ? ", " : "", group->ranks[i]);
    }
    /* The others look at about the same moment; the store must not go before they have. */
    if (group->rank == 0) nanosleep(&(struct timespec){1, 0}, NULL);
    return th__fail(TH_ERR_TIMEOUT, "th_dist_init_process_group", "%d of %d ranks %s within %g s; missing: %s", there, group->size,
                    what, (double)timeout_ms / 1000.0, list[0] ? list : "none");
}

static th_status arrive(th_process_group *group, int64_t deadline, int64_t timeout_ms)
{
    char key[48];
    int64_t count = 0;
    th__comm_error error;
    snprintf(key, sizeof key, "arrived/%d", group->rank);
    bool ok = th__store_set(group->store, key, "1", 1, &error) && th__store_add(group->store, "arrived", 1, &count, &error);
    if (ok && count == group->size) ok = th__store_set(group->store, "complete", "1", 1, &error);
    if (!ok)
        return th__fail(error.status, "th_dist_init_process_group", "the store of rank 0 failed while the ranks arrived: %s",
                        error.text);
    if (th__store_wait(group->store, "complete", left(deadline), &error)) return TH_OK;
    return missing_ranks(group, "arrived", "arrived", timeout_ms);
}

static th__comm *connect_backend(th_process_group *group, const char *host, const char *interfaces, int64_t deadline,
                                 th__comm_error *error)
{
    if (strcmp(group->backend, "nccl") == 0)
        return th__comm_nccl(group->store, group->rank, group->size, group->timeout_ms, error);
    th__store *view = th__store_prefix(group->store, "gloo", error);
    if (!view) return NULL;
    th__comm *comm = th__comm_gloo(view, group->rank, group->size, group->timeout_ms, interfaces, host, left(deadline), error);
    th__store_free(view);
    return comm;
}

th_status th__group_connect(th_process_group *group, const char *host, const char *interfaces, int64_t deadline)
{
    const int64_t timeout_ms = group->timeout_ms;
    th__comm_error error;
    char key[48];
    TH__TRY(arrive(group, deadline, timeout_ms));
    group->comm = connect_backend(group, host, interfaces, deadline, &error);
    if (!group->comm) {
        if (error.status != TH_ERR_TIMEOUT && th__now_ms() < deadline)
            return th__fail(error.status, "th_dist_init_process_group", "the %s connections between the ranks failed: %s",
                            group->backend, error.text);
        /* Everybody had arrived: who still lives says so now, the others are the ones that died. */
        snprintf(key, sizeof key, "alive/%d", group->rank);
        th__store_set(group->store, key, "1", 1, &error);
        th__store_wait(group->store, "nothing", 500, &error);
        return missing_ranks(group, "alive", "were still there when connecting failed", timeout_ms);
    }
    th__call call;
    int64_t *all = th__malloc((size_t)group->size * TH__HEADER_PAYLOAD * sizeof *all);
    if (!all) return th__pending();
    group->timeout_ms = left(deadline);
    th_status status = th__call_begin(&call, group, "init_process_group", group->backend, NULL, all);
    group->timeout_ms = timeout_ms;
    free(all);
    return status;
}
