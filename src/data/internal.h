/* data/internal.h: the seam where fabric_setup_dataloaders gets between a loader and its user. What only the files of src/data
 * share is in the other headers of this folder. */
#ifndef FABRIC_DATA_INTERNAL_H
#define FABRIC_DATA_INTERNAL_H

#include <cfabric/data.h>

typedef enum th__sampler_kind {
    TH__SAMPLER_NONE = 0, /* the dataset is iterable-style: there is nothing to shard, the user must */
    TH__SAMPLER_SEQUENTIAL,
    TH__SAMPLER_RANDOM,
    TH__SAMPLER_DISTRIBUTED, /* any of the distributed ones, the wrapper included: never sharded again */
    TH__SAMPLER_OTHER        /* subset, weighted, the user's own */
} th__sampler_kind;

typedef struct th__dataloader_info {
    bool iterable;            /* iterable-style dataset */
    th__sampler_kind sampler; /* of the sampler that yields single indices: loader.sampler, or the one inside the batch sampler */
    bool custom_batch_sampler; /* the user's own batch sampler (not th_sampler_batch) */
    bool has_worker_init;
    bool wrapped;
    int num_workers;
    int64_t batch_size; /* TH_NO_BATCH when a batch sampler was given or batching is off */
    bool drop_last;
} th__dataloader_info;

/* What a loader is made of. All zero with an error pending. */
th__dataloader_info th__dataloader_info_of(th_dataloader *loader);

/* Shards the loader's sampler as Fabric does. A random or sequential sampler is replaced by a DistributedSampler (shuffle: the
 * old one was random), any other one is wrapped; a batch sampler is rebuilt around the new one through its `rebuild` slot. Does
 * nothing for iterable datasets and for samplers that are distributed already. TypeError, with the fix in its text, for a sampler
 * without a length and for a batch sampler that cannot be rebuilt. Not while a pass is running. */
struct th__dataloader_shard_args {
    int64_t num_replicas, rank;
    uint64_t seed;       /* PL_GLOBAL_SEED, or 0 */
    th_opt_bool shuffle; /* a strategy's own choice; None: as said above */
    bool drop_last;      /* of the DistributedSampler; the batch's drop_last stays as the user set it */
};
th_status th__dataloader_shard(th_dataloader *loader, struct th__dataloader_shard_args args);

/* Gives worker threads Fabric's seeds (semantics 15), bound to the global rank. Does nothing when the user gave a worker_init_fn.
 */
th_status th__dataloader_seed_workers(th_dataloader *loader, int64_t rank);

/* Installed once by fabric_setup_dataloaders. From then on every pass calls set_epoch(number of earlier passes) on the sampler
 * and on the batch sampler's sampler, at the first fetched batch, and every tensor of a batch goes through `move`. */
typedef struct th__dataloader_wrapper {
    th_tensor *(*move)(th_tensor *tensor,
                       void *wrapper); /* [scoped] or `tensor` itself; NULL slot: batches stay where they are */
    void (*free)(void *wrapper);       /* NULL: nothing to free */
} th__dataloader_wrapper;
/* ValueError when the loader is wrapped already. `ops` must be static; `wrapper` is handed over, also on error. */
th_status th__dataloader_wrap(th_dataloader *loader, const th__dataloader_wrapper *ops, void *wrapper);
bool th__dataloader_is_wrapped(th_dataloader *loader);

/* Collective-safety: how many batches this rank will yield in the next pass, -1 if unknown (for agreeing on counts at set-up). */
int64_t th__dataloader_pass_len(th_dataloader *loader);

/* The last batch this thread got from a wrapped loader: pass, number in the pass, batches per pass (-1 unknown). All zero before.
 * The strategies compare it between ranks. */
typedef struct th__data_position {
    int64_t pass, batch, length;
} th__data_position;
th__data_position th__data_position_last(void);

/* Lightning's seed sequence from a base seed, a worker and a rank: Murmur3's finaliser on 128 bits, then a 64-bit LCG. */
void th__seed_sequence(uint64_t base, uint64_t worker, uint64_t rank, uint64_t *seeds, size_t count);

/* fabric_suggested_max_num_workers on a machine with that many processors. */
int th__suggested_max_num_workers(int cpus, int local_world_size);

#endif
