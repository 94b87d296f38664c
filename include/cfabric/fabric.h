/* cfabric/fabric.h: the Fabric object. Read this first.
 *
 * Fabric does three things for a training loop that stays yours: it places models and data on devices, it starts processes and makes
 * them work together, and it switches precision and strategy by name. Five steps turn a plain loop into one that scales:
 *
 *     fabric *fab = fabric_new(.accelerator = "auto", .devices = "2", .strategy = "ddp");   1
 *     fabric_launch(fab);                                                                  2
 *     fabric_setup(fab, model, optimizer);                                                 3
 *     fabric_setup_dataloaders(fab, train);                                                3
 *     (no device moves)                                                                    4
 *     fabric_backward(fab, loss);                                                          5
 *     ...
 *     return fabric_finish(fab);
 *
 * Set-up is in place: the same module, optimizer and loader are used afterwards. Fabric keeps a reference to each until fabric_finish;
 * the caller's own reference stays the caller's. One Fabric belongs to one thread. Functions return a status and raise sticky errors
 * (see error.h); those that return tensors return NULL while an error is pending. */
#ifndef CFABRIC_FABRIC_H
#define CFABRIC_FABRIC_H

#include <cfabric/plugin/logger.h>
#include <cfabric/plugin/strategy.h>
#include <math.h>

TH_BEGIN_DECLS

/* ---------------------------------------------------------------- making one */

/** A part given to `.plugins`. */
typedef enum fabric_plugin_kind {
    FABRIC_PLUGIN_NONE = 0, FABRIC_PLUGIN_PRECISION, FABRIC_PLUGIN_CHECKPOINT_IO, FABRIC_PLUGIN_ENVIRONMENT
} fabric_plugin_kind;
typedef struct fabric_plugin { fabric_plugin_kind kind; void *object; } fabric_plugin;
typedef struct fabric_plugins { const fabric_plugin *data; size_t size; } fabric_plugins;
static inline fabric_plugin fabric_plugin_precision(fabric_precision *p) { fabric_plugin r = {FABRIC_PLUGIN_PRECISION, p}; return r; }
static inline fabric_plugin fabric_plugin_checkpoint_io(fabric_checkpoint_io *p)
{
    fabric_plugin r = {FABRIC_PLUGIN_CHECKPOINT_IO, p};
    return r;
}
static inline fabric_plugin fabric_plugin_environment(fabric_environment *p)
{
    fabric_plugin r = {FABRIC_PLUGIN_ENVIRONMENT, p};
    return r;
}

typedef struct fabric_loggers { fabric_logger *const *data; size_t size; } fabric_loggers;
typedef struct fabric_callback fabric_callback;
typedef struct fabric_callbacks { const fabric_callback *data; size_t size; } fabric_callbacks;

#ifndef __cplusplus
/** .plugins = FABRIC_PLUGINS(fabric_plugin(my_environment), fabric_plugin(my_precision)) */
#define fabric_plugin(x)                                                                                       \
    _Generic((x), fabric_precision *: fabric_plugin_precision, fabric_checkpoint_io *: fabric_plugin_checkpoint_io, \
             fabric_environment *: fabric_plugin_environment)(x)
#define FABRIC_PLUGINS(...) \
    ((fabric_plugins){(const fabric_plugin[]){__VA_ARGS__}, sizeof((const fabric_plugin[]){__VA_ARGS__}) / sizeof(fabric_plugin)})
#define FABRIC_LOGGERS(...) \
    ((fabric_loggers){(fabric_logger *const[]){__VA_ARGS__}, sizeof((fabric_logger *const[]){__VA_ARGS__}) / sizeof(fabric_logger *)})
#define FABRIC_CALLBACKS(...)                                                                          \
    ((fabric_callbacks){(const fabric_callback[]){__VA_ARGS__},                                        \
                        sizeof((const fabric_callback[]){__VA_ARGS__}) / sizeof(fabric_callback)})
#endif

