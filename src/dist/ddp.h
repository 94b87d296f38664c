/* dist/ddp.h: the gradient reducer from inside. */
#ifndef FABRIC_DIST_DDP_H
#define FABRIC_DIST_DDP_H

#include "dist/internal.h"

typedef struct th__param {
    char *name;
    th_tensor *tensor;        /* retained */
    th_hook *hook;
    size_t bucket;
    int64_t offset, numel;    /* in the bucket, in elements */
    th_tensor *view;          /* of the bucket, with the parameter's sizes */
    int fired, expected;      /* gradients seen in this backward; with a static graph, how many to expect */
    bool ready;
    bool reached;             /* find_unused_parameters: some output since the last backward depends on it */
    bool touched;             /* it got a gradient since the last averaging, also in backwards without one */
    bool ordered;             /* it is in the observed order */
    th_ddp *owner;
} th__param;

typedef struct th__bucket {
    size_t *params, n_params;
    size_t pending;           /* parameters not ready yet */
    th_tensor *buffer;        /* flat gradients */
    th_tensor *wire;          /* what is reduced: the buffer, or a copy in a dtype the backend can add up */
    th__work *work;
    th__call call;
    th__comm_error error;
} th__bucket;

struct th_ddp {
    th_module *module;
    th_process_group *group;  /* NULL: a world of one */
    struct th_ddp_args options;
    size_t number;            /* which data-parallel module of this process: part of its calls' names */
    th__param *params;
    size_t n_params;
    th__bucket *buckets;
    size_t n_buckets, next_bucket;   /* buckets are launched in order */
    bool require_sync;
    bool running;             /* a backward has begun to reduce and is not finished */
    bool finish_queued;
    bool rebuilt;
    bool learned;             /* static graph: fired counts are known */
    bool skipped;             /* the last backward did not average: `reached` is out of date */
    int root;                 /* whose buffers count: the lowest group rank that has not joined */
    size_t *order, n_order;   /* parameters in the order of their first gradients */
    th_tensor *scale;         /* 1 / world size, 0-dimensional */
    th_comm_hook comm_hook;
    void *comm_user;
    th_hook **sinks;          /* static graph: hooks on the first forward's outputs */
    size_t n_sinks;
    th_ddp_stats stats;
    char what[32];
};

#define TH__DDP_CALL TH__JOINABLE "backward"

/* buckets.c: (re)build the buckets over parameters `order` (NULL: all in registration order). */
th_status th__ddp_first_buckets(th_ddp *ddp);
/* Once, at the end of the first averaged backward, on every rank: rank 0's observed order decides. */
th_status th__ddp_rebuild(th_ddp *ddp);
void th__ddp_free_buckets(th_ddp *ddp);

/* reducer.c */
th_status th__ddp_gradient_hook(th_tensor *leaf, void *user);
/* Waits for the reductions and gives the averages back. `shadow`: there was no backward here, only the others'. */
th_status th__ddp_finish(th_ddp *ddp, bool shadow);
th_status th__ddp_launch_ready(th_ddp *ddp);
th_status th__ddp_queue_finish(th_ddp *ddp);
th_status th__ddp_missing(th_ddp *ddp);

/* ddp_sync.c */
th_status th__ddp_compare(th_ddp *ddp);
/* In place from group rank `root`; large lists go in pieces of 250 MiB. No version counter moves. */
th_status th__broadcast_coalesced(th_process_group *group, th_tensors tensors, int root);
th_status th__ddp_broadcast_module(th_ddp *ddp, int root);
th_status th__ddp_broadcast_buffers(th_ddp *ddp, int root);

/* bridge/graph.cpp: sets reached[i] where an output depends on leaf i. */
th_status th__graph_reaches(th_tensors outputs, th_tensors leaves, bool *reached);

#endif
