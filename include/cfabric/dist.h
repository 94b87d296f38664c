/* cfabric/dist.h: process groups, collectives and data-parallel gradient averaging (torch.distributed).
 *
 * The functions take PyTorch's names. Every rank of a group calls the same collectives in the same order, from one thread at a time
 * per group. Before data moves the ranks compare what they are about to do, so a call, dtype or size that differs is an error on
 * every rank (`.check = false` in th_dist_init_process_group switches that off). A collective that some rank does not enter fails
 * after the group's timeout with the call, its number and the late ranks; after such a failure the group is unusable and says so. A
 * thread with a pending error enters no collective.
 *
 * Without a process group everything works as in a world of one: rank 0, size 1, collectives are identities. */
#ifndef CFABRIC_DIST_H
#define CFABRIC_DIST_H

#include <cfabric/nn.h>
#include <cfabric/scope.h>
#include <cfabric/value.h>

TH_BEGIN_DECLS

/** A set of ranks that communicate. NULL stands for the default group (all ranks) everywhere. */
typedef struct th_process_group th_process_group;

/** torch.distributed.ReduceOp. */
typedef enum th_reduce_op {
    TH_REDUCE_SUM = 0,
    TH_REDUCE_AVG = 1,     /**< sum divided by the group's size; integers are divided exactly and truncated */
    TH_REDUCE_PRODUCT = 2,
    TH_REDUCE_MIN = 3,     /**< NaN wins, as in torch.minimum */
    TH_REDUCE_MAX = 4,     /**< NaN wins, as in torch.maximum */
    TH_REDUCE_BAND = 5,    /**< bitwise, integers and bool only */
    TH_REDUCE_BOR = 6,
    TH_REDUCE_BXOR = 7
} th_reduce_op;

/** Reads "sum", "avg", "mean", "product", "min", "max", "band", "bor", "bxor" in any case; another name, or "premul_sum" on a
 * backend without it, is a ValueError that lists the names. */
FABRIC_API th_status th_reduce_op_parse(const char *name, th_reduce_op *op);
/** "SUM" for TH_REDUCE_SUM. Never NULL. */
FABRIC_API const char *th_reduce_op_name(th_reduce_op op);

/* ---------------------------------------------------------------- process groups */

struct th_dist_init_args {
    const char *backend;       /**< "gloo", "nccl" or "mpi"; NULL: gloo */
    const char *init_method;   /**< "env://" (default), "tcp://host:port" or "file:///path" */
    double timeout;            /**< seconds for the start-up as a whole and for each collective; 0: 1800 */
    int world_size;            /**< 0: WORLD_SIZE */
    int rank;                  /**< below 0: RANK. The default is -1. */
    const char *master_addr;   /**< NULL: MASTER_ADDR, else 127.0.0.1. Only for env:// */
    int master_port;           /**< 0: MASTER_PORT, else 29500 */
    const char *interface;     /**< network interface(s) for Gloo; NULL: GLOO_SOCKET_IFNAME, else loopback when the main address is
                                    local and everything runs on one machine, else the address that reaches the main address */
    bool check;                /**< compare calls, dtypes and sizes before data moves. The default is true. */
};
/** torch.distributed.init_process_group: joins the default group. One deadline covers the store, the connections and the first
 * barrier; the error says how many ranks arrived and names the missing ones. A second call is a RuntimeError. Under torchrun the
 * agent's store is used. */
FABRIC_API th_status th_dist_init_process_group_call(struct th_dist_init_args args);
#define th_dist_init_process_group(...) \
    th_dist_init_process_group_call((struct th_dist_init_args){.rank = -1, .check = true, __VA_ARGS__})

/** Ends one group, or with NULL all of them. Works with an error pending; closing twice is no error. Never waits for a peer that
 * failed. Leaving the program without it is fine too. */
FABRIC_API void th_dist_destroy_process_group(th_process_group *group);