struct fabric_new_args {
    const char *accelerator;    /**< "auto", "cpu", "gpu", "cuda", "mps", "tpu", or a registered name */
    const char *strategy;       /**< "auto" or a registered name ("ddp", ...), in any case */
    const char *devices;        /**< "auto", a count ("2"), "-1" for all, or a list of ids ("0,1", "2,") */
    int num_nodes;              /**< machines, 1 or more */
    const char *precision;      /**< "32-true", "64-true", "16-mixed", "bf16-mixed", "16-true", "bf16-true", ...; NULL: "32-true" */
    fabric_plugins plugins;     /**< handed over */
    fabric_callbacks callbacks; /**< copied; called in this order */
    fabric_loggers loggers;     /**< handed over */
    fabric_accelerator *accelerator_object; /**< instead of a name; handed over */
    fabric_strategy *strategy_object;       /**< instead of a name; handed over */
};
#define FABRIC_NEW_DEFAULTS .accelerator = "auto", .strategy = "auto", .devices = "auto", .num_nodes = 1
/** Fabric(): chooses the parts. Environment variables LT_ACCELERATOR, LT_STRATEGY, LT_DEVICES, LT_NUM_NODES, LT_PRECISION replace
 * arguments; under `fabric run` an argument that contradicts them is an error. NULL with an error raised. [owned] fabric_finish */
FABRIC_API FABRIC_NODISCARD fabric *fabric_new_call(struct fabric_new_args args);
#define fabric_new(...) fabric_new_call((struct fabric_new_args){FABRIC_NEW_DEFAULTS, __VA_ARGS__})

/** Ends Fabric: waits for background saves, finalizes loggers, leaves process groups, releases everything that was set up (which works
 * plainly again) and frees `fab`. Returns the exit code of the process: 0, or 1 while an error is pending. NULL gives 1 when an error is
 * pending, else 0. Calling it again is harmless; any other use of `fab` afterwards is TH_ERR_RUNTIME. Works with an error pending. */
FABRIC_API int fabric_finish(fabric *fab);

/* ---------------------------------------------------------------- processes */

/** Starts the other processes when the strategy needs them and prepares this one. Harmless on a single device, also repeatedly. Under
 * `fabric run`, which has done it already, it is TH_ERR_RUNTIME. */
FABRIC_API th_status fabric_launch(fabric *fab);
/** Have the processes been made and joined? True under `fabric run`; on a single device after fabric_launch. */
FABRIC_API bool fabric_is_launched(fabric *fab);
/** The work of one process: gets Fabric and `user`. Its value on rank 0 is what fabric_launch_fn returns. [owned] or NULL for none */
typedef th_value *(*fabric_entry)(fabric *fab, void *user);
/** The same, then runs `function` in every process. Needed for "ddp_spawn" and "ddp_fork". NULL function is TH_ERR_TYPE. [owned] */
FABRIC_API th_value *fabric_launch_fn(fabric *fab, fabric_entry function, void *user);

/* ---------------------------------------------------------------- properties; after an error -1, NULL or the CPU */
FABRIC_API th_device fabric_device(fabric *fab);
FABRIC_API int fabric_global_rank(fabric *fab);
FABRIC_API int fabric_local_rank(fabric *fab);
FABRIC_API int fabric_node_rank(fabric *fab);
FABRIC_API int fabric_world_size(fabric *fab);
FABRIC_API bool fabric_is_global_zero(fabric *fab);
FABRIC_API fabric_strategy *fabric_strategy_of(fabric *fab);        /**< [borrowed] */
FABRIC_API fabric_accelerator *fabric_accelerator_of(fabric *fab);  /**< [borrowed] */
FABRIC_API fabric_precision *fabric_precision_of(fabric *fab);      /**< [borrowed] */
/** The i-th logger; one that is not there is TH_ERR_VALUE. [borrowed] */
FABRIC_API fabric_logger *fabric_logger_at(fabric *fab, size_t i);
FABRIC_API size_t fabric_n_loggers(fabric *fab);

/* ---------------------------------------------------------------- setting up; all need fabric_launch, unless there is one process */

