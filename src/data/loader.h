/* data/loader.h: what a loader is inside, for the files of this room only. */
#ifndef FABRIC_DATA_LOADER_H
#define FABRIC_DATA_LOADER_H

#include "data/workers.h"

struct th_dataloader {
    th__object base;
    struct th_dataloader_args args; /* checked; its dataset is owned here, samplers are below */
    th_sampler *sampler;            /* NULL when a batch sampler was given, and for iterable datasets */
    th_sampler *batch_sampler;      /* NULL without automatic batching, and for iterable datasets */
    th__fetch_plan plan;

    const th__dataloader_wrapper *wrapper_ops;
    void *wrapper;
    int64_t worker_rank; /* Fabric's worker seeds; -1: PyTorch's */

    int64_t begun;   /* passes begun; the running one is number begun - 1 */
    int64_t yielded; /* batches of the running pass */
    bool active, ran;
    bool drew_base_seed;
    uint64_t base_seed;
    th_tensor *default_start;   /* the default generator's state when the running pass began */
    th_tensor *generator_start; /* the same of args.generator */
    th_value *resume;           /* the saved position that the next pass begins at */

    th__workers *workers;
    th__fetch_iterator iterator; /* without workers */
    th_indices indices;
    th_batch current; /* what the user holds; owned here */
};
extern const th__class th__dataloader_class;
#define TH__LOADER_CHECK(x) th__object_check((x), &th__dataloader_class, __func__, #x)

/* What yields batches or single indices. NULL for iterable datasets. */
th_sampler *th__loader_index_sampler(const th_dataloader *loader);
/* Begins a pass (at the saved position if there is one), ends it, draws the indices of one batch (a th__draw_fn). */
th_status th__loader_begin(th_dataloader *loader);
void th__loader_end(th_dataloader *loader);
bool th__loader_draw(void *loader, th_indices *indices, size_t *n);
/* PyTorch's warning about more workers than processors. */
void th__warn_of_too_many_workers(int num_workers);

#endif
