/* data/loader_state.c: the position of a loader as a value, so that a run goes on in the middle of a pass.
 *
 * Saved: which pass, how many of its batches were yielded, and what its order was drawn from. A resumed loader draws the order
 * again and passes over the indices of the batches that were yielded, without reading their samples. */
#include "data/loader.h"

#include "data/tensors.h"

static void set_tensor(th_value *dict, const char *key, th_tensor *tensor)
{
    if (tensor != NULL) th_value_set(dict, key, th_value_tensor(tensor));
}

/* Samples per batch on this rank; 0 if only the batch sampler knows. */
static int64_t samples_per_batch(const th_dataloader *loader)
{
    if (loader->batch_sampler != NULL) return th__sampler_batch_size(loader->batch_sampler);
    return loader->plan.batched ? loader->args.batch_size : 1;
}

static th_value *loader_state(void *object)
{
    th_dataloader *loader = object;
    TH__CHECK_PENDING_NULL();
    if (!TH__LOADER_CHECK(loader)) return NULL;
    if (!loader->active && loader->resume != NULL)
        return th_value_copy(loader->resume, false); /* saved again before it went on */
    th_sampler *sampler = th__loader_index_sampler(loader);
    th_value *state = th_value_dict();
    th_value_set(state, "epoch", th_value_int(loader->active ? loader->begun - 1 : loader->begun));
    th_value_set(state, "batch", th_value_int(loader->active ? loader->yielded : 0));
    th_value_set(state, "batch_size", th_value_int(samples_per_batch(loader)));
    th_value_set(state, "num_replicas", th_value_int(th__sampler_replicas(sampler)));
    if (!loader->active) return state;
    th_value_set(state, "base_seed", th_value_int((int64_t)loader->base_seed));
    th_value_set(state, "drew_base_seed", th_value_bool(loader->drew_base_seed));
    set_tensor(state, "default_start", loader->default_start);
    set_tensor(state, "generator_start", loader->generator_start);
    th_value *saved = sampler != NULL && sampler->ops.state_dict != NULL ? sampler->ops.state_dict(sampler->self) : NULL;
    if (saved != NULL) th_value_set(state, "sampler", saved);
    if (th__pending() == TH_OK) return state;
    th_value_free(state);
    return NULL;
}

/* Batches to pass over here, when the state was saved with other batch sizes or on another number of ranks. */
static th_status convert_batch(th_dataloader *loader, th_value *state, int64_t *batch)
{
    int64_t size = samples_per_batch(loader), replicas = th__sampler_replicas(th__loader_index_sampler(loader));
    int64_t old_size = th_value_as_int(th_value_get(state, "batch_size"), size);
    int64_t old_replicas = th_value_as_int(th_value_get(state, "num_replicas"), replicas);
    if (*batch == 0 || (size == old_size && replicas == old_replicas)) return TH_OK;
    int64_t samples = *batch * old_size * old_replicas, step = size * replicas;
    if (size > 0 && old_size > 0 && samples % step == 0) {
        *batch = samples / step;
        return TH_OK;
    }
    return th__fail(TH_ERR_VALUE, "load_state_dict",
                    "the loader's position, %lld batches of %lld on %lld ranks, is not a whole number "
                    "of batches of %lld on %lld ranks",
                    (long long)*batch, (long long)old_size, (long long)old_replicas, (long long)size, (long long)replicas);
}

static th_status loader_load(void *object, th_value *state, bool strict)
{
    th_dataloader *loader = object;
    (void)strict;
    TH__CHECK_PENDING();
    if (!TH__LOADER_CHECK(loader)) return th__pending();
    int64_t epoch = th_value_as_int(th_value_get(state, "epoch"), -1), batch = th_value_as_int(th_value_get(state, "batch"), -1);
    if (epoch < 0 || batch < 0)
        return th__fail(TH_ERR_VALUE, "load_state_dict",
                        "the state of a dataloader has %s, expected 'epoch' and 'batch' of 0 or more",
                        epoch < 0 ? "no valid 'epoch'" : "no valid 'batch'");
    TH__TRY(convert_batch(loader, state, &batch));
    TH__TRY(th_dataloader_reset(loader));
    loader->begun = epoch;
    if (batch == 0) return TH_OK;
    loader->resume = th_value_copy(state, true);
    if (loader->resume == NULL) return th__pending();
    return th_value_set(loader->resume, "batch", th_value_int(batch));
}

th_value *th_state_dataloader(th_dataloader *loader)
{
    static const th_stateful ops = {sizeof ops, "dataloader", loader_state, loader_load};
    TH__CHECK_PENDING_NULL();
    return TH__LOADER_CHECK(loader) ? th_value_object(&ops, loader) : NULL;
}