struct fabric_setup_args {
    fabric *fab;
    th_module *module;
    th_optimizer *optimizer, *optimizer2, *optimizer3, *optimizer4, *optimizer5, *optimizer6, *optimizer7, *optimizer8;
    th_scheduler *scheduler;  /**< passed to strategies that need it; otherwise untouched */
    bool move_to_device;      /**< true; false leaves the module where it is */
};
/** Prepares a module and its optimizers: converts it to the precision, moves it, lets the strategy take it. Whatever was set up already,
 * or an optimizer whose tensors are not the module's, is TH_ERR_VALUE. Fires on_after_setup(module). */
FABRIC_API th_status fabric_setup_call(struct fabric_setup_args args);
#define fabric_setup(fabric_, ...) \
    fabric_setup_call((struct fabric_setup_args){.fab = (fabric_), .move_to_device = true, .module = __VA_ARGS__})

struct fabric_setup_module_args {
    fabric *fab;
    th_module *module;
    bool move_to_device;
};
/** The module alone, for strategies that want the optimizer made afterwards. Fires no hook. */
FABRIC_API th_status fabric_setup_module_call(struct fabric_setup_module_args args);
#define fabric_setup_module(fabric_, ...) \
    fabric_setup_module_call((struct fabric_setup_module_args){.fab = (fabric_), .move_to_device = true, .module = __VA_ARGS__})

struct fabric_setup_optimizers_args {
    fabric *fab;
    th_optimizer *optimizer, *optimizer2, *optimizer3, *optimizer4, *optimizer5, *optimizer6, *optimizer7, *optimizer8;
};
/** Optimizers alone, after fabric_setup_module. */
FABRIC_API th_status fabric_setup_optimizers_call(struct fabric_setup_optimizers_args args);
#define fabric_setup_optimizers(fabric_, ...) \
    fabric_setup_optimizers_call((struct fabric_setup_optimizers_args){.fab = (fabric_), .optimizer = __VA_ARGS__})

struct fabric_setup_dataloaders_args {
    fabric *fab;
    th_dataloader *loader, *loader2, *loader3, *loader4, *loader5, *loader6, *loader7, *loader8;
    bool use_distributed_sampler;  /**< true: with several processes each sees its own part of the data */
    bool move_to_device;           /**< true: batches arrive on Fabric's device */
};
/** Prepares loaders. From then on each pass calls set_epoch(0), set_epoch(1), ... on the samplers by itself. */
FABRIC_API th_status fabric_setup_dataloaders_call(struct fabric_setup_dataloaders_args args);
#define fabric_setup_dataloaders(fabric_, ...)                                                                     \
    fabric_setup_dataloaders_call((struct fabric_setup_dataloaders_args){.fab = (fabric_), .use_distributed_sampler = true, \
                                                                         .move_to_device = true, .loader = __VA_ARGS__})

FABRIC_API bool fabric_is_wrapped_module(th_module *module);
FABRIC_API bool fabric_is_wrapped_optimizer(th_optimizer *optimizer);
FABRIC_API bool fabric_is_wrapped_dataloader(th_dataloader *loader);
#ifndef __cplusplus
/** is_wrapped(): has this module, optimizer or loader been set up? */
#define fabric_is_wrapped(x)                                                                                    \
    _Generic((x), th_module *: fabric_is_wrapped_module, th_optimizer *: fabric_is_wrapped_optimizer,           \
             th_dataloader *: fabric_is_wrapped_dataloader)(x)
#endif

/** What mark_forward_method is for: runs another entry point of a set-up module (a training_step) as if it were its forward, so precision
 * and strategy apply to it once. `function` uses the module's parts. [scoped] */
typedef th_tensors (*fabric_forward_method)(th_module *module, th_tensors inputs, void *user);
FABRIC_API th_tensors fabric_forward_through(th_module *module, fabric_forward_method function, void *user, th_tensors inputs);

/* ---------------------------------------------------------------- training */

struct fabric_backward_args {
    fabric *fab;
    th_tensor *tensor;
    th_module *model;          /**< only needed by strategies that work with several models */
    th_tensor *gradient;       /**< NULL: a scalar's gradient is 1 */
    th_opt_bool retain_graph;
    bool create_graph;
    th_tensors inputs;
};
/** loss.backward() through strategy and precision (loss scaling, gradient synchronisation). */
FABRIC_API th_status fabric_backward_call(struct fabric_backward_args args);
#define fabric_backward(fabric_, ...) fabric_backward_call((struct fabric_backward_args){.fab = (fabric_), .tensor = __VA_ARGS__})

