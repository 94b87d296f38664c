/* cfabric/plugin/strategy.h: writing a strategy (lightning.fabric.strategies): how a model is spread over processes and devices. */
#ifndef CFABRIC_PLUGIN_STRATEGY_H
#define CFABRIC_PLUGIN_STRATEGY_H

#include <cfabric/plugin/accelerator.h>
#include <cfabric/plugin/checkpoint_io.h>
#include <cfabric/plugin/environment.h>
#include <cfabric/plugin/precision.h>
#include <cfabric/plugin/types.h>

TH_BEGIN_DECLS

/** Keeps some entries of one top-level dict of a state when it is saved: `keep` is asked for each of them. */
typedef struct fabric_filter_entry {
    const char *key;
    bool (*keep)(const char *name, th_value *value, void *user);
    void *user;
} fabric_filter_entry;
typedef struct fabric_filter {
    const fabric_filter_entry *data;
    size_t size;
} fabric_filter;

/** What a save may be told. Grows at the end. */
typedef struct fabric_save_options {
    fabric_filter filter;
    bool async;           /**< copies the tensors and writes in the background */
} fabric_save_options;

/** The table. A module's `state` is what setup_module made of it. */
typedef struct fabric_strategy_ops {
    size_t size;                  /**< sizeof(fabric_strategy_ops) */
    const char *name;             /**< "DDPStrategy": the class, for messages */

    /* ---- facts */
    /** The launcher it needs: NULL or "" none (everything happens in this process), "subprocess" (the program is started again),
     * "spawn", "fork". NULL slot: none. [borrowed] */
    const char *(*launcher)(fabric_strategy *strategy);
    /** One process without collectives: Fabric's methods may be used without fabric_launch. */
    bool single_process;
    /** A plain th_backward outside fabric_backward is an error. */
    bool requires_fabric_backward;
    /** Module and optimizers must be set up together (fabric_setup); fabric_setup_optimizers is TH_ERR_RUNTIME. */
    bool requires_joint_setup;
    /** NULL slot: the local rank's parallel device, CPU without any. */
    th_device (*root_device)(fabric_strategy *strategy);
    /** NULL slots: 0, 0, 0, 1. */
    int (*global_rank)(fabric_strategy *strategy);
    int (*local_rank)(fabric_strategy *strategy);
    int (*node_rank)(fabric_strategy *strategy);
    int (*world_size)(fabric_strategy *strategy);
    /** Returns true and the arguments of the DistributedSampler that loaders get. NULL slot: false, loaders keep their samplers. */
    bool (*sampler_args)(fabric_strategy *strategy, int *num_replicas, int *rank);

    /* ---- setting up */
    /** Called once by fabric_new when all parts are bound (not yet the processes): checks the combination. NULL slot: fine. */
    th_status (*validate)(fabric_strategy *strategy);
    /** In every process after launching. NULL slot: fabric_strategy_default_setup_environment (prepares the root device). */
    th_status (*setup_environment)(fabric_strategy *strategy);
    /** Takes a module that has been converted and moved; `*state` comes back in the slots below. NULL slot: nothing. */
    th_status (*setup_module)(fabric_strategy *strategy, th_module *module, void **state);
    /** NULL slot: nothing. */
    th_status (*setup_optimizer)(fabric_strategy *strategy, th_optimizer *optimizer);
    /** NULL slot: setup_module, then setup_optimizer for each. `scheduler` may be NULL. */
    th_status (*setup_module_and_optimizers)(fabric_strategy *strategy, th_module *module, th_optimizer *const *optimizers, size_t n,
                                             th_scheduler *scheduler, void **state);
    /** NULL slot: moves everything to the root device. */
    th_status (*module_to_device)(fabric_strategy *strategy, th_module *module);
    /** Changes a loader that fabric_setup_dataloaders gets. NULL slot: nothing. */
    th_status (*process_dataloader)(fabric_strategy *strategy, th_dataloader *loader);
    /** Where fabric_init_module creates parameters, and whether initialisers are skipped. `empty_init`: -1 not given, 0, 1. NULL slot:
     * the root device, skipped when 1. */
    th_status (*module_init)(fabric_strategy *strategy, int empty_init, th_device *device, bool *skip_init);
    /** Frees a module's state. NULL slot: nothing. */
    void (*free_module)(fabric_strategy *strategy, th_module *module, void *state);

    /* ---- training */
    /** A forward of a set-up module, inside the precision's context. NULL slot: fabric_strategy_default_forward. [scoped] */
    th_tensors (*forward)(fabric_strategy *strategy, th_module *module, void *state, th_tensors inputs);
    /** NULL slot: fabric_strategy_default_backward (the precision's pre_backward, backward, post_backward). `module` may be NULL. */
    th_status (*backward)(fabric_strategy *strategy, th_module *module, const struct th_backward_args *args);
    /** NULL slot: fabric_strategy_default_optimizer_step (the precision's). [scoped] the closure's result, NULL without closure */
    th_tensor *(*optimizer_step)(fabric_strategy *strategy, th_optimizer *optimizer, th_closure closure, void *user);
    /** Return the norm before clipping [scoped] / a status. NULL slots: unscale, then over all parameters of the optimizer. */
    th_tensor *(*clip_gradients_norm)(fabric_strategy *strategy, th_module *module, th_optimizer *optimizer, double max_norm,
                                      double norm_type, bool error_if_nonfinite);
    th_status (*clip_gradients_value)(fabric_strategy *strategy, th_module *module, th_optimizer *optimizer, double clip_val);
    /** Enters (true) / leaves (false) a region without gradient synchronisation. NULL slot: one warning, no effect. */
    th_status (*no_backward_sync)(fabric_strategy *strategy, th_module *module, void *state, bool enter);

    /* ---- collectives; called only with one thread per process, in the same order on every rank */
    /** In place on `tensor`, returned. `op`: "mean", "avg", "sum", "max", "min", "product", "band", "bor", "bxor", lower case. `group`
     * NULL: everybody. NULL slot: unchanged. */
    th_tensor *(*all_reduce)(fabric_strategy *strategy, th_tensor *tensor, const char *op, th_process_group *group);
    /** A new leading dimension of the group's size. `sync_grads`: differentiable. NULL slot: the tensor itself. [scoped] */
    th_tensor *(*all_gather)(fabric_strategy *strategy, th_tensor *tensor, bool sync_grads, th_process_group *group);
    /** The value of rank `src` on every rank. NULL slot: the value itself, retained. [owned] */
    th_value *(*broadcast)(fabric_strategy *strategy, th_value *value, int src);
    /** `name` may be NULL. NULL slot: nothing. */
    th_status (*barrier)(fabric_strategy *strategy, const char *name);
    /** All ranks' (or any rank's) decision. NULL slot: its own. */
    bool (*reduce_boolean_decision)(fabric_strategy *strategy, bool decision, bool all);
    /** rank_zero_first: waits without a timeout worth mentioning, also before launch (then no effect). NULL slot: nothing. */
    th_status (*infinite_barrier)(fabric_strategy *strategy);

    /* ---- checkpoints: every rank calls them, the slot decides who writes */
    /** NULL slot: fabric_strategy_default_save_checkpoint: state dicts, filter, global rank 0 writes through the checkpoint IO. */
    th_status (*save_checkpoint)(fabric_strategy *strategy, const char *path, th_value *state, const fabric_save_options *options);
    /** `state` NULL or empty: everything is returned. NULL slot: restores in place, returns the rest. [owned] */
    th_value *(*load_checkpoint)(fabric_strategy *strategy, const char *path, th_value *state, bool strict);
    /** The file holds the bare state of one object. NULL slot: read and load. */
    th_status (*load_raw)(fabric_strategy *strategy, const char *path, th_value *object, bool strict);
    /** State dicts of set-up objects. NULL slots: the plain ones. [owned] */
    th_value *(*module_state)(fabric_strategy *strategy, th_module *module);
    th_status (*load_module_state)(fabric_strategy *strategy, th_module *module, th_value *state, bool strict);
    th_value *(*optimizer_state)(fabric_strategy *strategy, th_optimizer *optimizer);
    th_status (*load_optimizer_state)(fabric_strategy *strategy, th_optimizer *optimizer, th_value *state);

    /* ---- the end */
    /** Leaves process groups. Runs with an error pending too. NULL slot: nothing; precision, accelerator, checkpoint IO and
     * environment are torn down by Fabric afterwards. */
    th_status (*teardown)(fabric_strategy *strategy);
    /** Ends `self`. NULL: nothing to free. */
    void (*free)(void *self);
} fabric_strategy_ops;

