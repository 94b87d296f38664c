/* data/workers.h: threads that read ahead. */
#ifndef FABRIC_DATA_WORKERS_H
#define FABRIC_DATA_WORKERS_H

#include "data/fetch.h"

typedef struct th__workers th__workers;

typedef struct th__workers_plan {
    th__fetch_plan fetch; /* its dataset is retained */
    int count;
    int prefetch;   /* batches in flight per worker */
    double timeout; /* seconds, 0: none */
    uint64_t base_seed;
    th_worker_init_fn init;
    void *init_user;
    int64_t rank; /* Fabric's seeds for this rank; -1: PyTorch's seeds */
} th__workers_plan;

/* Draws the indices of the next batch on the consumer's thread: false at the end or with an error pending. `indices` stays empty
 * for iterable-style datasets; *n is how many samples to read. */
typedef bool (*th__draw_fn)(void *user, th_indices *indices, size_t *n);

/* Starts the threads. NULL with an error pending. */
th__workers *th__workers_start(const th__workers_plan *plan);
/* Begins a pass with batch number `first` (samples_per_batch: what to skip when an iterable pass is resumed). */
void th__workers_begin(th__workers *workers, int64_t first, int64_t samples_per_batch);
/* The next batch in order; keeps the queue full. *end at the end of the pass. */
th_status th__workers_next(th__workers *workers, th__draw_fn draw, void *user, th_batch *batch, bool *end);
/* Ends a pass: drops what was read ahead and waits for what is being read. */
void th__workers_cancel(th__workers *workers);
/* Ends the threads. A worker that made the consumer time out is left behind instead of waited for. NULL is allowed. */
void th__workers_stop(th__workers *workers);

#endif
