/* data/dataset.c: the dataset object, reading through its table, and default collation. */
#include "data/objects.h"
#include "data/tensors.h"

#include <stdlib.h>
#include <string.h>

static void dataset_destroy(void *object)
{
    th_dataset *dataset = object;
    if (dataset->ops.free != NULL) dataset->ops.free(dataset->self);
    free(dataset);
}

const th__class th__dataset_class = {"dataset", dataset_destroy};

static const char *ops_fault(const th_dataset_ops *ops)
{
    if (ops->get_item == NULL && ops->iter_next == NULL && ops->get_batch == NULL)
        return "has neither get_item nor iter_next: one is needed";
    if (ops->iter_next == NULL && ops->len == NULL) return "is map-style and has no len";
    if (ops->iter_next != NULL && ops->get_item != NULL)
        return "has both get_item and iter_next: it is either map- or iterable-style";
    return NULL;
}

th_dataset *th_dataset_new(const th_dataset_ops *ops, void *self)
{
    th_dataset_ops copy = {0};
    th_dataset *dataset = NULL;
    if (ops != NULL) memcpy(&copy, ops, ops->size < sizeof copy ? ops->size : sizeof copy);
    if (copy.name == NULL) copy.name = "dataset";
    if (th__pending() == TH_OK) {
        const char *fault = ops == NULL      ? "is NULL"
                            : ops->size == 0 ? "has size 0, expected sizeof(th_dataset_ops)"
                                             : ops_fault(&copy);
        if (fault != NULL)
            TH__FAIL(TH_ERR_VALUE, "the table of dataset '%s' %s", copy.name, fault);
        else
            dataset = th__object_new(&th__dataset_class, sizeof *dataset);
    }
    if (dataset == NULL) {
        if (copy.free != NULL) copy.free(self);
        return NULL;
    }
    dataset->ops = copy;
    dataset->self = self;
    return dataset;
}

th_dataset *th_dataset_retain(th_dataset *dataset) { return th__retain(dataset); }
void th_dataset_free(th_dataset *dataset) { th__release(dataset); }

int64_t th_dataset_len(th_dataset *dataset)
{
    if (th__pending() != TH_OK || !TH__DATASET_CHECK(dataset)) return -1;
    int64_t length = dataset->ops.len != NULL ? dataset->ops.len(dataset->self) : -1;
    return length < 0 ? -1 : length;
}

bool th_dataset_is_iterable(th_dataset *dataset)
{
    return th__pending() == TH_OK && TH__DATASET_CHECK(dataset) && dataset->ops.iter_next != NULL;
}

th_status th__callback_status(th_status status, const char *what, const char *name)
{
    if (th__pending() != TH_OK) return th__pending();
    if (status == TH_OK) return TH_OK;
    return th__fail(TH_ERR_CALLBACK, what, "%s of '%s' failed with %s and said no more", what, name, th_status_name(status));
}

static th_status check_sample(th_dataset *dataset, const th_sample *sample, const char *what)
{
    if (sample->size > TH_BATCH_MAX)
        return TH__FAIL(TH_ERR_VALUE, "%s of dataset '%s' gave %zu tensors, at most %d are possible", what, dataset->ops.name,
                        sample->size, TH_BATCH_MAX);
    for (size_t i = 0; i < sample->size; i++)
        if (sample->data[i] == NULL)
            return TH__FAIL(TH_ERR_TYPE, "%s of dataset '%s' gave NULL as tensor %zu of %zu", what, dataset->ops.name, i,
                            sample->size);
    return TH_OK;
}

