/* cfabric/plugin/launcher.h: launchers, for people who add one (lightning.fabric.strategies.launchers).
 *
 * A launcher makes the processes of a strategy. Built in: "subprocess" (the program is started again; ddp, fsdp), "spawn" (workers
 * that run one function, the caller waits; ddp_spawn), "fork" (the same without exec, before any tensor work; ddp_fork, ddp_notebook).
 * Nothing here needs libtorch. */
#ifndef CFABRIC_PLUGIN_LAUNCHER_H
#define CFABRIC_PLUGIN_LAUNCHER_H

#include <cfabric/plugin/environment.h>

TH_BEGIN_DECLS

/** What rank 0's function gives back to the caller of the launch. {0}: nothing. [owned] by whoever holds it; free() the data. */
typedef struct fabric_launch_result {
    void *data;
    size_t size;
} fabric_launch_result;

/** What is to be launched. All pointers [borrowed] for the call. */
typedef struct fabric_launch_request {
    size_t size;                      /**< sizeof(fabric_launch_request) */
    int num_processes;                /**< on this machine, 1 or more */
    int num_nodes;                    /**< machines, 1 or more */
    fabric_environment *environment;  /**< address, port and node rank; says whether processes are made by somebody else. Required */
    /** The work, run in every process after the launch; NULL: the program simply goes on. */
    th_status (*function)(void *user, fabric_launch_result *result);
    void *user;
    bool (*tensors_have_run)(void);   /**< true once tensor work makes a fork unsafe; NULL: never */
    void (*set_num_threads)(int threads); /**< tells a running engine its share of the processors; NULL: only OMP_NUM_THREADS is set */
} fabric_launch_request;

typedef struct fabric_launcher_ops {
    size_t size;                 /**< sizeof(fabric_launcher_ops) */
    const char *name;
    const char *description;     /**< one line; NULL: none */
    bool needs_function;         /**< a launch without a function is TH_ERR_TYPE */
    bool interactive_compatible; /**< may be used from an interactive session */
    /** Makes the processes. Returns in every process that goes on: all ranks ("subprocess"), or the caller with rank 0's result ("spawn",
     * "fork"; their workers never return). A process that fails ends the others. Required. */
    th_status (*launch)(const fabric_launch_request *request, fabric_launch_result *result);
} fabric_launcher_ops;

/** Adds a launcher under ops->name; `ops` must stay valid. A name that is taken is TH_ERR_VALUE unless `override`. Any thread. */
FABRIC_API th_status fabric_launcher_register(const fabric_launcher_ops *ops, bool override);
/** Removes one. An unknown name is TH_ERR_KEY. */
FABRIC_API th_status fabric_launcher_unregister(const char *name);
/** The table of a name; NULL with TH_ERR_KEY, which lists the known ones. [borrowed] */
FABRIC_API const fabric_launcher_ops *fabric_launcher_find(const char *name);
/** Names in order. Returns the count; writes up to `capacity`. [borrowed] */
FABRIC_API size_t fabric_launcher_list(const char **names, size_t capacity);

/** Launches through the launcher of that name; checks the request and the environment's settings first. `result` may be NULL. NULL or ""
 * as the name: no processes are made, the function runs here. */
FABRIC_API th_status fabric_launcher_launch(const char *name, const fabric_launch_request *request, fabric_launch_result *result);

TH_END_DECLS
#endif
