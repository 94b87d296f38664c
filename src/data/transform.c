/* data/transform.c: a dataset whose samples go through a callback. */
#include "data/objects.h"
#include "data/tensors.h"

#include <stdlib.h>

typedef struct transformed {
    th_dataset *inner;
    th_transform_fn transform, batch_transform;
    void *user;
    void (*free_user)(void *user);
} transformed;

static int64_t transformed_len(void *self) { return th_dataset_len(((transformed *)self)->inner); }

/* One sample through a transform that wants batches: a batch of one, taken apart again. */
static th_status item_as_batch(transformed *set, th_sample *sample)
{
    th_sample batch;
    TH__TRY(th__collate_stack(sample, 1, &batch));
    TH__TRY(th__callback_status(set->batch_transform(&batch, set->user), "batch_transform", set->inner->ops.name));
    sample->size = batch.size;
    for (size_t i = 0; i < batch.size; i++)
        if ((sample->data[i] = th__data_first(batch.data[i])) == NULL) return th__pending();
    return TH_OK;
}

static th_status apply(transformed *set, th_sample *sample)
{
    if (set->transform == NULL) return item_as_batch(set, sample);
    return th__callback_status(set->transform(sample, set->user), "transform", set->inner->ops.name);
}

static th_status transformed_item(void *self, int64_t index, th_sample *sample)
{
    transformed *set = self;
    TH__TRY(th__dataset_item(set->inner, index, sample));
    return apply(set, sample);
}

static th_status transformed_batch(void *self, const int64_t *indices, size_t n, th_sample *batch)
{
    transformed *set = self;
    TH__TRY(th__dataset_batch(set->inner, indices, n, batch));
    return th__callback_status(set->batch_transform(batch, set->user), "batch_transform", set->inner->ops.name);
}

static void *transformed_iter_new(void *self, const th_worker_info *worker)
{
    th_dataset *inner = ((transformed *)self)->inner;
    return inner->ops.iter_new != NULL ? inner->ops.iter_new(inner->self, worker) : NULL;
}

static th_status transformed_iter_next(void *self, void *iterator, th_sample *sample, bool *end)
{
    transformed *set = self;
    TH__TRY(set->inner->ops.iter_next(set->inner->self, iterator, sample, end));
    return *end ? TH_OK : apply(set, sample);
}

static th_status transformed_iter_skip(void *self, void *iterator, int64_t n)
{
    th_dataset *inner = ((transformed *)self)->inner;
    return inner->ops.iter_skip(inner->self, iterator, n);
}

static void transformed_iter_free(void *self, void *iterator)
{
    th_dataset *inner = ((transformed *)self)->inner;
    if (inner->ops.iter_free != NULL) inner->ops.iter_free(inner->self, iterator);
}

static void transformed_free(void *self)
{
    transformed *set = self;
    th_dataset_free(set->inner);
    if (set->free_user != NULL) set->free_user(set->user);
    free(set);
}

static th_dataset_ops transformed_ops(const transformed *set)
{
    th_dataset_ops ops = {.size = sizeof ops, .name = set->inner->ops.name, .free = transformed_free};
    if (set->inner->ops.len != NULL) ops.len = transformed_len;
    if (set->inner->ops.iter_next == NULL) {
        ops.get_item = transformed_item;
        if (set->batch_transform != NULL) ops.get_batch = transformed_batch;
        return ops;
    }
    ops.iter_new = transformed_iter_new;
    ops.iter_next = transformed_iter_next;
    ops.iter_free = transformed_iter_free;
    if (set->inner->ops.iter_skip != NULL) ops.iter_skip = transformed_iter_skip;
    return ops;
}

th_dataset *th_dataset_transform_call(struct th_dataset_transform_args args)
{
    transformed *set = NULL;
    if (th__pending() == TH_OK && TH__DATASET_CHECK(args.dataset)) {
        if (args.transform == NULL && args.batch_transform == NULL)
            TH__FAIL(TH_ERR_VALUE, "neither transform nor batch_transform is given, expected at least one");
        else
            set = th__calloc(1, sizeof *set);
    }
    if (set == NULL) {
        th_dataset_free(args.dataset);
        if (args.free_user != NULL) args.free_user(args.user);
        return NULL;
    }
    *set = (transformed){args.dataset, args.transform, args.batch_transform, args.user, args.free_user};
    th_dataset_ops ops = transformed_ops(set);
    return th_dataset_new(&ops, set);
}
