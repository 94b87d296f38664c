/* cfabric/plugin/environment.h: cluster environments, for people who add one (lightning.fabric.plugins.environments).
 *
 * An environment answers who this process is (ranks, world size), where the ranks meet (address, port) and whether the processes
 * were made by somebody else. Built in, in the order of detection: torchelastic, slurm, lsf, mpi, lightning (the default);
 * kubeflow is never detected and must be given as a plugin. Nothing here needs libtorch. */
#ifndef CFABRIC_PLUGIN_ENVIRONMENT_H
#define CFABRIC_PLUGIN_ENVIRONMENT_H

#include <cfabric/base.h>

TH_BEGIN_DECLS

/** A cluster environment. [owned], reference-counted; handing it to a Fabric as a plugin hands it over. */
typedef struct fabric_environment fabric_environment;

/** What an environment does. Append only; `size` tells how many members are there. `self` is what `create` made (or what was given
 * to fabric_environment_new). Functions that fail raise with th_error_set and return a negative number or NULL. */
typedef struct fabric_environment_ops {
    size_t size;                                    /**< sizeof(fabric_environment_ops) */
    const char *name;                               /**< name in the registry, for example "slurm" */
    const char *type_name;                          /**< for messages, for example "SLURMEnvironment"; NULL: `name` */
    bool (*detect)(void);                           /**< is this process inside one? NULL: cannot be detected */
    th_status (*create)(void **self);               /**< makes and validates the state. NULL: no state */
    void (*destroy)(void *self);                    /**< NULL: nothing to free */
    bool (*creates_processes_externally)(void *self); /**< NULL: true */
    const char *(*main_address)(void *self);        /**< [borrowed] until the next call. Required */
    int (*main_port)(void *self);                   /**< Required */
    int (*world_size)(void *self);                  /**< Required */
    int (*global_rank)(void *self);                 /**< Required */
    int (*local_rank)(void *self);                  /**< Required */
    int (*node_rank)(void *self);                   /**< NULL: 0 */
    th_status (*set_world_size)(void *self, int size);   /**< NULL: ignored, the environment decides */
    th_status (*set_global_rank)(void *self, int rank);  /**< NULL: ignored, the environment decides */
    /** Do the settings of Fabric and of the cluster agree? Asked before processes are used. NULL: yes. */
    th_status (*validate_settings)(void *self, int num_devices, int num_nodes);
    th_status (*teardown)(void *self);              /**< NULL: nothing */
} fabric_environment_ops;

/** Adds an environment under ops->name; `ops` must stay valid. A name that is taken is a ValueError unless `override`. Registered
 * environments with a `detect` are asked before the built-in ones, the newest first. */
FABRIC_API th_status fabric_environment_register(const fabric_environment_ops *ops, bool override);
/** Removes a registered environment. An unknown name is a KeyError. */
FABRIC_API th_status fabric_environment_unregister(const char *name);
/** Names in order of detection, then those that cannot be detected. Returns the count; writes up to `capacity`. [borrowed] */
FABRIC_API size_t fabric_environment_list(const char **names, size_t capacity);

/** An environment by its name, ready to use: fabric_environment_create("slurm"). An unknown name is a KeyError that lists the
 * known ones; "xla" is unavailable. [owned] */
FABRIC_API FABRIC_NODISCARD fabric_environment *fabric_environment_create(const char *name);
/** An environment from a table and its state; `create` is not called, `destroy` ends the state. [owned] */
FABRIC_API FABRIC_NODISCARD fabric_environment *fabric_environment_new(const fabric_environment_ops *ops, void *self);
/** The first environment that detects itself, else "lightning". [owned] */
FABRIC_API FABRIC_NODISCARD fabric_environment *fabric_environment_detect(void);
/** Asks one environment whether it detects itself. "kubeflow" is a NotImplementedError. */
FABRIC_API bool fabric_environment_detects(const char *name);

FABRIC_API fabric_environment *fabric_environment_retain(fabric_environment *environment);
/** NULL is allowed. */
FABRIC_API void fabric_environment_free(fabric_environment *environment);

/** The registry name, "slurm". [borrowed] */
FABRIC_API const char *fabric_environment_name(fabric_environment *environment);
/** The class-like name for messages, "SLURMEnvironment". [borrowed] */
FABRIC_API const char *fabric_environment_type_name(fabric_environment *environment);
FABRIC_API bool fabric_environment_creates_processes_externally(fabric_environment *environment);
/** Host name or address of rank 0. NULL with an error. [borrowed] until the next call */
FABRIC_API const char *fabric_environment_main_address(fabric_environment *environment);
/** TCP port of rank 0; -1 with an error. The same on every call. */
FABRIC_API int fabric_environment_main_port(fabric_environment *environment);
/** -1 with an error, as the three below. */
FABRIC_API int fabric_environment_world_size(fabric_environment *environment);
FABRIC_API int fabric_environment_global_rank(fabric_environment *environment);
FABRIC_API int fabric_environment_local_rank(fabric_environment *environment);
FABRIC_API int fabric_environment_node_rank(fabric_environment *environment);
/** Ignored by environments whose cluster decides. */
FABRIC_API th_status fabric_environment_set_world_size(fabric_environment *environment, int size);
/** Also sets the rank that messages show. Ignored by environments whose cluster decides. */
FABRIC_API th_status fabric_environment_set_global_rank(fabric_environment *environment, int rank);
FABRIC_API th_status fabric_environment_validate_settings(fabric_environment *environment, int num_devices, int num_nodes);
FABRIC_API th_status fabric_environment_teardown(fabric_environment *environment);

/** A free TCP port of this machine, or STANDALONE_PORT if that is set. -1 with an error. */
FABRIC_API int fabric_find_free_network_port(void);

/* ---- SLURM: passive settings and facts about the job (SLURMEnvironment) */
struct fabric_environment_slurm_args {
    bool auto_requeue;   /**< true: the job is put into the queue again; whether and how is the program's affair */
    int requeue_signal;  /**< the signal that asks for it; 0: SIGUSR1 */
};
/** A SLURM environment with settings: fabric_environment_slurm(.requeue_signal = SIGUSR2). [owned] */
FABRIC_API FABRIC_NODISCARD fabric_environment *fabric_environment_slurm_call(struct fabric_environment_slurm_args args);
#define fabric_environment_slurm(...) \
    fabric_environment_slurm_call((struct fabric_environment_slurm_args){.auto_requeue = true, __VA_ARGS__})
FABRIC_API bool fabric_environment_slurm_auto_requeue(fabric_environment *environment);
FABRIC_API int fabric_environment_slurm_requeue_signal(fabric_environment *environment);
/** SLURM_JOB_NAME, NULL if unset. [borrowed] */
FABRIC_API const char *fabric_slurm_job_name(void);
/** SLURM_JOB_ID as a number; -1 in interactive jobs, without a job, or when it is no number. */
FABRIC_API int64_t fabric_slurm_job_id(void);

TH_END_DECLS
#endif
