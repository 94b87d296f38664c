/* cfabric/dataset.h: where samples come from (torch.utils.data.Dataset and its built-in kinds).
 *
 * Datasets are reference counted and [owned]: th_dataset_free. Putting one into a loader or another dataset hands it over; take a
 * th_dataset_retain first to keep using it. Reading (get_item, get_batch) must be safe from several threads at once. */
#ifndef CFABRIC_DATASET_H
#define CFABRIC_DATASET_H

#include <cfabric/scope.h>
#include <cfabric/value.h>

TH_BEGIN_DECLS

#define TH_BATCH_MAX 16
/** One sample, or one stacked batch: data[0] is usually the input, data[1] the target. */
typedef struct th_sample {
    th_tensor *data[TH_BATCH_MAX];
    size_t size; /**< how many of data are used */
} th_sample;

/** Who is reading: the worker thread of a loader. */
typedef struct th_worker_info {
    int id; /**< 0 .. num_workers - 1 */
    int num_workers;
    uint64_t seed;           /**< base seed + id; a worker_init_fn may change it, and reseeding follows */
    th_generator *generator; /**< this worker's own, seeded anew for each batch from `seed` and the batch's index [borrowed] */
    th_dataset *dataset;     /**< [borrowed] */
} th_worker_info;
/** torch.utils.data.get_worker_info(): NULL outside worker threads. [borrowed] */
FABRIC_API const th_worker_info *th_get_worker_info(void);
/** The generator random transforms should draw from: the worker's own, the default generator outside workers. [borrowed] */
FABRIC_API th_generator *th_worker_generator(void);

/** A dataset of one's own. A map-style one has `len` and `get_item`; an iterable-style one has `iter_next`. */
typedef struct th_dataset_ops {
    size_t size;      /**< sizeof(th_dataset_ops) */
    const char *name; /**< shown in errors */
    /** len(dataset); NULL or -1: unknown (iterable-style only). */
    int64_t (*len)(void *self);
    /** dataset[index], 0 <= index < len: fills data and size with [scoped] tensors. */
    th_status (*get_item)(void *self, int64_t index, th_sample *sample);
    /** Optional fast path: n samples at once, stacked along a new first dimension. [scoped] tensors. */
    th_status (*get_batch)(void *self, const int64_t *indices, size_t n, th_sample *batch);
    /** iter(dataset): the state of one pass. `worker` tells which share to read, NULL: all of it. NULL slot: a NULL iterator. */
    void *(*iter_new)(void *self, const th_worker_info *worker);
    /** next(iterator): fills the sample, or sets *end. */
    th_status (*iter_next)(void *self, void *iterator, th_sample *sample, bool *end);
    /** Optional: passes over n samples without reading them, to resume a pass. */
    th_status (*iter_skip)(void *self, void *iterator, int64_t n);
    void (*iter_free)(void *self, void *iterator);
    /** Frees `self`; may be NULL. */
    void (*free)(void *self);
} th_dataset_ops;

/** A dataset from a table and its data; `ops` is copied, `self` is handed over (also on error). [owned] */
FABRIC_API FABRIC_NODISCARD th_dataset *th_dataset_new(const th_dataset_ops *ops, void *self);
FABRIC_API th_dataset *th_dataset_retain(th_dataset *dataset);
/** NULL is allowed. */
FABRIC_API void th_dataset_free(th_dataset *dataset);
/** len(dataset), -1 for iterable-style datasets without one. */
FABRIC_API int64_t th_dataset_len(th_dataset *dataset);
FABRIC_API bool th_dataset_is_iterable(th_dataset *dataset);
/** dataset[index]; negative indices count from the end. [scoped] tensors. ValueError outside the dataset. */
FABRIC_API th_status th_dataset_get(th_dataset *dataset, int64_t index, th_sample *sample);
/** The stacked samples of `indices`, through get_batch when there is one. [scoped] tensors. */
FABRIC_API th_status th_dataset_get_batch(th_dataset *dataset, th_ints indices, th_sample *batch);

