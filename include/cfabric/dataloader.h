/* cfabric/dataloader.h: batches, one after the other (torch.utils.data.DataLoader). Workers are threads.
 *
 * A loader is reference counted and [owned]: th_dataloader_free. It is used from one thread at a time. */
#ifndef CFABRIC_DATALOADER_H
#define CFABRIC_DATALOADER_H

#include <cfabric/sampler.h>

TH_BEGIN_DECLS

/** What a loader yields: data[0] is usually the inputs, data[1] the targets. The tensors are [borrowed] from the loader until its
 * next th_dataloader_next; th_retain one to keep it longer. */
typedef struct th_batch {
    th_tensor *data[TH_BATCH_MAX];
    size_t size;    /**< how many of data are used */
    int64_t length; /**< samples in this batch */
    int64_t index;  /**< 0, 1, ... within this pass */
} th_batch;

/** collate_fn: makes one batch of [scoped] tensors from n samples. Runs on a worker thread if there are workers. */
typedef th_status (*th_collate_fn)(const th_sample *samples, size_t n, th_sample *batch, void *user);
/** worker_init_fn: runs once at the start of each worker thread. */
typedef th_status (*th_worker_init_fn)(th_worker_info *worker, void *user);

/** batch_size=None: samples are yielded one by one, not stacked. */
#define TH_NO_BATCH INT64_MIN

struct th_dataloader_args {
    th_dataset *dataset; /**< handed over */
    int64_t batch_size;  /**< default 1; TH_NO_BATCH */
    bool shuffle;
    th_sampler *sampler;       /**< handed over */
    th_sampler *batch_sampler; /**< handed over; excludes batch_size, shuffle, sampler and drop_last */
    int num_workers;           /**< threads that read ahead; 0: read in th_dataloader_next */
    th_collate_fn collate_fn;  /**< NULL: stack, field by field */
    void *collate_user;
    bool pin_memory; /**< page-locked batches; a warning when there is no accelerator */
    bool drop_last;
    double timeout; /**< seconds to wait for a worker's batch; 0: for ever */
    th_worker_init_fn worker_init_fn;
    void *worker_init_user;
    th_generator *generator; /**< [borrowed]; NULL: the default generator */
    int prefetch_factor;     /**< batches in flight per worker; 0: 2 when there are workers */
    bool persistent_workers; /**< keep the threads between passes */
};
/** DataLoader(). Objects given are handed over, also when the call fails. The order for a seed is PyTorch's and does not depend
 * on num_workers. [owned] */
FABRIC_API FABRIC_NODISCARD th_dataloader *th_dataloader_new_call(struct th_dataloader_args args);
#define th_dataloader_new(...) th_dataloader_new_call((struct th_dataloader_args){.batch_size = 1, .dataset = __VA_ARGS__})

/** Fetches the next batch. False at the end of a pass (the next call begins a new one) and while an error is pending. */
FABRIC_API bool th_dataloader_next(th_dataloader *loader, th_batch *batch);
/** len(loader): batches of one pass on this rank; -1 if the dataset has no length. */
FABRIC_API int64_t th_dataloader_len(th_dataloader *loader);
/** len(loader.dataset), -1 for iterable datasets. */
FABRIC_API int64_t th_dataloader_dataset_len(th_dataloader *loader);
/** The loader's dataset, sampler (NULL if there is none) and batch sampler (NULL likewise). [borrowed] */
FABRIC_API th_dataset *th_dataloader_dataset(th_dataloader *loader);
FABRIC_API th_sampler *th_dataloader_sampler(th_dataloader *loader);
FABRIC_API th_sampler *th_dataloader_batch_sampler(th_dataloader *loader);
/** Ends the current pass early; the next th_dataloader_next begins a new one. Works with an error pending. */
FABRIC_API th_status th_dataloader_reset(th_dataloader *loader);
/** Passes begun so far; the epoch that th_state(loader) saves. */
FABRIC_API int64_t th_dataloader_epoch(th_dataloader *loader);
/** Makes the next pass number `epoch`: what a set-up loader gives to its samplers' set_epoch. Ends the current pass. */
FABRIC_API th_status th_dataloader_set_epoch(th_dataloader *loader, int64_t epoch);
/** Whether the loader has a length (has_len); warns when it is 0 and when an iterable-style dataset claims one. */
FABRIC_API bool th_dataloader_has_len(th_dataloader *loader);
/** suggested_max_num_workers: the processors of this process's share, less one for the program itself; at least 1.
 * `local_world_size` is how many processes share this machine; below 1 is a ValueError (then -1). */
FABRIC_API int fabric_suggested_max_num_workers(int local_world_size);
FABRIC_API th_dataloader *th_dataloader_retain(th_dataloader *loader);
/** NULL is allowed. Waits for what its workers are reading at the moment. */
FABRIC_API void th_dataloader_free(th_dataloader *loader);

TH_END_DECLS
#endif