/** A strategy from a table. [owned] */
FABRIC_API FABRIC_NODISCARD fabric_strategy *fabric_strategy_new(const fabric_strategy_ops *ops, void *self);
FABRIC_API fabric_strategy *fabric_strategy_retain(fabric_strategy *strategy);
/** NULL is allowed. */
FABRIC_API void fabric_strategy_free(fabric_strategy *strategy);
FABRIC_API void *fabric_strategy_self(fabric_strategy *strategy);
FABRIC_API const fabric_strategy_ops *fabric_strategy_ops_of(fabric_strategy *strategy);

/* ---- the parts it works with. Fabric binds those that the strategy's maker did not give; a set replaces and takes over the old. */
FABRIC_API fabric_accelerator *fabric_strategy_accelerator(fabric_strategy *strategy);     /**< [borrowed] NULL: none yet */
FABRIC_API fabric_precision *fabric_strategy_precision(fabric_strategy *strategy);         /**< [borrowed] NULL: none yet */
FABRIC_API fabric_checkpoint_io *fabric_strategy_checkpoint_io(fabric_strategy *strategy); /**< [borrowed] NULL: none yet */
FABRIC_API fabric_environment *fabric_strategy_environment(fabric_strategy *strategy);     /**< [borrowed] NULL: none yet */
/** One device per process of this node. [borrowed] */
FABRIC_API fabric_devices fabric_strategy_parallel_devices(fabric_strategy *strategy);
FABRIC_API int fabric_strategy_num_nodes(fabric_strategy *strategy);
/** Hand a part over; NULL only propagates a pending error. */
FABRIC_API th_status fabric_strategy_set_accelerator(fabric_strategy *strategy, fabric_accelerator *accelerator);
FABRIC_API th_status fabric_strategy_set_precision(fabric_strategy *strategy, fabric_precision *precision);
FABRIC_API th_status fabric_strategy_set_checkpoint_io(fabric_strategy *strategy, fabric_checkpoint_io *io);
FABRIC_API th_status fabric_strategy_set_environment(fabric_strategy *strategy, fabric_environment *environment);
FABRIC_API th_status fabric_strategy_set_parallel_devices(fabric_strategy *strategy, fabric_devices devices); /**< copied */
FABRIC_API th_status fabric_strategy_set_num_nodes(fabric_strategy *strategy, int num_nodes);

