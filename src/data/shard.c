/* data/shard.c: the seam's side of fabric_setup_dataloaders: what a loader is, sharding its sampler, wrapping. */
#include "data/loader.h"

/* The sampler that yields single indices; NULL when it cannot be seen (a custom batch sampler without `inner`). */
static th_sampler *inner_sampler(const th_dataloader *loader)
{
    th_sampler *batch = loader->batch_sampler;
    if (batch == NULL) return loader->sampler;
    return batch->ops.inner != NULL ? batch->ops.inner(batch->self) : NULL;
}

static bool is_custom_batch(const th_dataloader *loader)
{
    return loader->batch_sampler != NULL && th__sampler_batch_size(loader->batch_sampler) == 0;
}

th__dataloader_info th__dataloader_info_of(th_dataloader *loader)
{
    th__dataloader_info info = {0};
    if (th__pending() != TH_OK || !TH__LOADER_CHECK(loader)) return info;
    th_sampler *inner = inner_sampler(loader);
    info.iterable = loader->args.dataset->ops.iter_next != NULL;
    info.sampler = info.iterable ? TH__SAMPLER_NONE : inner != NULL ? inner->kind : TH__SAMPLER_OTHER;
    info.custom_batch_sampler = is_custom_batch(loader);
    info.has_worker_init = loader->args.worker_init_fn != NULL;
    info.wrapped = loader->wrapper_ops != NULL;
    info.num_workers = loader->args.num_workers;
    info.batch_size = loader->sampler == NULL && loader->batch_sampler != NULL ? TH_NO_BATCH : loader->args.batch_size;
    info.drop_last = loader->args.drop_last;
    return info;
}

/* [owned] `old` stays the caller's. */
static th_sampler *sharded(th_dataloader *loader, th_sampler *old, const struct th__dataloader_shard_args *args)
{
    int64_t n = th_dataset_len(loader->args.dataset);
    bool random = old->kind == TH__SAMPLER_RANDOM;
    if (old->exact && th_sampler_len(old) == n)
        return th_sampler_distributed(n, args->num_replicas, args->rank,
                                      .shuffle = args->shuffle.has ? args->shuffle.value : random, .seed = args->seed,
                                      .drop_last = args->drop_last);
    return th_sampler_distributed_wrap(th_sampler_retain(old), args->num_replicas, args->rank, args->drop_last);
}

static th_status replace(th_dataloader *loader, th_sampler *next)
{
    th_sampler *batch = loader->batch_sampler;
    if (next == NULL) return th__pending();
    if (batch != NULL) {
        bool keep = loader->sampler != NULL;
        th_sampler *rebuilt = batch->ops.rebuild(batch->self, keep ? th_sampler_retain(next) : next);
        if (rebuilt == NULL) {
            if (keep) th_sampler_free(next);
            return th__callback_status(TH_ERR_CALLBACK, "rebuild", batch->ops.name);
        }
        th_sampler_free(batch);
        loader->batch_sampler = rebuilt;
        if (!keep) return TH_OK;
    }
    th_sampler_free(loader->sampler);
    loader->sampler = next;
    return TH_OK;
}

th_status th__dataloader_shard(th_dataloader *loader, struct th__dataloader_shard_args args)
{
    TH__CHECK_PENDING();
    if (!TH__LOADER_CHECK(loader)) return th__pending();
    if (loader->active)
        return TH__FAIL(TH_ERR_RUNTIME, "the loader is in the middle of a pass, set it up before or reset it first");
    if (loader->args.dataset->ops.iter_next != NULL) return TH_OK;
    th_sampler *old = inner_sampler(loader), *batch = loader->batch_sampler;
    if (old != NULL && old->kind == TH__SAMPLER_DISTRIBUTED) return TH_OK;
    if (old == NULL || (batch != NULL && batch->ops.rebuild == NULL))
        return TH__FAIL(TH_ERR_TYPE,
                        "cannot put a distributed sampler into batch sampler '%s': give its table `inner` and `rebuild`, or "
                        "set use_distributed_sampler to false and divide the batches between the ranks yourself",
                        batch->ops.name);
    return replace(loader, sharded(loader, old, &args));
}

th_status th__dataloader_seed_workers(th_dataloader *loader, int64_t rank)
{
    TH__CHECK_PENDING();
    if (!TH__LOADER_CHECK(loader)) return th__pending();
    if (loader->args.worker_init_fn == NULL) loader->worker_rank = rank;
    return TH_OK;
}

th_status th__dataloader_wrap(th_dataloader *loader, const th__dataloader_wrapper *ops, void *wrapper)
{
    if (th__pending() == TH_OK && TH__LOADER_CHECK(loader)) {
        if (loader->wrapper_ops == NULL) {
            th__loader_end(loader);
            if (loader->ran) loader->begun = 0; /* epochs count passes since the set-up; a loaded one stays */
            loader->wrapper_ops = ops;
            loader->wrapper = wrapper;
            return TH_OK;
        }
        TH__FAIL(TH_ERR_VALUE, "a dataloader should be passed to the setup method only once, but this one is set up already");
    }
    if (ops->free != NULL) ops->free(wrapper);
    return th__pending();
}

bool th__dataloader_is_wrapped(th_dataloader *loader)
{
    return th__pending() == TH_OK && TH__LOADER_CHECK(loader) && loader->wrapper_ops != NULL;
}