/** Whether this build can use a backend ("gloo", "nccl", "mpi"). */
FABRIC_API bool th_dist_is_backend_available(const char *backend);
FABRIC_API bool th_dist_is_initialized(void);
/** The caller's rank in the group, -1 if it is not a member. 0 without a process group. */
FABRIC_API int th_dist_get_rank(th_process_group *group);
/** The number of ranks in the group, -1 if the caller is not a member. 1 without a process group. */
FABRIC_API int th_dist_get_world_size(th_process_group *group);
/** "gloo", ... "" without a process group. [borrowed] from the group */
FABRIC_API const char *th_dist_get_backend(th_process_group *group);
/** From a rank in the group to the global one and back; a rank that is not there is a ValueError (and gives -1). */
FABRIC_API int th_dist_get_global_rank(th_process_group *group, int group_rank);
FABRIC_API int th_dist_get_group_rank(th_process_group *group, int global_rank);

struct th_dist_new_group_args {
    const int *ranks;      /**< global ranks of the members, in group order; NULL: all */
    size_t n_ranks;
    double timeout;        /**< seconds; 0: as the default group */
    const char *backend;   /**< NULL: as the default group */
};
/** torch.distributed.new_group. Every rank of the default group calls it, in the same order, members or not; a rank that is not a
 * member gets a group in which collectives do nothing (with rank -1). [owned] by the library until
 * th_dist_destroy_process_group. */
FABRIC_API th_process_group *th_dist_new_group_call(struct th_dist_new_group_args args);
#define th_dist_new_group(...) th_dist_new_group_call((struct th_dist_new_group_args){.n_ranks = 0, __VA_ARGS__})

/* ---------------------------------------------------------------- collectives on tensors
 *
 * Any dtype, layout in memory and number of elements, on every backend. Roots, sources and destinations are global ranks. In place
 * means: into the memory of the tensor given; its autograd history is not touched. */

struct th_dist_call_args {
    th_tensor *tensor;
    th_reduce_op op;          /**< reductions only. The default is TH_REDUCE_SUM. */
    th_process_group *group;  /**< NULL: the default group */
    int src;                  /**< broadcast, scatter, recv; the default is global rank 0 */
    int dst;                  /**< reduce, gather, send; the default is global rank 0 */
    int tag;                  /**< send and recv */
    th_tensors list;          /**< what scatter's source sends; gather, all_gather: not used */
};

/** Returns when every rank of the group has entered. */
FABRIC_API th_status th_dist_barrier(th_process_group *group);
/** barrier() whose error names all ranks that did not arrive within `timeout` seconds (0: the group's timeout). */
FABRIC_API th_status th_dist_monitored_barrier(th_process_group *group, double timeout);

/** In place: every rank ends with the reduction of all ranks' tensors. */
FABRIC_API th_status th_dist_all_reduce_call(struct th_dist_call_args args);
#define th_dist_all_reduce(...) th_dist_all_reduce_call((struct th_dist_call_args){.tensor = __VA_ARGS__})
/** In place on the destination; other ranks' tensors are unchanged. */
FABRIC_API th_status th_dist_reduce_call(struct th_dist_call_args args);
#define th_dist_reduce(...) th_dist_reduce_call((struct th_dist_call_args){.tensor = __VA_ARGS__})
/** In place: every rank ends with the source's tensor; sizes and dtypes must agree. */
FABRIC_API th_status th_dist_broadcast_call(struct th_dist_call_args args);
#define th_dist_broadcast(...) th_dist_broadcast_call((struct th_dist_call_args){.tensor = __VA_ARGS__})
/** One tensor per rank, in group order. Sizes may differ between ranks, number of dimensions and dtype may not. [scoped] */
FABRIC_API th_tensors th_dist_all_gather_call(struct th_dist_call_args args);
#define th_dist_all_gather(...) th_dist_all_gather_call((struct th_dist_call_args){.tensor = __VA_ARGS__})
/** The same on the destination only; the other ranks get an empty list. [scoped] */
FABRIC_API th_tensors th_dist_gather_call(struct th_dist_call_args args);
#define th_dist_gather(...) th_dist_gather_call((struct th_dist_call_args){.tensor = __VA_ARGS__})
/** In place: rank i ends with the i-th tensor of the source's `.list`. */
FABRIC_API th_status th_dist_scatter_call(struct th_dist_call_args args);
#define th_dist_scatter(...) th_dist_scatter_call((struct th_dist_call_args){.tensor = __VA_ARGS__})
/** Equal parts along dimension 0 concatenated in group order: [n, ...] from every rank gives [size * n, ...]. [scoped] */
FABRIC_API th_tensor *th_dist_all_gather_into_tensor_call(struct th_dist_call_args args);
#define th_dist_all_gather_into_tensor(...) th_dist_all_gather_into_tensor_call((struct th_dist_call_args){.tensor = __VA_ARGS__})
/** Reduces [size * n, ...] over the ranks and returns this rank's part [n, ...]. [scoped] */
FABRIC_API th_tensor *th_dist_reduce_scatter_tensor_call(struct th_dist_call_args args);
#define th_dist_reduce_scatter_tensor(...) th_dist_reduce_scatter_tensor_call((struct th_dist_call_args){.tensor = __VA_ARGS__})
/** Rank i sends its j-th tensor to rank j and returns what it received, in group order; sizes may differ, dtype and number of
 * dimensions may not. [scoped] */