struct fabric_clip_gradients_args {
    fabric *fab;
    th_module *module;
    th_optimizer *optimizer;
    double clip_val;          /**< clamps every gradient element to +-clip_val */
    double max_norm;          /**< scales all gradients so that their norm is at most this */
    double norm_type;         /**< 2; INFINITY for the largest element */
    bool error_if_nonfinite;  /**< true: a norm that is NaN or infinite is TH_ERR_RUNTIME */
};
/** Clips the gradients of the optimizer's parameters, by exactly one of clip_val and max_norm. Returns the norm before clipping (a
 * 0-dimensional tensor) [scoped], NULL when clipping by value. */
FABRIC_API th_tensor *fabric_clip_gradients_call(struct fabric_clip_gradients_args args);
#define fabric_clip_gradients(fabric_, ...)                                                                          \
    fabric_clip_gradients_call((struct fabric_clip_gradients_args){.fab = (fabric_), .clip_val = NAN, .max_norm = NAN, .norm_type = 2.0, \
                                                                   .error_if_nonfinite = true, .module = __VA_ARGS__})

/* ---------------------------------------------------------------- regions. The macros last to the end of the block. */

/** An open region; end it with fabric_leave. */
typedef struct fabric_guard {
    fabric *fab;
    void (*leave)(struct fabric_guard *guard);
    void *object;
    fabric_context context;
} fabric_guard;
/** Ends a region. Works with an error pending. Harmless a second time. */
FABRIC_API void fabric_leave(fabric_guard *guard);
/** The precision's forward context, for code outside a module. */
FABRIC_API fabric_guard fabric_autocast(fabric *fab);
/** No gradient synchronisation inside: for accumulation. Forward and backward belong inside. `enabled` false: no effect. */
FABRIC_API fabric_guard fabric_no_backward_sync(fabric *fab, th_module *module, bool enabled);
/** Rank 0 (local: of each machine) runs the block first, then the others. Works, without effect, before launching. */
FABRIC_API fabric_guard fabric_rank_zero_first(fabric *fab, bool local);
/** Modules made inside get Fabric's device and precision. `empty_init` 1: without initialising; 0: with; -1: the strategy's choice. */
FABRIC_API fabric_guard fabric_init_module(fabric *fab, int empty_init);
/** Floating tensors made inside get Fabric's device and precision; an explicit dtype wins. */
FABRIC_API fabric_guard fabric_init_tensor(fabric *fab);
#if defined(__GNUC__)
#define FABRIC__GUARD(call) __attribute__((cleanup(fabric_leave), unused)) fabric_guard TH__CAT(fabric__guard_, __COUNTER__) = call
#define FABRIC_AUTOCAST(fab) FABRIC__GUARD(fabric_autocast(fab))
#define FABRIC_NO_BACKWARD_SYNC(fab, module, enabled) FABRIC__GUARD(fabric_no_backward_sync((fab), (module), (enabled)))
#define FABRIC_RANK_ZERO_FIRST(fab, local) FABRIC__GUARD(fabric_rank_zero_first((fab), (local)))
#define FABRIC_INIT_MODULE(fab, empty_init) FABRIC__GUARD(fabric_init_module((fab), (empty_init)))
#define FABRIC_INIT_TENSOR(fab) FABRIC__GUARD(fabric_init_tensor(fab))
#endif

/* ---------------------------------------------------------------- placement, printing, seeds */

/** On Fabric's device; the tensor itself if it is there already. [scoped] */
FABRIC_API th_tensor *fabric_to_device(fabric *fab, th_tensor *tensor);
/** Moves a module in place. */
FABRIC_API th_status fabric_module_to_device(fabric *fab, th_module *module);
/** Moves every tensor in a value, in place. */
FABRIC_API th_status fabric_value_to_device(fabric *fab, th_value *value);

/** printf on stdout where the local rank is 0, flushed. Works before launching. */
FABRIC_API th_status fabric_print(fabric *fab, const char *format, ...) FABRIC_PRINTF(2, 3);