/** TensorDataset: sample i is row i of every tensor. All must have the same first size. Tensors are retained. [owned] */
FABRIC_API FABRIC_NODISCARD th_dataset *th_dataset_tensor(th_tensors tensors);

struct th_dataset_idx_args {
    const char *images; /**< a file in the MNIST (IDX) format, of unsigned bytes, plain or gzip */
    const char *labels; /**< the same with one dimension and as many entries; NULL: samples have no target */
    bool raw;           /**< give the bytes as they are (uint8) instead of ToTensor's float32 in 0..1 */
    th_doubles mean;    /**< Normalize: one per channel, or one for all; not given: no normalisation */
    th_doubles std;
};
/** Images and labels in the MNIST format. Images of (n, h, w) come out as (1, h, w), of (n, c, h, w) as (c, h, w); float32 values
 * are bit for bit torchvision's ToTensor() and Normalize(mean, std). Labels come out as int64. A file that is not there is looked
 * for under the other known spellings ("-idx3-ubyte" / ".idx3-ubyte", with and without ".gz", raw/ and MNIST/raw/ below). Whether
 * a file is gzip is decided by its contents. Every fault of a file is a one-line error with the file, what was found and what was
 * expected: NotFound, DataError, OSError. [owned] */
FABRIC_API FABRIC_NODISCARD th_dataset *th_dataset_idx_call(struct th_dataset_idx_args args);
#define th_dataset_idx(...) th_dataset_idx_call((struct th_dataset_idx_args){.images = __VA_ARGS__})
/** Reads one IDX file of any of the format's types into a tensor of its shape. [scoped] */
FABRIC_API th_tensor *th_idx_read(const char *path);

/** Subset: sample i is dataset[indices[i]]. Hands the dataset over; indices are copied. [owned] */
FABRIC_API FABRIC_NODISCARD th_dataset *th_dataset_subset(th_dataset *dataset, th_ints indices);

/** ConcatDataset: the samples of all, one after the other. Hands all of them over. [owned] */
FABRIC_API FABRIC_NODISCARD th_dataset *th_dataset_concat(th_dataset *const *datasets, size_t n);

struct th_random_split_args {
    th_dataset *dataset;     /**< handed over */
    th_ints lengths;         /**< must add up to len(dataset); or */
    th_doubles fractions;    /**< must add up to 1; the remainder goes round from the first */
    th_generator *generator; /**< NULL: the default generator */
    th_dataset **parts;      /**< receives one [owned] subset per length */
};
/** random_split: the parts have PyTorch's samples in PyTorch's order. On error every part is NULL.
 *     th_dataset *parts[2];
 *     th_random_split(all, TH_INTS(55000, 5000), .parts = parts);  */
FABRIC_API FABRIC_NODISCARD th_status th_random_split_call(struct th_random_split_args args);
#define th_random_split(...) th_random_split_call((struct th_random_split_args){.dataset = __VA_ARGS__})

/** Changes one sample (or one batch) in place: replace entries of data with other [scoped] tensors. */
typedef th_status (*th_transform_fn)(th_sample *sample, void *user);
struct th_dataset_transform_args {
    th_dataset *dataset;             /**< handed over */
    th_transform_fn transform;       /**< per sample; may be NULL if batch_transform is given */
    th_transform_fn batch_transform; /**< the same change made to a stacked batch at once: the fast path. May be NULL */
    void *user;
    void (*free_user)(void *user); /**< called when the dataset ends, also when this call fails; may be NULL */
};
/** A dataset whose samples go through a callback; nest to chain. With only a batch_transform, single samples pass through it as a
 * batch of one. Draw random numbers from th_worker_generator(). [owned] */
FABRIC_API FABRIC_NODISCARD th_dataset *th_dataset_transform_call(struct th_dataset_transform_args args);
#define th_dataset_transform(...) th_dataset_transform_call((struct th_dataset_transform_args){.dataset = __VA_ARGS__})

TH_END_DECLS
#endif