FABRIC_API th_tensors th_dist_all_to_all(th_tensors tensors, th_process_group *group);
/** Sends to `.dst` and returns when the tensor may be changed. */
FABRIC_API th_status th_dist_send_call(struct th_dist_call_args args);
#define th_dist_send(...) th_dist_send_call((struct th_dist_call_args){.tensor = __VA_ARGS__})
/** In place: receives from `.src` (-1: any rank). Returns the global rank it came from, or a negative status. */
FABRIC_API int th_dist_recv_call(struct th_dist_call_args args);
#define th_dist_recv(...) th_dist_recv_call((struct th_dist_call_args){.tensor = __VA_ARGS__})

/** torch.distributed.nn.functional.all_gather, stacked: [...] from every rank gives [size, ...], and gradients flow back: each rank
 * receives the sum over ranks of the gradient for its part. [scoped] */
FABRIC_API th_tensor *th_dist_all_gather_autograd(th_tensor *tensor, th_process_group *group);

/* ---------------------------------------------------------------- collectives on nested values */

/** Fabric.all_gather: numbers become tensors (bool uint8, int int32, float float32), every tensor in the tree gets a new leading
 * dimension of the group's size; strings and other leaves stay. sync_grads as th_dist_all_gather_autograd. Without a process group
 * tensors are unchanged. `data` is borrowed. [owned] */
FABRIC_API th_value *th_dist_all_gather_value(th_value *data, th_process_group *group, bool sync_grads);
/** Fabric.all_reduce: the same conversion; tensors of the tree are reduced in place. `data` is borrowed. [owned] */
FABRIC_API th_value *th_dist_all_reduce_value(th_value *data, th_process_group *group, th_reduce_op op);
/** Fabric.broadcast: any value (None, numbers, text, bytes, tensors, lists, dicts) of the source, on every rank. Other ranks'
 * `data` may be NULL and is ignored. Live objects (th_state) are sent as their state dicts. [owned] */
FABRIC_API th_value *th_dist_broadcast_value(th_value *data, int src, th_process_group *group);
/** all_gather_object: a list with every rank's value. [owned] */
FABRIC_API th_value *th_dist_all_gather_object(th_value *data, th_process_group *group);
/** gather_object: the list on `dst`, NULL (no error) elsewhere. [owned] */
FABRIC_API th_value *th_dist_gather_object(th_value *data, int dst, th_process_group *group);
/** scatter_object_list: rank i gets the i-th item of the source's list. [owned] */
FABRIC_API th_value *th_dist_scatter_object_list(th_value *list, int src, th_process_group *group);
/** True when all ranks (or, with all = false, any rank) say yes. `decision` itself without a process group. */
FABRIC_API bool th_dist_reduce_boolean_decision(bool decision, bool all, th_process_group *group);

/* ---------------------------------------------------------------- data-parallel modules */

/** torch.nn.parallel.DistributedDataParallel. */
typedef struct th_ddp th_ddp;

/** One bucket of gradients on its way to the other ranks. */
typedef struct th_grad_bucket {
    th_tensor *buffer;          /**< flat, the sum of this rank's gradients, not divided; reduce it in place */
    size_t index, count;        /**< which of how many */
    th_process_group *group;
} th_grad_bucket;
/** register_comm_hook: called in bucket order instead of dividing and all-reducing; must leave the average over the ranks in
 * bucket->buffer. Runs on the thread of the backward, which waits for it. */
