/* cfabric/data.h: datasets, samplers and the loader (torch.utils.data).
 *
 * Datasets, samplers and loaders are [owned]; what is put into another object is handed over to it. */
#ifndef CFABRIC_DATA_H
#define CFABRIC_DATA_H

#include <cfabric/scope.h>
#include <cfabric/value.h>

TH_BEGIN_DECLS

#define TH_BATCH_MAX 16
/** What a loader yields: data[0] is usually the inputs, data[1] the targets. The tensors are [borrowed] from the loader until its
 * next th_dataloader_next; th_retain one to keep it longer. */
typedef struct th_batch {
    th_tensor *data[TH_BATCH_MAX];
    size_t size;      /**< how many of data are used */
    int64_t length;   /**< samples in this batch */
    int64_t index;    /**< 0, 1, ... within this pass */
} th_batch;

/** Fetches the next batch. False at the end of a pass (the next call begins a new one) and while an error is pending. */
FABRIC_API bool th_dataloader_next(th_dataloader *loader, th_batch *batch);
/** len(loader): batches of one pass on this rank; -1 if the dataset has no length. */
FABRIC_API int64_t th_dataloader_len(th_dataloader *loader);
/** len(loader.dataset), -1 for iterable datasets. */
FABRIC_API int64_t th_dataloader_dataset_len(th_dataloader *loader);
/** Ends the current pass early; the next th_dataloader_next begins a new one. */
FABRIC_API th_status th_dataloader_reset(th_dataloader *loader);
FABRIC_API th_dataloader *th_dataloader_retain(th_dataloader *loader);
FABRIC_API void th_dataloader_free(th_dataloader *loader);

TH_END_DECLS
#endif
