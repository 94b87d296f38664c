/* dist/internal.h: process groups from inside, the life of one collective call, and what the strategies use of it. */
#ifndef FABRIC_DIST_INTERNAL_H
#define FABRIC_DIST_INTERNAL_H

#include "base/error.h"
#include "base/memory.h"
#include "bridge/c10d.h"
#include "tensor/internal.h"
#include <cfabric/autograd.h>
#include <cfabric/dist.h>

#define TH__HEADER_WORDS 12                        /* int64 words every rank shows the others before a collective */
#define TH__HEADER_PAYLOAD (TH__HEADER_WORDS - 2)  /* of which this many belong to the call */
#define TH__JOINED_WORD (TH__HEADER_PAYLOAD - 1)   /* payload word that is 1 for ranks that have joined (th_ddp_join) */
#define TH__WHAT_SIZE 240                          /* longest description of a call, with its zero */

/* What the backend does natively, found out once per group. */
typedef struct th__comm_caps {
    bool host_only;        /* Gloo: works on host memory */
    bool half, bfloat16;   /* reduces them */
} th__comm_caps;

struct th_process_group {
    struct th_process_group *next;    /* list of all groups; closed ones stay, so that using one is an error and not a crash */
    char name[32];
    char backend[16];
    int rank, size;                   /* rank -1: not a member */
    int *ranks;                       /* global ranks, in group order */
    int64_t timeout_ms;
    th__store *store;                 /* keys of this group only; NULL for a group of one */
    th__comm *comm;                   /* NULL for a group of one and for non-members */
    th_device device;                 /* where the header tensors live */
    th__comm_caps caps;
    bool check;
    bool closed;
    int64_t calls;                    /* collectives so far */
    int in_flight;                    /* gradient reductions that have been started and not waited for */
    char *dead;                       /* why the group is unusable; NULL while it is not */
    th_tensor *header;                /* size x TH__HEADER_WORDS */
    int last_running;                 /* lowest rank that had not joined at the last data-parallel backward */
};

/* The default group, NULL before init. */
th_process_group *th__default_group(void);
/* Resolves NULL and checks that the group can be used. False: nothing to communicate (no group, one rank, not a member) or an error is
 * pending; *group is then NULL or the group. */
bool th__group_enter(th_process_group **group, const char *function);
/* Global rank to rank in the group; raises TH_ERR_VALUE and returns -1. */
int th__group_rank_of(th_process_group *group, int global_rank, const char *function, const char *argument);
/* A group's connections: arrival in the store, communicator, first exchange, all within the deadline (CLOCK_MONOTONIC, ms). */
th_status th__group_connect(th_process_group *group, const char *host, const char *interfaces, int64_t deadline);
void th__group_kill(th_process_group *group, const char *reason);

int64_t th__now_ms(void);

/* ---- one collective call */
typedef struct th__call {
    th_process_group *group;
    const char *name;
    int64_t number;
    int source;                       /* after th__call_wait_once of a receive: the group rank it came from */
} th__call;

/* Opens a call: counts it and, if the group checks or `all` is given, compares name and `what` (dtype, sizes, op: must be equal on all
 * ranks) with the others. `payload` (may be NULL) is this rank's words, `all` (may be NULL) receives size x TH__HEADER_PAYLOAD. */
th_status th__call_begin(th__call *call, th_process_group *group, const char *name, const char *what, const int64_t *payload,
                         int64_t *all);
/* Calls whose name starts so go on although some ranks have joined (th_ddp_join): those mirror them. */
#define TH__JOINABLE "DDP "
uint64_t th__call_digest(const char *name, const char *what);
/* A joined rank's side of th__call_begin: learns what the running ranks do. `rows` (size x TH__HEADER_WORDS) gets everybody's words,
 * word 1 says who has joined; *digest is 0 when all have. */
th_status th__call_shadow(th__call *call, th_process_group *group, uint64_t *digest, int64_t *rows);
/* The running ranks do something that cannot be mirrored: fails on all ranks. */
th_status th__call_refuse(th__call *call);
/* Waits for a work and frees it. `work` NULL: it could not be started, *error says why. A failure kills the group and is raised with
 * the call, its number and the late ranks. */
th_status th__call_wait(th__call *call, th__work *work, th__comm_error *error);
/* The same without slices, for send and recv. */
th_status th__call_wait_once(th__call *call, th__work *work, th__comm_error *error);

/* "float32 [2, 3]" into `text`. */
const char *th__describe_tensor(th_tensor *tensor, char *text, size_t size);

/* ---- correct on every backend (gloo_compat.c): contiguous or not, any dtype, any device, no elements. Inside an open call. */
th_status th__compat_probe(th_process_group *group);
/* In place; root < 0: on all ranks, else only on that group rank. */
th_status th__compat_reduce(th__call *call, th_tensor *tensor, th_reduce_op op, int root);
th_status th__compat_broadcast(th__call *call, th_tensor *tensor, int root);
/* `outputs`: contiguous tensors with the sizes of each rank's input; root < 0: gathered on all ranks. */
th_status th__compat_gather(th__call *call, th_tensor *input, th_tensors outputs, int root);
th_status th__compat_scatter(th__call *call, th_tensor *output, th_tensors inputs, int root);
th_status th__compat_all_to_all(th__call *call, th_tensors outputs, th_tensors inputs);
/* [size * n, ...] to this rank's [n, ...]. [scoped] */
th_tensor *th__compat_reduce_scatter(th__call *call, th_tensor *input, th_reduce_op op);
/* A flat uint8 tensor over the memory of a contiguous one. [scoped] */
th_tensor *th__bytes_of(th_tensor *contiguous);

/* Waits for all ranks of the default group without a timeout worth mentioning, through the store. Nothing without a group. */
th_status th__infinite_barrier(void);

/* ---- nested values as bytes (wire.c) */
th_status th__wire_encode(th_value *value, char **data, size_t *size);
th_value *th__wire_decode(const char *data, size_t size);

#endif