struct fabric_seed_everything_args {
    int64_t seed;    /**< 0 .. 2^32-1; FABRIC_SEED_FROM_ENV: PL_GLOBAL_SEED, else 0 with a warning */
    bool workers;    /**< true: loader workers are seeded too (PL_SEED_WORKERS) */
    bool verbose;    /**< true: says "Seed set to N" */
};
#define FABRIC_SEED_FROM_ENV INT64_MIN
/** seed_everything(): seeds libtorch and sets PL_GLOBAL_SEED, which child processes inherit. Needs no Fabric. Returns the seed, or a
 * negative status. */
FABRIC_API int64_t fabric_seed_everything_call(struct fabric_seed_everything_args args);
#define fabric_seed_everything(...) \
    fabric_seed_everything_call((struct fabric_seed_everything_args){.workers = true, .verbose = true, .seed = __VA_ARGS__})
/** Seeds again from PL_GLOBAL_SEED, silently; nothing if it is not set. */
FABRIC_API th_status fabric_reset_seed(void);

/* ---------------------------------------------------------------- communication; needs fabric_launch, unless there is one process.
 * On one device everything returns its input. All ranks call them in the same order. A rank with a pending error never enters. */

/** Waits for all ranks. */
FABRIC_API th_status fabric_barrier(fabric *fab);
/** The value of global rank `src`, on every rank. Consumes `value`. [owned] */
FABRIC_API th_value *fabric_broadcast(fabric *fab, th_value *value, int src);
/** The same for one tensor; sizes and dtype come from `src`. [scoped] */
FABRIC_API th_tensor *fabric_broadcast_tensor(fabric *fab, th_tensor *tensor, int src);

struct fabric_all_gather_args {
    fabric *fab;
    th_tensor *tensor;
    th_value *value;            /**< for the _value form: consumed */
    double number;              /**< for the _number form: a float32 */
    th_process_group *group;    /**< NULL: everybody */
    bool sync_grads;            /**< gradients flow back to the rank a piece came from */
};
/** All ranks' tensors in a new leading dimension of world size; the tensor itself on a single device. [scoped] */
FABRIC_API th_tensor *fabric_all_gather_call(struct fabric_all_gather_args args);
#define fabric_all_gather(fabric_, ...) fabric_all_gather_call((struct fabric_all_gather_args){.fab = (fabric_), .tensor = __VA_ARGS__})
/** A number of each rank, as a float32 tensor on Fabric's device. [scoped] */
FABRIC_API th_tensor *fabric_all_gather_number(fabric *fab, double number);
/** For every tensor and number (bool: uint8, int: int32, float: float32) in a value; other leaves stay. Consumes `value`. [owned] */
FABRIC_API th_value *fabric_all_gather_value_call(struct fabric_all_gather_args args);
#define fabric_all_gather_value(fabric_, ...) \
    fabric_all_gather_value_call((struct fabric_all_gather_args){.fab = (fabric_), .value = __VA_ARGS__})

struct fabric_all_reduce_args {
    fabric *fab;
    th_tensor *tensor;
    th_value *value;            /**< for the _value form: consumed */
    const char *reduce_op;      /**< "mean" or "avg", "sum", "max", "min", "product", "band", "bor", "bxor"; in any case */
    th_process_group *group;
};
/** Reduces in place over all ranks and returns the tensor. [borrowed] Integers are divided and truncated by "mean". */
FABRIC_API th_tensor *fabric_all_reduce_call(struct fabric_all_reduce_args args);
#define fabric_all_reduce(fabric_, ...) \
    fabric_all_reduce_call((struct fabric_all_reduce_args){.fab = (fabric_), .reduce_op = "mean", .tensor = __VA_ARGS__})
/** A number of each rank. NaN with an error pending. */
FABRIC_API double fabric_all_reduce_number(fabric *fab, double number, const char *reduce_op);
/** As fabric_all_gather_value. [owned] */
FABRIC_API th_value *fabric_all_reduce_value_call(struct fabric_all_reduce_args args);
#define fabric_all_reduce_value(fabric_, ...) \
    fabric_all_reduce_value_call((struct fabric_all_reduce_args){.fab = (fabric_), .reduce_op = "mean", .value = __VA_ARGS__})

