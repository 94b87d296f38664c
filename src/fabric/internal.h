/* fabric/internal.h: the Fabric object and what its files share. */
#ifndef FABRIC_FABRIC_INTERNAL_H
#define FABRIC_FABRIC_INTERNAL_H

#include "base/error.h"
#include "base/memory.h"
#include <cfabric/fabric.h>

typedef struct fabric__list { void **items; size_t size, capacity; } fabric__list;

enum { FABRIC__LIVE = 0x0fab41c0, FABRIC__FINISHED = 0x0fabdead };

/* The struct outlives fabric_finish (in a list of finished ones), so that a later use is recognised instead of reading freed memory. */
struct fabric {
    uint32_t magic;
    struct fabric *next;             /* in the list of finished ones */
    fabric_strategy *strategy;
    bool launched;                   /* processes exist and the strategy's environment is set up */
    bool under_cli;
    fabric__list modules;            /* everything that was set up, retained */
    fabric__list optimizers;
    fabric__list loaders;
    fabric__list loggers;            /* owned */
    fabric_callback *callbacks;
    size_t n_callbacks, callbacks_capacity;
};

/* False with an error raised (or pending) unless `fab` is a live Fabric. */
bool fabric__check(const fabric *fab, const char *function);
/* As above, and the processes must have been launched where the strategy needs them. */
bool fabric__check_launched(const fabric *fab, const char *function);
#define FABRIC__ENTER(fab) do { TH__CHECK_PENDING(); if (!fabric__check((fab), __func__)) return th__pending(); } while (0)
#define FABRIC__ENTER_LAUNCHED(fab) \
    do { TH__CHECK_PENDING(); if (!fabric__check_launched((fab), __func__)) return th__pending(); } while (0)
#define FABRIC__ENTER_NULL(fab) do { TH__CHECK_PENDING_NULL(); if (!fabric__check((fab), __func__)) return NULL; } while (0)
#define FABRIC__ENTER_LAUNCHED_NULL(fab) \
    do { TH__CHECK_PENDING_NULL(); if (!fabric__check_launched((fab), __func__)) return NULL; } while (0)

/* -1 with TH_ERR_MEMORY. */
int fabric__list_add(fabric__list *list, void *item);

/* wrap.c: what set-up installs. */
th_status fabric__wrap_module(fabric *fab, th_module *module, void *strategy_state);
th_status fabric__wrap_optimizer(fabric *fab, th_optimizer *optimizer);
/* The strategy's state of a set-up module; false when it is not set up. */
bool fabric__module_state(th_module *module, void **strategy_state);
/* Takes the wrappers off again and gives the references back. Works with an error pending. */
void fabric__unwrap_all(fabric *fab);

/* backward.c: is a fabric_backward under way in this process? Read by the guard on plain backwards. */
bool fabric__in_backward(void);

/* place.c: both mean the same place; index -1 is any. */
bool fabric__same_device(th_device a, th_device b);
/* `tensor` itself or a copy on `device`. [scoped] */
th_tensor *fabric__move(th_tensor *tensor, th_device device);

/* callbacks.c */
void fabric__free_callbacks(fabric *fab);
/* save.c: fabric_save_wait without a Fabric. */
th_status fabric__wait_for_saves(void);

#endif