th_status th__dataset_item(th_dataset *dataset, int64_t index, th_sample *sample)
{
    sample->size = 0;
    if (dataset->ops.get_item != NULL) {
        TH__TRY(th__callback_status(dataset->ops.get_item(dataset->self, index, sample), "get_item", dataset->ops.name));
        return check_sample(dataset, sample, "get_item");
    }
    TH__TRY(th__dataset_batch(dataset, &index, 1, sample)); /* only whole batches: take one of size 1 apart */
    for (size_t i = 0; i < sample->size; i++)
        if ((sample->data[i] = th__data_first(sample->data[i])) == NULL) return th__pending();
    return TH_OK;
}

static th_status stack_items(th_dataset *dataset, const int64_t *indices, size_t n, th_sample *batch)
{
    th_sample *samples = th__calloc(n, sizeof *samples);
    if (samples == NULL) return th__pending();
    th_status status = TH_OK;
    for (size_t i = 0; i < n && status == TH_OK; i++) status = th__dataset_item(dataset, indices[i], &samples[i]);
    if (status == TH_OK) status = th__collate_stack(samples, n, batch);
    free(samples);
    return status;
}

th_status th__dataset_batch(th_dataset *dataset, const int64_t *indices, size_t n, th_sample *batch)
{
    batch->size = 0;
    if (dataset->ops.get_batch == NULL) return stack_items(dataset, indices, n, batch);
    TH__TRY(th__callback_status(dataset->ops.get_batch(dataset->self, indices, n, batch), "get_batch", dataset->ops.name));
    return check_sample(dataset, batch, "get_batch");
}

th_status th__collate_stack(const th_sample *samples, size_t n, th_sample *batch)
{
    batch->size = 0;
    th_tensor **column = th__malloc(n * sizeof *column);
    if (column == NULL) return th__pending();
    size_t fields = n > 0 ? samples[0].size : 0;
    th_status status = TH_OK;
    for (size_t i = 1; i < n && status == TH_OK; i++)
        if (samples[i].size != fields)
            status = TH__FAIL(TH_ERR_RUNTIME,
                              "each sample of a batch should have the same number of tensors: sample 0 has %zu, "
                              "sample %zu has %zu",
                              fields, i, samples[i].size);
    for (size_t field = 0; field < fields && status == TH_OK; field++) {
        for (size_t i = 0; i < n; i++) column[i] = samples[i].data[field];
        batch->data[field] = th__data_stack((th_tensors){column, n});
        if (batch->data[field] == NULL) status = th__pending();
    }
    if (status == TH_OK) batch->size = fields;
    free(column);
    return status;
}

static th_status check_index(th_dataset *dataset, const char *function, int64_t *index)
{
    if (dataset->ops.iter_next != NULL)
        return th__fail(TH_ERR_TYPE, function, "dataset '%s' is iterable-style: it has no index", dataset->ops.name);
    int64_t length = th_dataset_len(dataset), wanted = *index;
    if (*index < 0) *index += length;
    if (*index < 0 || *index >= length)
        return th__fail(TH_ERR_VALUE, function, "index %lld is outside dataset '%s' of %lld samples", (long long)wanted,
                        dataset->ops.name, (long long)length);
    return TH_OK;
}

th_status th_dataset_get(th_dataset *dataset, int64_t index, th_sample *sample)
{
    TH__CHECK_PENDING();
    if (!TH__DATASET_CHECK(dataset)) return th__pending();
    TH__TRY(check_index(dataset, __func__, &index));
    return th__dataset_item(dataset, index, sample);
}

th_status th_dataset_get_batch(th_dataset *dataset, th_ints indices, th_sample *batch)
{
    TH__CHECK_PENDING();
    if (!TH__DATASET_CHECK(dataset)) return th__pending();
    int64_t *list = th__malloc(indices.size * sizeof *list);
    th_status status = list == NULL ? th__pending() : TH_OK;
    for (size_t i = 0; i < indices.size && status == TH_OK; i++) {
        list[i] = indices.data[i];
        status = check_index(dataset, __func__, &list[i]);
    }
    if (status == TH_OK) status = th__dataset_batch(dataset, list, indices.size, batch);
    free(list);
    return status;
}