/* ---------------------------------------------------------------- checkpoints; every rank calls, the strategy decides who writes */

struct fabric_save_args {
    fabric *fab;
    const char *path;
    th_value *state;        /**< a dict: TH_STATE({"model", th_state(model)}, {"epoch", th_state(epoch)}); consumed */
    fabric_filter filter;   /**< keeps parts of top-level dicts */
    bool async;             /**< returns when the tensors are copied; fabric_save_wait and fabric_finish wait */
};
/** Fabric.save(): complete or absent, never half. */
FABRIC_API th_status fabric_save_call(struct fabric_save_args args);
#define fabric_save(fabric_, path_, ...) \
    fabric_save_call((struct fabric_save_args){.fab = (fabric_), .path = (path_), .state = __VA_ARGS__})
/** Waits for background saves; their error is raised here. */
FABRIC_API th_status fabric_save_wait(fabric *fab);

struct fabric_load_args {
    fabric *fab;
    const char *path;
    th_value *state;   /**< fabric_load: a dict, restored in place, stays the caller's. fabric_load_raw: one object, consumed */
    bool strict;       /**< true: whatever is asked for and missing in the file is TH_ERR_KEY */
};
/** Fabric.load(): restores objects in place and replaces plain values in `state`; returns what was not asked for. Without a state the
 * whole checkpoint is returned. [owned] */
FABRIC_API th_value *fabric_load_call(struct fabric_load_args args);
#define fabric_load(fabric_, path_, ...) \
    fabric_load_call((struct fabric_load_args){.fab = (fabric_), .path = (path_), .strict = true, .state = __VA_ARGS__})
/** Fabric.load_raw(): the file holds the bare state dict of one module or optimizer: fabric_load_raw(fab, path, th_state(model)). */
FABRIC_API th_status fabric_load_raw_call(struct fabric_load_args args);
#define fabric_load_raw(fabric_, path_, ...) \
    fabric_load_raw_call((struct fabric_load_args){.fab = (fabric_), .path = (path_), .strict = true, .state = __VA_ARGS__})

/* ---------------------------------------------------------------- loggers */

struct fabric_log_args {
    fabric *fab;
    const char *name;
    th_value *value;    /**< a number or a tensor of one element: th_state(loss); for fabric_log_dict a dict of them. Consumed */
    th_opt_int step;    /**< TH_INT(n); None: the logger counts */
};
/** Gives one metric to every logger. A larger tensor is TH_ERR_VALUE. */
FABRIC_API th_status fabric_log_call(struct fabric_log_args args);
#define fabric_log(fabric_, name_, ...) \
    fabric_log_call((struct fabric_log_args){.fab = (fabric_), .name = (name_), .value = __VA_ARGS__})
FABRIC_API th_status fabric_log_dict_call(struct fabric_log_args args);
#define fabric_log_dict(fabric_, ...) fabric_log_dict_call((struct fabric_log_args){.fab = (fabric_), .value = __VA_ARGS__})

/* ---------------------------------------------------------------- callbacks */

/** One named argument of a hook. */
typedef enum fabric_arg_kind {
    FABRIC_ARG_NONE = 0, FABRIC_ARG_INT, FABRIC_ARG_DOUBLE, FABRIC_ARG_STRING, FABRIC_ARG_TENSOR, FABRIC_ARG_VALUE, FABRIC_ARG_MODULE,
    FABRIC_ARG_OPTIMIZER, FABRIC_ARG_BATCH, FABRIC_ARG_STRATEGY, FABRIC_ARG_POINTER
} fabric_arg_kind;
typedef struct fabric_arg {
    const char *name;
    fabric_arg_kind kind;
    int64_t i;
    double d;
    const void *p;
} fabric_arg;
typedef struct fabric_args { const fabric_arg *data; size_t size; } fabric_args;

#define FABRIC__ARG(fn, ctype, k, member)                                            \
    static inline fabric_arg fn(const char *name, ctype v)                           \
    {                                                                                \
        fabric_arg a;                                                                \
        a.name = name;                                                               \
        a.kind = k;                                                                  \
        a.i = 0;                                                                     \
        a.d = 0;                                                                     \
        a.p = NULL;                                                                  \
        a.member = v;                                                                \
        return a;                                                                    \
    }
