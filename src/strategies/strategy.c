/* strategies/strategy.c: the strategy object and the parts bound to it. The slots are in slots.c, the names in registry.c. */
#include "precision/internal.h"
#include "strategies/internal.h"
#include <stdlib.h>
#include <string.h>

static void strategy_destroy(void *object)
{
    fabric_strategy *s = object;
    if (TH__SLOT(s->ops, free))
        s->ops->free(s->self);
    fabric__precision_bind(s->precision, NULL);
    fabric_precision_free(s->precision);
    fabric_accelerator_free(s->accelerator);
    fabric_checkpoint_io_free(s->checkpoint_io);
    fabric_environment_free(s->environment);
    free(s->devices);
    free(s);
}

static const th__class strategy_class = {"strategy", strategy_destroy};

bool fabric__strategy_check(const fabric_strategy *strategy, const char *function)
{
    return th__object_check(strategy, &strategy_class, function, "strategy");
}

fabric_strategy *fabric_strategy_new(const fabric_strategy_ops *ops, void *self)
{
    TH__CHECK_PENDING_NULL();
    if (ops == NULL || ops->size < offsetof(fabric_strategy_ops, launcher) || ops->name == NULL) {
        TH__FAIL(TH_ERR_VALUE, "the strategy's table must have its size and a name");
        return NULL;
    }
    fabric_strategy *s = th__object_new(&strategy_class, sizeof *s);
    if (s != NULL) {
        s->ops = ops;
        s->self = self;
        s->num_nodes = 1;
    }
    return s;
}

fabric_strategy *fabric_strategy_retain(fabric_strategy *strategy)
{
    return th__retain(strategy);
}

void fabric_strategy_free(fabric_strategy *strategy)
{
    th__release(strategy);
}

void *fabric_strategy_self(fabric_strategy *strategy)
{
    return fabric__strategy_check(strategy, __func__) ? strategy->self : NULL;
}

const fabric_strategy_ops *fabric_strategy_ops_of(fabric_strategy *strategy)
{
    return fabric__strategy_check(strategy, __func__) ? strategy->ops : NULL;
}

/* ---- parts */

fabric_accelerator *fabric_strategy_accelerator(fabric_strategy *strategy)
{
    return fabric__strategy_check(strategy, __func__) ? strategy->accelerator : NULL;
}

fabric_precision *fabric_strategy_precision(fabric_strategy *strategy)
{
    return fabric__strategy_check(strategy, __func__) ? strategy->precision : NULL;
}

fabric_checkpoint_io *fabric_strategy_checkpoint_io(fabric_strategy *strategy)
{
    return fabric__strategy_check(strategy, __func__) ? strategy->checkpoint_io : NULL;
}

fabric_environment *fabric_strategy_environment(fabric_strategy *strategy)
{
    return fabric__strategy_check(strategy, __func__) ? strategy->environment : NULL;
}

fabric_devices fabric_strategy_parallel_devices(fabric_strategy *strategy)
{
    if (!fabric__strategy_check(strategy, __func__))
        return (fabric_devices){0};
    return (fabric_devices){strategy->devices, strategy->n_devices};
}

int fabric_strategy_num_nodes(fabric_strategy *strategy)
{
    return fabric__strategy_check(strategy, __func__) ? strategy->num_nodes : -1;
}

/* All four setters take a part over, also when they fail. */
#define SETTER(function, type, member, release)                             \
    th_status function(fabric_strategy *strategy, type *part)               \
    {                                                                       \
        if (th__pending() != TH_OK || !fabric__strategy_check(strategy, __func__)) { \
            release(part);                                                  \
            return th__pending();                                           \
        }                                                                   \
        if (strategy->member != part)                                       \
            release(strategy->member);                                      \
        strategy->member = part;                                            \
        return TH_OK;                                                       \
    }
SETTER(fabric_strategy_set_accelerator, fabric_accelerator, accelerator, fabric_accelerator_free)
SETTER(fabric_strategy_set_precision, fabric_precision, precision, fabric_precision_free)
SETTER(fabric_strategy_set_checkpoint_io, fabric_checkpoint_io, checkpoint_io, fabric_checkpoint_io_free)
SETTER(fabric_strategy_set_environment, fabric_environment, environment, fabric_environment_free)

th_status fabric_strategy_set_parallel_devices(fabric_strategy *strategy, fabric_devices devices)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(strategy, __func__))
        return th__pending();
    th_device *copy = NULL;
    if (devices.size > 0) {
        copy = th__malloc(devices.size * sizeof *copy);
        if (copy == NULL)
            return th__pending();
        memcpy(copy, devices.data, devices.size * sizeof *copy);
    }
    free(strategy->devices);
    strategy->devices = copy;
    strategy->n_devices = devices.size;
    return TH_OK;
}

th_status fabric_strategy_set_num_nodes(fabric_strategy *strategy, int num_nodes)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(strategy, __func__))
        return th__pending();
    if (num_nodes < 1)
        return TH__FAIL(TH_ERR_VALUE, "num_nodes is %d, but must be 1 or more", num_nodes);
    strategy->num_nodes = num_nodes;
    return TH_OK;
}
