/* dist/rendezvous.h: where the ranks meet, worked out from arguments and environment, and the network interface they use. */
#ifndef FABRIC_DIST_RENDEZVOUS_H
#define FABRIC_DIST_RENDEZVOUS_H

#include "dist/internal.h"

typedef struct th__rendezvous {
    int rank, world_size;
    char host[256];
    int port;
    const char *file;     /* file:// store; NULL: TCP */
    bool agent_store;     /* torchrun's agent serves the store already */
    int attempt;          /* restart count: keys of different attempts do not meet */
    bool one_machine;
    int64_t timeout_ms;
} th__rendezvous;

/* Fills everything from `args` and the environment. */
th_status th__rendezvous_read(const struct th_dist_init_args *args, th__rendezvous *r);
/* NULL with the error raised. */
th__store *th__rendezvous_store(const th__rendezvous *r, int64_t deadline);

/* The address or interfaces Gloo binds: one of the two is set. `address` is a buffer of INET6_ADDRSTRLEN. */
th_status th__route_choose(const th__rendezvous *r, const char *asked, char *address, size_t size, const char **interfaces);

#endif
