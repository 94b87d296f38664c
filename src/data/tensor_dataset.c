/* data/tensor_dataset.c: TensorDataset. */
#include "data/objects.h"
#include "data/tensors.h"

#include <stdlib.h>

typedef struct tensor_dataset {
    th_tensor *tensors[TH_BATCH_MAX]; /* retained */
    size_t size;
    int64_t length;
} tensor_dataset;

static int64_t tensors_len(void *self) { return ((tensor_dataset *)self)->length; }

static th_status tensors_get_batch(void *self, const int64_t *indices, size_t n, th_sample *batch)
{
    tensor_dataset *set = self;
    for (size_t i = 0; i < set->size; i++)
        if ((batch->data[i] = th__data_rows(set->tensors[i], indices, n)) == NULL) return th__pending();
    batch->size = set->size;
    return TH_OK;
}

static void tensors_free(void *self)
{
    tensor_dataset *set = self;
    for (size_t i = 0; i < set->size; i++) th_free(set->tensors[i]);
    free(set);
}

static const th_dataset_ops tensors_ops = {.size = sizeof tensors_ops,
                                           .name = "TensorDataset",
                                           .len = tensors_len,
                                           .get_batch = tensors_get_batch,
                                           .free = tensors_free};

static th_status check_tensors(th_tensors tensors)
{
    if (tensors.size == 0 || tensors.size > TH_BATCH_MAX)
        return th__fail(TH_ERR_VALUE, "th_dataset_tensor", "%zu tensors given, expected 1 to %d", tensors.size, TH_BATCH_MAX);
    for (size_t i = 0; i < tensors.size; i++) {
        if (th_dim(tensors.data[i]) == 0)
            th__fail(TH_ERR_VALUE, "th_dataset_tensor", "tensor %zu has no dimensions, expected samples along the first one", i);
        TH__CHECK_PENDING();
        if (th_size(tensors.data[i], 0) != th_size(tensors.data[0], 0))
            return th__fail(TH_ERR_VALUE, "th_dataset_tensor",
                            "size mismatch between tensors: tensor 0 has %lld rows, tensor %zu "
                            "has %lld",
                            (long long)th_size(tensors.data[0], 0), i, (long long)th_size(tensors.data[i], 0));
    }
    return TH_OK;
}

th_dataset *th_dataset_tensor(th_tensors tensors)
{
    TH__CHECK_PENDING_NULL();
    TH__TRY_NULL(check_tensors(tensors));
    tensor_dataset *set = th__calloc(1, sizeof *set);
    if (set == NULL) return NULL;
    set->length = th_size(tensors.data[0], 0);
    for (; set->size < tensors.size; set->size++)
        if ((set->tensors[set->size] = th_retain(tensors.data[set->size])) == NULL) break;
    return th_dataset_new(&tensors_ops, set); /* frees `set` when an error is pending */
}
