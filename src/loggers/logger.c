/* loggers/logger.c: the logger object and its slots with their defaults. */
#include "base/error.h"
#include "base/object.h"
#include "base/plugin.h"
#include <cfabric/plugin/logger.h>
#include <stdlib.h>

struct fabric_logger {
    th__object base;
    const fabric_logger_ops *ops;
    void *self;
};

#define HAS(l, slot) TH__SLOT((l)->ops, slot)

static void logger_destroy(void *object)
{
    fabric_logger *l = object;
    if (HAS(l, free)) l->ops->free(l->self);
    free(l);
}

static const th__class logger_class = {"logger", logger_destroy};

static bool check(const fabric_logger *logger, const char *function)
{
    return th__object_check(logger, &logger_class, function, "logger");
}

fabric_logger *fabric_logger_new(const fabric_logger_ops *ops, void *self)
{
    TH__CHECK_PENDING_NULL();
    if (ops == NULL || ops->class_name == NULL || !TH__SLOT(ops, log_metrics)) {
        TH__FAIL(TH_ERR_VALUE, "a logger's table must have its size, a class name and log_metrics");
        return NULL;
    }
    fabric_logger *l = th__object_new(&logger_class, sizeof *l);
    if (l == NULL) return NULL;
    l->ops = ops;
    l->self = self;
    return l;
}

fabric_logger *fabric_logger_retain(fabric_logger *logger) { return th__retain(logger); }
void fabric_logger_free(fabric_logger *logger) { th__release(logger); }
void *fabric_logger_self(fabric_logger *logger) { return check(logger, __func__) ? logger->self : NULL; }
const fabric_logger_ops *fabric_logger_ops_of(fabric_logger *logger) { return check(logger, __func__) ? logger->ops : NULL; }

const char *fabric_logger_name(fabric_logger *l) { return check(l, __func__) && HAS(l, name) ? l->ops->name(l) : NULL; }
const char *fabric_logger_version(fabric_logger *l) { return check(l, __func__) && HAS(l, version) ? l->ops->version(l) : NULL; }
const char *fabric_logger_root_dir(fabric_logger *l) { return check(l, __func__) && HAS(l, root_dir) ? l->ops->root_dir(l) : NULL; }
const char *fabric_logger_log_dir(fabric_logger *l) { return check(l, __func__) && HAS(l, log_dir) ? l->ops->log_dir(l) : NULL; }

/* ---- the writing ones: on global rank 0 only */

static bool writes_here(void)
{
    return th__message_rank() <= 0;
}

#define ENTER(l) do { TH__CHECK_PENDING(); if (!check((l), __func__)) return th__pending(); if (!writes_here()) return TH_OK; } while (0)

th_status fabric_logger_log_metrics(fabric_logger *l, const th_value *metrics, th_opt_int step)
{
    ENTER(l);
    return l->ops->log_metrics(l, metrics, step);
}

th_status fabric_logger_log_hyperparams(fabric_logger *l, const th_value *params)
{
    ENTER(l);
    if (HAS(l, log_hyperparams)) return l->ops->log_hyperparams(l, params);
    return TH__FAIL(TH_ERR_NOT_IMPLEMENTED, "%s does not log hyperparameters", l->ops->class_name);
}

th_status fabric_logger_log_graph(fabric_logger *l, th_module *module, th_tensors example)
{
    ENTER(l);
    return HAS(l, log_graph) ? l->ops->log_graph(l, module, example) : TH_OK;
}

th_status fabric_logger_save(fabric_logger *l)
{
    ENTER(l);
    return HAS(l, save) ? l->ops->save(l) : TH_OK;
}

th_status fabric_logger_finalize(fabric_logger *l, const char *status)
{
    ENTER(l);
    return HAS(l, finalize) ? l->ops->finalize(l, status) : fabric_logger_save(l);
}
