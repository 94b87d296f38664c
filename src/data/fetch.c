/* data/fetch.c: turning indices into a batch; runs on the loader's thread or on a worker's. */
#include "data/fetch.h"

#include "data/tensors.h"
#include <stdlib.h>

void th__batch_clear(th_batch *batch)
{
    for (size_t i = 0; i < batch->size; i++) th_free(batch->data[i]);
    *batch = (th_batch){0};
}

void th__fetch_open(const th__fetch_plan *plan, th__fetch_iterator *iterator, const th_worker_info *worker)
{
    const th_dataset_ops *ops = &plan->dataset->ops;
    if (ops->iter_next == NULL) return;
    *iterator = (th__fetch_iterator){.open = true};
    if (ops->iter_new != NULL) iterator->iterator = ops->iter_new(plan->dataset->self, worker);
}

void th__fetch_close(const th__fetch_plan *plan, th__fetch_iterator *iterator)
{
    const th_dataset_ops *ops = &plan->dataset->ops;
    if (iterator->open && ops->iter_free != NULL) ops->iter_free(plan->dataset->self, iterator->iterator);
    *iterator = (th__fetch_iterator){0};
}

static th_status next_sample(const th__fetch_plan *plan, th__fetch_iterator *iterator, th_sample *sample)
{
    const th_dataset_ops *ops = &plan->dataset->ops;
    bool end = false;
    sample->size = 0;
    TH__TRY(th__callback_status(ops->iter_next(plan->dataset->self, iterator->iterator, sample, &end), "iter_next", ops->name));
    iterator->ended = end;
    return TH_OK;
}

th_status th__fetch_skip(const th__fetch_plan *plan, th__fetch_iterator *iterator, int64_t n)
{
    const th_dataset_ops *ops = &plan->dataset->ops;
    if (ops->iter_skip != NULL)
        return th__callback_status(ops->iter_skip(plan->dataset->self, iterator->iterator, n), "iter_skip", ops->name);
    for (int64_t i = 0; i < n && !iterator->ended; i++) {
        TH_SCOPE();
        th_sample sample;
        TH__TRY(next_sample(plan, iterator, &sample));
    }
    return TH_OK;
}

/* Samples of an iterable-style dataset: fewer than n at its end. */
static th_status read_iterable(const th__fetch_plan *plan, th__fetch_iterator *iterator, th_sample *samples, size_t n,
                               size_t *got, const atomic_bool *cancel)
{
    for (*got = 0; *got < n && !iterator->ended; *got += !iterator->ended) {
        if (cancel != NULL && atomic_load(cancel)) return TH_OK;
        TH__TRY(next_sample(plan, iterator, &samples[*got]));
    }
    return TH_OK;
}

static th_status read_items(const th__fetch_plan *plan, const int64_t *indices, size_t n, th_sample *samples, size_t *got,
                            const atomic_bool *cancel)
{
    for (*got = 0; *got < n; (*got)++) {
        if (cancel != NULL && atomic_load(cancel)) return TH_OK;
        TH__TRY(th__dataset_item(plan->dataset, indices[*got], &samples[*got]));
    }
    return TH_OK;
}

static th_status collate(const th__fetch_plan *plan, const th_sample *samples, size_t n, th_sample *batch)
{
    batch->size = 0;
    if (plan->collate_fn != NULL)
        return th__callback_status(plan->collate_fn(samples, n, batch, plan->collate_user), "collate_fn",
                                   plan->dataset->ops.name);
    if (plan->batched) return th__collate_stack(samples, n, batch);
    *batch = samples[0];
    return TH_OK;
}

/* Sample by sample, then collated. A cancelled or empty read sets *end. */
static th_status read_and_collate(const th__fetch_plan *plan, th__fetch_iterator *iterator, const int64_t *indices, size_t n,
                                  th_sample *batch, size_t *got, bool *end, const atomic_bool *cancel)
{
    th_sample *samples = th__malloc(n * sizeof *samples);
    if (samples == NULL) return th__pending();
    th_status status = indices == NULL ? read_iterable(plan, iterator, samples, n, got, cancel)
                                       : read_items(plan, indices, n, samples, got, cancel);
    bool cancelled = cancel != NULL && atomic_load(cancel);
    *end = *got == 0 || cancelled || (*got < n && plan->drop_last);
    if (status == TH_OK && !*end) status = collate(plan, samples, *got, batch);
    free(samples);
    return status;
}

/* Second handles to the tensors, which outlive the scope they were made in. */
static th_status keep(const th_sample *from, size_t length, bool pin, th_batch *batch)
{
    batch->length = (int64_t)length;
    if (from->size > TH_BATCH_MAX)
        return th__fail(TH_ERR_VALUE, "collate_fn", "a batch has %zu tensors, at most %d are possible", from->size, TH_BATCH_MAX);
    for (; batch->size < from->size; batch->size++) {
        if (from->data[batch->size] == NULL)
            return th__fail(TH_ERR_TYPE, "collate_fn", "tensor %zu of a batch is NULL", batch->size);
        th_tensor *tensor = pin ? th__data_pin(from->data[batch->size]) : from->data[batch->size];
        if ((batch->data[batch->size] = th_retain(tensor)) == NULL) return th__pending();
    }
    return TH_OK;
}

th_status th__fetch(const th__fetch_plan *plan, th__fetch_iterator *iterator, const int64_t *indices, size_t n, th_batch *batch,
                    bool *end, const atomic_bool *cancel)
{
    th_sample made = {.size = 0};
    size_t got = n;
    th_status status;
    *batch = (th_batch){0};
    TH_SCOPE();
    bool whole = indices != NULL && plan->batched && plan->collate_fn == NULL && plan->dataset->ops.get_batch != NULL;
    if (whole)
        status = th__dataset_batch(plan->dataset, indices, n, &made);
    else
        status = read_and_collate(plan, iterator, indices, n, &made, &got, end, cancel);
    if (status == TH_OK && !*end) status = keep(&made, got, plan->pin_memory, batch);
    if (status != TH_OK) th__batch_clear(batch);
    return status;
}
