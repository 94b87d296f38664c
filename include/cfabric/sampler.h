/* cfabric/sampler.h: in which order samples are read (torch.utils.data.Sampler and its kinds). The same seed gives PyTorch's
 * order.
 *
 * Samplers are reference counted and [owned]: th_sampler_free. Putting one into a loader or another sampler hands it over. A
 * sampler runs one pass at a time, on one thread. Generators given to samplers are [borrowed] and must outlive them. */
#ifndef CFABRIC_SAMPLER_H
#define CFABRIC_SAMPLER_H

#include <cfabric/dataset.h>

TH_BEGIN_DECLS

/** A growing list of indices, filled by batch samplers. Zero-initialise; th_indices_free. */
typedef struct th_indices {
    int64_t *data;
    size_t size, capacity;
} th_indices;
FABRIC_API th_status th_indices_push(th_indices *indices, int64_t index);
FABRIC_API void th_indices_free(th_indices *indices);

/** A sampler of one's own. One with `next` yields indices; one with `next_batch` is a batch sampler and yields lists of them. */
typedef struct th_sampler_ops {
    size_t size;      /**< sizeof(th_sampler_ops) */
    const char *name; /**< shown in errors */
    /** Indices (or batches) of a pass; NULL or -1: not known. */
    int64_t (*len)(void *self);
    /** Starts a pass (Python's __iter__). NULL: nothing to do. */
    th_status (*begin)(void *self);
    /** The next index, or *end. */
    th_status (*next)(void *self, int64_t *index, bool *end);
    /** Appends one batch to `indices` (it is empty), or sets *end. */
    th_status (*next_batch)(void *self, th_indices *indices, bool *end);
    /** set_epoch; NULL: the sampler has none. */
    void (*set_epoch)(void *self, int64_t epoch);
    /** What begin() needs to draw this pass again: called after begin. NULL slot or result: the passes do not differ, or they
     * draw from the default generator only. [owned] */
    th_value *(*state_dict)(void *self);
    /** Makes the next begin() repeat that pass. */
    th_status (*load_state_dict)(void *self, th_value *state);
    /** Batch samplers around another sampler: the sampler inside [borrowed], and the same batch sampler around another one, which
     * is handed over [owned]. Fabric needs both to shard the batches; without them it refuses. */
    th_sampler *(*inner)(void *self);
    th_sampler *(*rebuild)(void *self, th_sampler *sampler);
    void (*free)(void *self); /**< may be NULL */
} th_sampler_ops;

/** A sampler from a table and its data; `ops` is copied, `self` is handed over (also on error). [owned] */
FABRIC_API FABRIC_NODISCARD th_sampler *th_sampler_new(const th_sampler_ops *ops, void *self);
FABRIC_API th_sampler *th_sampler_retain(th_sampler *sampler);
/** NULL is allowed. */
FABRIC_API void th_sampler_free(th_sampler *sampler);
/** len(sampler), -1 if it has none. */
FABRIC_API int64_t th_sampler_len(th_sampler *sampler);
/** iter(sampler): begins a pass. */
FABRIC_API th_status th_sampler_begin(th_sampler *sampler);
/** The next index of the pass; false at its end and with an error pending. */
FABRIC_API bool th_sampler_next(th_sampler *sampler, int64_t *index);
/** The next batch of a batch sampler, in place of what `indices` held; false at the end and with an error pending. */
FABRIC_API bool th_sampler_next_batch(th_sampler *sampler, th_indices *indices);
FABRIC_API bool th_sampler_is_batch(th_sampler *sampler);
/** sampler.set_epoch(epoch), for the next pass. A set-up loader does it by itself; a value set by hand wins for one pass.
 * RuntimeError for samplers that have no epochs. */
FABRIC_API th_status th_sampler_set_epoch(th_sampler *sampler, int64_t epoch);

/** SequentialSampler: 0 .. n - 1. [owned] */
FABRIC_API FABRIC_NODISCARD th_sampler *th_sampler_sequential(int64_t n);

struct th_sampler_random_args {
    int64_t n; /**< len(data_source) */
    bool replacement;
    int64_t num_samples;     /**< 0: n */
    th_generator *generator; /**< NULL: each pass draws a seed from the default generator */
};
/** RandomSampler. [owned] */
FABRIC_API FABRIC_NODISCARD th_sampler *th_sampler_random_call(struct th_sampler_random_args args);
#define th_sampler_random(...) th_sampler_random_call((struct th_sampler_random_args){.n = __VA_ARGS__})

struct th_sampler_subset_random_args {
    th_ints indices;         /**< copied */
    th_generator *generator; /**< NULL: the default generator */
};
/** SubsetRandomSampler. [owned] */
FABRIC_API FABRIC_NODISCARD th_sampler *th_sampler_subset_random_call(struct th_sampler_subset_random_args args);
#define th_sampler_subset_random(...)                                                                                            \
    th_sampler_subset_random_call((struct th_sampler_subset_random_args){.indices = __VA_ARGS__})

struct th_sampler_weighted_random_args {
    th_doubles weights; /**< copied; need not add up to one */
    int64_t num_samples;
    bool replacement;        /**< default true */
    th_generator *generator; /**< NULL: the default generator */
};
/** WeightedRandomSampler. [owned] */
FABRIC_API FABRIC_NODISCARD th_sampler *th_sampler_weighted_random_call(struct th_sampler_weighted_random_args args);
#define th_sampler_weighted_random(...)                                                                                          \
    th_sampler_weighted_random_call((struct th_sampler_weighted_random_args){.replacement = true, .weights = __VA_ARGS__})

/** BatchSampler: groups of batch_size indices of `sampler`, which is handed over (also on error). [owned] */
FABRIC_API FABRIC_NODISCARD th_sampler *th_sampler_batch(th_sampler *sampler, int64_t batch_size, bool drop_last);

struct th_sampler_distributed_args {
    int64_t n; /**< len(dataset) */
    int64_t num_replicas;
    int64_t rank;
    bool shuffle; /**< default true */
    uint64_t seed;
    bool drop_last; /**< cut instead of pad to a multiple of num_replicas */
};
/** DistributedSampler: every num_replicas-th index from `rank` on, of a permutation drawn from seed + epoch. Padded by repeating
 * from the start, so every rank gets the same number. [owned] */
FABRIC_API FABRIC_NODISCARD th_sampler *th_sampler_distributed_call(struct th_sampler_distributed_args args);
#define th_sampler_distributed(...)                                                                                              \
    th_sampler_distributed_call((struct th_sampler_distributed_args){.shuffle = true, .n = __VA_ARGS__})
/** The same without padding or cutting: each sample is read exactly once over all ranks, and ranks may differ by one. For
 * evaluation. `drop_last` must be false; shuffle defaults to false. [owned] */
FABRIC_API FABRIC_NODISCARD th_sampler *th_sampler_distributed_eval_call(struct th_sampler_distributed_args args);
#define th_sampler_distributed_eval(...) th_sampler_distributed_eval_call((struct th_sampler_distributed_args){.n = __VA_ARGS__})

/** Shards what any other sampler with a length yields; each rank must draw the same inner order. `sampler` is handed over (also
 * on error); `n` is its length and ignored here, shuffle and seed have no effect. [owned] */
FABRIC_API FABRIC_NODISCARD th_sampler *th_sampler_distributed_wrap(th_sampler *sampler, int64_t num_replicas, int64_t rank,
                                                                    bool drop_last);

TH_END_DECLS
#endif