typedef th_status (*th_comm_hook)(th_grad_bucket *bucket, void *user);

struct th_ddp_args {
    th_module *module;
    th_process_group *group;         /**< NULL: the default group */
    double bucket_cap_mb;            /**< 0: 25, with a first bucket of 1 MiB */
    bool find_unused_parameters;     /**< parameters that take no part in the loss count as zero gradient */
    bool static_graph;               /**< which parameters are used, and how often, never changes: learned in the first backward */
    bool gradient_as_bucket_view;    /**< gradients are views of the buckets: one copy and its memory less */
    bool broadcast_buffers;          /**< buffers follow rank 0. The default is true. */
    bool init_sync;                  /**< compare the modules and broadcast rank 0's tensors first. The default is true. */
    bool check_batches;              /**< ranks at different batches of their loaders are an error. The default is true. */
};
/** Averages the gradients of `module` over the ranks from now on: compares the modules of all ranks, broadcasts parameters and
 * buffers from rank 0, and hooks the parameters' gradients. The module is retained and its forward not replaced: call
 * th_ddp_pre_forward and th_ddp_post_forward around each. Parameters must not be added, frozen or replaced afterwards. [owned]
 * th_ddp_free.
 *
 * Whether a backward averages is decided when it runs (th_ddp_set_require_sync), so a no-sync region may cover forward and backward or
 * backward alone. All communication happens inside backward: forwards may differ between ranks. At its end the buffers of rank 0 are
 * copied to the others, so every rank starts the next forward with rank 0's, as in PyTorch, and all are equal in between. */
FABRIC_API FABRIC_NODISCARD th_ddp *th_ddp_new_call(struct th_ddp_args args);
#define th_ddp_new(...) \
    th_ddp_new_call((struct th_ddp_args){.broadcast_buffers = true, .init_sync = true, .check_batches = true, .module = __VA_ARGS__})
/** Removes the hooks. NULL is allowed. Works with an error pending. */
FABRIC_API void th_ddp_free(th_ddp *ddp);
/** Before a forward: parameters that got no gradient in the last averaged backward are an error that names them. */
FABRIC_API th_status th_ddp_pre_forward(th_ddp *ddp);
/** After a forward: with find_unused_parameters, finds the parameters that `outputs` depend on. */
FABRIC_API th_status th_ddp_post_forward(th_ddp *ddp, th_tensors outputs);
/** no_sync(): false lets gradients accumulate locally. Returns the previous setting. */
FABRIC_API bool th_ddp_set_require_sync(th_ddp *ddp, bool sync);
/** Broadcasts rank 0's buffers now, for buffers that were changed outside of training steps. Every rank calls it. */
FABRIC_API th_status th_ddp_sync_buffers(th_ddp *ddp);
/** Once, before the first backward. A second one is a RuntimeError. */
FABRIC_API th_status th_ddp_register_comm_hook(th_ddp *ddp, th_comm_hook hook, void *user);
/** The hooks of torch.distributed.algorithms.ddp_comm_hooks.default_hooks; user NULL. */
FABRIC_API th_status th_ddp_allreduce_hook(th_grad_bucket *bucket, void *user);
FABRIC_API th_status th_ddp_fp16_compress_hook(th_grad_bucket *bucket, void *user);
FABRIC_API th_status th_ddp_bf16_compress_hook(th_grad_bucket *bucket, void *user);
/** Join: for a rank whose data has ended. Takes part in the other ranks' backwards of these modules (which share a group) with zero
 * gradients until they have joined too; gradients are still divided by the full world size. At the end every rank has the
 * parameters and buffers of a rank that ran longest. Any other collective of a rank that still runs is an error on all. */
FABRIC_API th_status th_ddp_join(th_ddp *const *ddps, size_t n);

typedef struct th_ddp_stats {
    int64_t all_reduces;       /**< bucket reductions so far */
    int64_t synced_backwards;
    size_t buckets;
    size_t bucket_bytes;       /**< of all buckets together */
    bool rebuilt;              /**< the buckets follow the observed order of gradients */
} th_ddp_stats;
FABRIC_API th_ddp_stats th_ddp_get_stats(th_ddp *ddp);

TH_END_DECLS
#endif
