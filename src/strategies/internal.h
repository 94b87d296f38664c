/* strategies/internal.h: the object behind fabric_strategy. */
#ifndef FABRIC_STRATEGIES_INTERNAL_H
#define FABRIC_STRATEGIES_INTERNAL_H

#include "base/error.h"
#include "base/memory.h"
#include "base/object.h"
#include "base/plugin.h"
#include <cfabric/plugin/strategy.h>

struct fabric_strategy {
    th__object base;
    const fabric_strategy_ops *ops;
    void *self;
    fabric_accelerator *accelerator;
    fabric_precision *precision;
    fabric_checkpoint_io *checkpoint_io;
    fabric_environment *environment;
    th_device *devices;
    size_t n_devices;
    int num_nodes;
    bool said_no_sync;    /* the warning of the no_backward_sync default has been given */
};

/* False, with TH_ERR_TYPE raised, unless it is a live strategy. */
bool fabric__strategy_check(const fabric_strategy *strategy, const char *function);

/* What the registry makes built-in names of; `preset` is "key=value,key=value". */
fabric_strategy *fabric__strategy_ddp_create(const char *preset);           /* ddp.c */
fabric_strategy *fabric__strategy_dp_create(const char *preset);            /* dp.c */
fabric_strategy *fabric__strategy_unavailable(const char *preset);          /* unavailable.c: `preset` is the name */

/* Facts of the table that have no slot function. */
bool fabric__strategy_single_process(fabric_strategy *strategy);
bool fabric__strategy_requires_fabric_backward(fabric_strategy *strategy);
bool fabric__strategy_requires_joint_setup(fabric_strategy *strategy);

/* Runs `function` instead of the module's own forward inside the next fabric_strategy_default_forward of this thread
 * (fabric_forward_through). Returns what was set before. */
typedef struct fabric__forward_method {
    th_module *module;
    th_tensors (*function)(th_module *module, th_tensors inputs, void *user);
    void *user;
} fabric__forward_method;
fabric__forward_method fabric__forward_method_swap(fabric__forward_method next);

#endif