/* ---- the slots with their defaults */
FABRIC_API const char *fabric_strategy_name(fabric_strategy *strategy);
/** "" when it needs none. Never NULL. */
FABRIC_API const char *fabric_strategy_launcher(fabric_strategy *strategy);
FABRIC_API th_device fabric_strategy_root_device(fabric_strategy *strategy);
FABRIC_API int fabric_strategy_global_rank(fabric_strategy *strategy);
FABRIC_API int fabric_strategy_local_rank(fabric_strategy *strategy);
FABRIC_API int fabric_strategy_node_rank(fabric_strategy *strategy);
FABRIC_API int fabric_strategy_world_size(fabric_strategy *strategy);
FABRIC_API bool fabric_strategy_sampler_args(fabric_strategy *strategy, int *num_replicas, int *rank);
FABRIC_API th_status fabric_strategy_validate(fabric_strategy *strategy);
FABRIC_API th_status fabric_strategy_setup_environment(fabric_strategy *strategy);
FABRIC_API th_status fabric_strategy_setup_module(fabric_strategy *strategy, th_module *module, void **state);
FABRIC_API th_status fabric_strategy_setup_optimizer(fabric_strategy *strategy, th_optimizer *optimizer);
FABRIC_API th_status fabric_strategy_setup_module_and_optimizers(fabric_strategy *strategy, th_module *module,
                                                                 th_optimizer *const *optimizers, size_t n, th_scheduler *scheduler,
                                                                 void **state);
FABRIC_API th_status fabric_strategy_module_to_device(fabric_strategy *strategy, th_module *module);
FABRIC_API th_status fabric_strategy_process_dataloader(fabric_strategy *strategy, th_dataloader *loader);
FABRIC_API th_status fabric_strategy_module_init(fabric_strategy *strategy, int empty_init, th_device *device, bool *skip_init);
FABRIC_API void fabric_strategy_free_module(fabric_strategy *strategy, th_module *module, void *state);
FABRIC_API th_tensors fabric_strategy_forward(fabric_strategy *strategy, th_module *module, void *state, th_tensors inputs);
FABRIC_API th_status fabric_strategy_backward(fabric_strategy *strategy, th_module *module, const struct th_backward_args *args);
FABRIC_API th_tensor *fabric_strategy_optimizer_step(fabric_strategy *strategy, th_optimizer *optimizer, th_closure closure, void *user);
FABRIC_API th_tensor *fabric_strategy_clip_gradients_norm(fabric_strategy *strategy, th_module *module, th_optimizer *optimizer,
                                                          double max_norm, double norm_type, bool error_if_nonfinite);
FABRIC_API th_status fabric_strategy_clip_gradients_value(fabric_strategy *strategy, th_module *module, th_optimizer *optimizer,
                                                          double clip_val);