FABRIC__ARG(fabric_arg_int, int64_t, FABRIC_ARG_INT, i)
FABRIC__ARG(fabric_arg_double, double, FABRIC_ARG_DOUBLE, d)
FABRIC__ARG(fabric_arg_string, const char *, FABRIC_ARG_STRING, p)
FABRIC__ARG(fabric_arg_tensor, th_tensor *, FABRIC_ARG_TENSOR, p)
FABRIC__ARG(fabric_arg_value, th_value *, FABRIC_ARG_VALUE, p)
FABRIC__ARG(fabric_arg_module, th_module *, FABRIC_ARG_MODULE, p)
FABRIC__ARG(fabric_arg_optimizer, th_optimizer *, FABRIC_ARG_OPTIMIZER, p)
FABRIC__ARG(fabric_arg_batch, th_batch *, FABRIC_ARG_BATCH, p)
FABRIC__ARG(fabric_arg_strategy, fabric_strategy *, FABRIC_ARG_STRATEGY, p)
FABRIC__ARG(fabric_arg_pointer, void *, FABRIC_ARG_POINTER, p)
#undef FABRIC__ARG
#ifndef __cplusplus
/** fabric_call(fab, "on_train_batch_end", FABRIC_ARGS(FABRIC_ARG("loss", loss), FABRIC_ARG("batch_idx", i))) */
#define FABRIC_ARG(name, x)                                                                                                   \
    _Generic((x), float: fabric_arg_double, double: fabric_arg_double, char *: fabric_arg_string, const char *: fabric_arg_string, \
             th_tensor *: fabric_arg_tensor, th_value *: fabric_arg_value, th_module *: fabric_arg_module,                    \
             th_optimizer *: fabric_arg_optimizer, th_batch *: fabric_arg_batch, fabric_strategy *: fabric_arg_strategy,      \
             void *: fabric_arg_pointer, default: fabric_arg_int)((name), (x))
#define FABRIC_ARGS(...) \
    ((fabric_args){(const fabric_arg[]){__VA_ARGS__}, sizeof((const fabric_arg[]){__VA_ARGS__}) / sizeof(fabric_arg)})
#define FABRIC_NO_ARGS ((fabric_args){0})
#endif
/** The argument of that name, NULL if it was not given or is of another kind. [borrowed] for the call */
FABRIC_API const fabric_arg *fabric_args_find(fabric_args args, const char *name);
FABRIC_API th_tensor *fabric_args_tensor(fabric_args args, const char *name);
FABRIC_API th_module *fabric_args_module(fabric_args args, const char *name);
FABRIC_API th_optimizer *fabric_args_optimizer(fabric_args args, const char *name);
FABRIC_API int64_t fabric_args_int(fabric_args args, const char *name, int64_t fallback);
FABRIC_API double fabric_args_double(fabric_args args, const char *name, double fallback);

/** A hook takes what it wants from `args`. An error status ends fabric_call with it. */
typedef th_status (*fabric_hook_fn)(fabric *fab, fabric_args args, void *user);
typedef struct fabric_hook {
    const char *name;     /**< "on_train_epoch_end"; the table ends with a NULL name */
    fabric_hook_fn fn;    /**< NULL is warned about and skipped */
} fabric_hook;
/** A callback object: any hooks under any names. Built-in calls: on_after_setup(module), on_after_optimizer_step(strategy, optimizer). */
struct fabric_callback {
    const char *name;          /**< for messages */
    const fabric_hook *hooks;  /**< ends with {0}; must stay valid */
    void *user;
    void (*free)(void *user);  /**< called by fabric_finish; may be NULL */
};
/** Calls a hook of every callback that has it, in order. */
FABRIC_API th_status fabric_call(fabric *fab, const char *hook, fabric_args args);
/** Adds a callback after fabric_new. Copied. */
FABRIC_API th_status fabric_add_callback(fabric *fab, fabric_callback callback);

TH_END_DECLS
#endif
