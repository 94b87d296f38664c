/* cfabric/strategies.h: strategy objects with options, for fabric_new(.strategy_object = ...). Names such as "ddp" make them with the
 * defaults. */
#ifndef CFABRIC_STRATEGIES_H
#define CFABRIC_STRATEGIES_H

#include <cfabric/dist.h>
#include <cfabric/plugin/strategy.h>

TH_BEGIN_DECLS

struct fabric_strategy_ddp_args {
    const char *start_method;            /**< "popen" (the program is started again), "spawn", "fork" or "forkserver" */
    const char *process_group_backend;   /**< NULL: by device, gloo on the CPU and nccl on CUDA */
    double timeout;                      /**< seconds for the start-up and for each collective; 0: 1800 */
    double bucket_cap_mb;                /**< th_ddp_args has the rest */
    bool find_unused_parameters;
    bool static_graph;
    bool gradient_as_bucket_view;
    bool broadcast_buffers;              /**< the default is true */
    bool init_sync;                      /**< the default is true */
    bool check_batches;                  /**< the default is true */
    bool check_collectives;              /**< .check of the process group; the default is true */
    th_comm_hook comm_hook;              /**< registered on every module; NULL: plain all-reduce */
    void *comm_hook_user;
};
/** DDPStrategy: one process per device, gradients averaged over all of them. [owned] */
FABRIC_API FABRIC_NODISCARD fabric_strategy *fabric_strategy_ddp_new_call(struct fabric_strategy_ddp_args args);
#define fabric_strategy_ddp_new(...)                                                                                       \
    fabric_strategy_ddp_new_call((struct fabric_strategy_ddp_args){.start_method = "popen", .broadcast_buffers = true,     \
                                                                   .init_sync = true, .check_batches = true,               \
                                                                   .check_collectives = true, __VA_ARGS__})
/** The data-parallel part of a module that was set up with it, for statistics and hooks; NULL if it was not. [borrowed] */
FABRIC_API th_ddp *fabric_strategy_ddp_of(fabric_strategy *strategy, th_module *module);
/** For a rank whose data has ended: th_ddp_join over all modules of the strategy. With another strategy or one process: nothing. */
FABRIC_API th_status fabric_strategy_ddp_join(fabric_strategy *strategy);
/** The same for a Fabric: call it after the training loop of every epoch when ranks may have different numbers of batches. */
FABRIC_API th_status fabric_join(fabric *fab);

/** Whether all ranks see the same file system under `path` (NULL: the working directory). True for one process and for remote
 * addresses ("s3://..."), false when the path differs between ranks; one that some rank lacks is TH_ERR_NOT_FOUND. Every rank calls it.
 * `timeout`: seconds for rank 0's probe file to appear; 0: 3. */
FABRIC_API bool fabric_strategy_is_shared_filesystem(fabric_strategy *strategy, const char *path, double timeout);

TH_END_DECLS
#endif
