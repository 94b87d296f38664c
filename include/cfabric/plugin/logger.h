/* cfabric/plugin/logger.h: writing a logger (lightning.fabric.loggers). */
#ifndef CFABRIC_PLUGIN_LOGGER_H
#define CFABRIC_PLUGIN_LOGGER_H

#include <cfabric/plugin/types.h>

TH_BEGIN_DECLS

/** All slots are called on every rank; a logger writes on global rank 0 only (fabric_logger_log_metrics and the others see to it). */
typedef struct fabric_logger_ops {
    size_t size;                                       /**< sizeof(fabric_logger_ops) */
    const char *class_name;                            /**< "CSVLogger", for messages */
    const char *(*name)(fabric_logger *logger);        /**< [borrowed]. NULL: no name */
    const char *(*version)(fabric_logger *logger);     /**< "version_0". [borrowed]. NULL: no version */
    const char *(*root_dir)(fabric_logger *logger);    /**< [borrowed]. NULL: none */
    const char *(*log_dir)(fabric_logger *logger);     /**< [borrowed]. NULL: none */
    /** `metrics` is a dict of numbers (or of dicts of numbers). `step` None: the logger counts. Required. */
    th_status (*log_metrics)(fabric_logger *logger, const th_value *metrics, th_opt_int step);
    /** `params` is a dict. NULL: TH_ERR_NOT_IMPLEMENTED. */
    th_status (*log_hyperparams)(fabric_logger *logger, const th_value *params);
    /** NULL: nothing. */
    th_status (*log_graph)(fabric_logger *logger, th_module *module, th_tensors example);
    /** Flushes. NULL: nothing. */
    th_status (*save)(fabric_logger *logger);
    /** The end of the run, `status` is "success" or "failed". NULL: save. */
    th_status (*finalize)(fabric_logger *logger, const char *status);
    /** Ends `self`. NULL: nothing to free. */
    void (*free)(void *self);
} fabric_logger_ops;

/** A logger from a table. [owned] */
FABRIC_API FABRIC_NODISCARD fabric_logger *fabric_logger_new(const fabric_logger_ops *ops, void *self);
FABRIC_API fabric_logger *fabric_logger_retain(fabric_logger *logger);
/** NULL is allowed. */
FABRIC_API void fabric_logger_free(fabric_logger *logger);
FABRIC_API void *fabric_logger_self(fabric_logger *logger);
FABRIC_API const fabric_logger_ops *fabric_logger_ops_of(fabric_logger *logger);

/* ---- the slots with their defaults; the writing ones do nothing on ranks other than 0 */
FABRIC_API const char *fabric_logger_name(fabric_logger *logger);
FABRIC_API const char *fabric_logger_version(fabric_logger *logger);
FABRIC_API const char *fabric_logger_root_dir(fabric_logger *logger);
FABRIC_API const char *fabric_logger_log_dir(fabric_logger *logger);
FABRIC_API th_status fabric_logger_log_metrics(fabric_logger *logger, const th_value *metrics, th_opt_int step);
FABRIC_API th_status fabric_logger_log_hyperparams(fabric_logger *logger, const th_value *params);
FABRIC_API th_status fabric_logger_log_graph(fabric_logger *logger, th_module *module, th_tensors example);
FABRIC_API th_status fabric_logger_save(fabric_logger *logger);
FABRIC_API th_status fabric_logger_finalize(fabric_logger *logger, const char *status);

TH_END_DECLS
#endif
