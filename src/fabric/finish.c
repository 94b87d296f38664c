/* fabric/finish.c: the end of a Fabric. Everything here runs with an error pending too, and the first error stays. */
#include "fabric/internal.h"
#include "strategies/internal.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Finished structs are kept (they are small) so that a later use is an error and not a read of freed memory. */
static fabric *finished;
static pthread_mutex_t finished_lock = PTHREAD_MUTEX_INITIALIZER;

/* Puts a step's error aside, so that the next step runs; the first one wins. */
static void next_step(th__saved_error *first)
{
    if (th__pending() == TH_OK) return;
    if (first->status == TH_OK) th__error_suspend(first);
    else th_error_clear();
}

static void finalize_loggers(fabric *fab, th__saved_error *first)
{
    for (size_t i = 0; i < fab->loggers.size; i++) {
        fabric_logger_finalize(fab->loggers.items[i], first->status == TH_OK ? "success" : "failed");
        next_step(first);
    }
}

static void tear_down_parts(fabric *fab, th__saved_error *first)
{
    fabric_strategy *s = fab->strategy;
    if (s == NULL) return;
    th__error_resume(first);    /* it must know not to enter a collective */
    fabric_strategy_teardown(s);
    if (first->status != TH_OK) th_error_clear();
    next_step(first);
    if (s->precision != NULL) fabric_precision_teardown(s->precision);
    next_step(first);
    if (s->accelerator != NULL) fabric_accelerator_teardown(s->accelerator);
    next_step(first);
    if (s->checkpoint_io != NULL) fabric_checkpoint_io_teardown(s->checkpoint_io);
    next_step(first);
    if (s->environment != NULL) fabric_environment_teardown(s->environment);
    next_step(first);
}

static void release_all(fabric *fab)
{
    fabric__free_callbacks(fab);
    for (size_t i = 0; i < fab->loggers.size; i++) fabric_logger_free(fab->loggers.items[i]);
    fabric_strategy_free(fab->strategy);
    free(fab->modules.items);
    free(fab->optimizers.items);
    free(fab->loaders.items);
    free(fab->loggers.items);
    memset(fab, 0, sizeof *fab);
    fab->magic = FABRIC__FINISHED;
}

int fabric_finish(fabric *fab)
{
    if (fab == NULL || fab->magic != FABRIC__LIVE) return th__pending() == TH_OK ? 0 : 1;
    th__saved_error first = {0};
    next_step(&first);
    fabric__wait_for_saves();
    next_step(&first);
    finalize_loggers(fab, &first);
    fabric__unwrap_all(fab);
    next_step(&first);
    tear_down_parts(fab, &first);
    release_all(fab);
    th__error_resume(&first);
    pthread_mutex_lock(&finished_lock);
    fab->next = finished;
    finished = fab;
    pthread_mutex_unlock(&finished_lock);
    return th__pending() == TH_OK ? 0 : 1;
}
