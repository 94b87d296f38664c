/* data/fetch.h: turning indices into a batch; runs on the loader's thread or on a worker's. */
#ifndef FABRIC_DATA_FETCH_H
#define FABRIC_DATA_FETCH_H

#include "data/objects.h"
#include <stdatomic.h>

/* How batches are made; the same for all threads, constant during a pass. */
typedef struct th__fetch_plan {
    th_dataset *dataset;
    bool batched;             /* collate; otherwise one sample as it is */
    bool drop_last;           /* iterable-style: a short batch is the end */
    th_collate_fn collate_fn; /* NULL: stack */
    void *collate_user;
    bool pin_memory; /* page-lock the batch, on the thread that made it */
} th__fetch_plan;

/* One thread's reading of an iterable-style dataset. */
typedef struct th__fetch_iterator {
    void *iterator;
    bool open, ended;
} th__fetch_iterator;

/* Reads one batch. `indices` is NULL for iterable-style datasets, then `n` samples are taken from `iterator`. The tensors are
 * [owned] by `batch`. `cancel` (may be NULL) is looked at between samples: then *end is set. */
th_status th__fetch(const th__fetch_plan *plan, th__fetch_iterator *iterator, const int64_t *indices, size_t n, th_batch *batch,
                    bool *end, const atomic_bool *cancel);
void th__fetch_open(const th__fetch_plan *plan, th__fetch_iterator *iterator, const th_worker_info *worker);
/* Passes over `n` samples. */
th_status th__fetch_skip(const th__fetch_plan *plan, th__fetch_iterator *iterator, int64_t n);
void th__fetch_close(const th__fetch_plan *plan, th__fetch_iterator *iterator);
/* Frees the tensors. */
void th__batch_clear(th_batch *batch);

#endif