FABRIC_API th_status fabric_strategy_no_backward_sync(fabric_strategy *strategy, th_module *module, void *state, bool enter);
FABRIC_API th_tensor *fabric_strategy_all_reduce(fabric_strategy *strategy, th_tensor *tensor, const char *op, th_process_group *group);
FABRIC_API th_tensor *fabric_strategy_all_gather(fabric_strategy *strategy, th_tensor *tensor, bool sync_grads, th_process_group *group);
FABRIC_API th_value *fabric_strategy_broadcast(fabric_strategy *strategy, th_value *value, int src);
FABRIC_API th_status fabric_strategy_barrier(fabric_strategy *strategy, const char *name);
FABRIC_API bool fabric_strategy_reduce_boolean_decision(fabric_strategy *strategy, bool decision, bool all);
FABRIC_API th_status fabric_strategy_infinite_barrier(fabric_strategy *strategy);
FABRIC_API th_status fabric_strategy_save_checkpoint(fabric_strategy *strategy, const char *path, th_value *state,
                                                     const fabric_save_options *options);
FABRIC_API th_value *fabric_strategy_load_checkpoint(fabric_strategy *strategy, const char *path, th_value *state, bool strict);
FABRIC_API th_status fabric_strategy_load_raw(fabric_strategy *strategy, const char *path, th_value *object, bool strict);
FABRIC_API th_value *fabric_strategy_module_state(fabric_strategy *strategy, th_module *module);
FABRIC_API th_status fabric_strategy_load_module_state(fabric_strategy *strategy, th_module *module, th_value *state, bool strict);
FABRIC_API th_value *fabric_strategy_optimizer_state(fabric_strategy *strategy, th_optimizer *optimizer);
FABRIC_API th_status fabric_strategy_load_optimizer_state(fabric_strategy *strategy, th_optimizer *optimizer, th_value *state);
FABRIC_API th_status fabric_strategy_teardown(fabric_strategy *strategy);

/* ---- defaults by name, for tables that do a little more than the default */
FABRIC_API th_status fabric_strategy_default_setup_environment(fabric_strategy *strategy);
FABRIC_API th_tensors fabric_strategy_default_forward(fabric_strategy *strategy, th_module *module, void *state, th_tensors inputs);
FABRIC_API th_status fabric_strategy_default_backward(fabric_strategy *strategy, th_module *module, const struct th_backward_args *args);
FABRIC_API th_tensor *fabric_strategy_default_optimizer_step(fabric_strategy *strategy, th_optimizer *optimizer, th_closure closure,
                                                             void *user);
FABRIC_API th_tensor *fabric_strategy_default_clip_gradients_norm(fabric_strategy *strategy, th_module *module, th_optimizer *optimizer,
                                                                  double max_norm, double norm_type, bool error_if_nonfinite);
FABRIC_API th_status fabric_strategy_default_clip_gradients_value(fabric_strategy *strategy, th_module *module,
                                                                  th_optimizer *optimizer, double clip_val);
FABRIC_API th_status fabric_strategy_default_save_checkpoint(fabric_strategy *strategy, const char *path, th_value *state,
                                                             const fabric_save_options *options);
FABRIC_API th_value *fabric_strategy_default_load_checkpoint(fabric_strategy *strategy, const char *path, th_value *state, bool strict);

/** A name that `.strategy = "..."` accepts (in any case). */
typedef struct fabric_strategy_entry {
    size_t size;              /**< sizeof(fabric_strategy_entry) */
    const char *name;         /**< lower case */
    const char *description;
    fabric_strategy *(*create)(const char *preset);  /**< [owned] */
    const char *preset;       /**< handed to `create`; may be NULL */
    bool override;            /**< replaces an entry of that name instead of being TH_ERR_VALUE */
} fabric_strategy_entry;

/** Adds a name; the entry and its texts must stay valid. Call it before fabric_new. Any thread. */
FABRIC_API th_status fabric_strategy_register(const fabric_strategy_entry *entry);
FABRIC_API th_status fabric_strategy_unregister(const char *name);
/** The entry of a name, compared without case; NULL if unknown (no error). [borrowed] */
FABRIC_API const fabric_strategy_entry *fabric_strategy_find(const char *name);
/** Makes one by name. An unknown name is TH_ERR_VALUE, suggests the nearest and lists the known ones. [owned] */
FABRIC_API FABRIC_NODISCARD fabric_strategy *fabric_strategy_create(const char *name);
FABRIC_API const char *fabric_strategy_registered(size_t i);

/** The strategy of one process on one device. [owned] */
FABRIC_API FABRIC_NODISCARD fabric_strategy *fabric_strategy_single_device(th_device device);

TH_END_DECLS
#endif
