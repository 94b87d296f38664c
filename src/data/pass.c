/* data/pass.c: one pass over a loader: beginning (fresh or at a saved position), the next batch, the end.
 *
 * The order of draws is PyTorch's: the samplers' begin, then the base seed of the workers from the loader's generator, then
 * whatever the sampler draws when its first index is asked for. */
#include "data/loader.h"

#include "data/tensors.h"

/* ---------------------------------------------------------------- indices */

static bool in_range(th_dataloader *loader, int64_t *index, int64_t length)
{
    int64_t wanted = *index;
    if (*index < 0) *index += length;
    if (*index >= 0 && *index < length) return true;
    th_sampler *sampler = loader->sampler != NULL ? loader->sampler : loader->batch_sampler;
    th__fail(TH_ERR_VALUE, "th_dataloader_next", "sampler '%s' gave index %lld, outside dataset '%s' of %lld samples",
             sampler->ops.name, (long long)wanted, loader->args.dataset->ops.name, (long long)length);
    return false;
}

bool th__loader_draw(void *user, th_indices *indices, size_t *n)
{
    th_dataloader *loader = user;
    th_sampler *sampler = th__loader_index_sampler(loader);
    indices->size = 0;
    if (sampler == NULL) {
        *n = loader->plan.batched ? (size_t)loader->args.batch_size : 1;
        return th__pending() == TH_OK;
    }
    if (sampler->ops.next_batch != NULL) {
        if (!th_sampler_next_batch(sampler, indices)) return false;
        if (indices->size == 0)
            th__fail(TH_ERR_VALUE, "th_dataloader_next", "batch sampler '%s' gave an empty batch", sampler->ops.name);
    } else {
        int64_t index;
        if (!th_sampler_next(sampler, &index) || th_indices_push(indices, index) != TH_OK) return false;
    }
    int64_t length = th_dataset_len(loader->args.dataset);
    for (size_t i = 0; i < indices->size; i++)
        if (!in_range(loader, &indices->data[i], length)) return false;
    *n = indices->size;
    return th__pending() == TH_OK;
}

/* ---------------------------------------------------------------- beginning */

static void give_epoch(th_sampler *sampler, int64_t epoch)
{
    if (sampler != NULL && sampler->ops.set_epoch != NULL && !sampler->manual_epoch) sampler->ops.set_epoch(sampler->self, epoch);
}

/* Once for each sampler of a set-up loader: the sampler, the batch sampler, and the sampler inside a batch sampler. */
static void give_epochs(th_dataloader *loader)
{
    th_sampler *batch = loader->batch_sampler;
    th_sampler *inner = batch != NULL && batch->ops.inner != NULL ? batch->ops.inner(batch->self) : NULL;
    give_epoch(loader->sampler, loader->begun);
    give_epoch(batch, loader->begun);
    if (inner != loader->sampler) give_epoch(inner, loader->begun);
}

static th_status start_workers(th_dataloader *loader)
{
    if (loader->workers != NULL) return TH_OK;
    const struct th_dataloader_args *a = &loader->args;
    th__workers_plan plan = {.fetch = loader->plan,
                             .count = a->num_workers,
                             .prefetch = a->prefetch_factor,
                             .timeout = a->timeout,
                             .base_seed = loader->base_seed,
                             .init = a->worker_init_fn,
                             .init_user = a->worker_init_user,
                             .rank = loader->worker_rank};
    loader->workers = th__workers_start(&plan);
    return loader->workers != NULL ? TH_OK : th__pending();
}

/* Persistent workers keep the seed of their first pass. */
static void draw_base_seed(th_dataloader *loader)
{
    th_value *saved = th_value_get(loader->resume, "base_seed");
    bool draw =
        loader->workers == NULL && (saved == NULL || th_value_as_bool(th_value_get(loader->resume, "drew_base_seed"), true));
    if (draw)
        loader->base_seed = (uint64_t)th__data_random_seed(loader->args.generator);
    else if (saved != NULL)
        loader->base_seed = (uint64_t)th_value_as_int(saved, 0);
    loader->drew_base_seed = draw;
}

static th_status remember_generators(th_dataloader *loader)
{
    TH_SCOPE();
    th_assign(&loader->default_start, th_get_rng_state());
    if (loader->args.generator != NULL) th_assign(&loader->generator_start, th_generator_get_state(loader->args.generator));
    return th__pending();
}

static th_status begin_fresh(th_dataloader *loader)
{
    th_sampler *sampler = th__loader_index_sampler(loader);
    TH__TRY(remember_generators(loader));
    if (sampler != NULL) TH__TRY(th_sampler_begin(sampler));
    draw_base_seed(loader);
    TH__CHECK_PENDING();
    if (loader->args.num_workers > 0)
        TH__TRY(start_workers(loader));
    else
        th__fetch_open(&loader->plan, &loader->iterator, NULL);
    return th__pending();
}

/* Draws the indices of `batches` batches and throws them away; samples are not read, unless the dataset is iterable. */
static th_status skip(th_dataloader *loader, int64_t batches)
{
    size_t n;
    if (th__loader_index_sampler(loader) != NULL) {
        for (int64_t i = 0; i < batches && th__loader_draw(loader, &loader->indices, &n); i++) continue;
        return th__pending();
    }
    int64_t per_batch = loader->plan.batched ? loader->args.batch_size : 1;
    return loader->iterator.open ? th__fetch_skip(&loader->plan, &loader->iterator, batches * per_batch) : TH_OK;
}

/* The saved pass once more from its start, up to the saved position; the default generator is left as it was found. */
static th_status begin_saved(th_dataloader *loader)
{
    TH_SCOPE();
    th_sampler *sampler = th__loader_index_sampler(loader);
    th_value *saved_sampler = th_value_get(loader->resume, "sampler");
    th_tensor *before = th_get_rng_state();
    th_tensor *own = th_value_as_tensor(th_value_get(loader->resume, "generator_start"));
    th_tensor *usual = th_value_as_tensor(th_value_get(loader->resume, "default_start"));
    if (usual != NULL) TH__TRY(th_set_rng_state(usual));
    if (own != NULL && loader->args.generator != NULL) TH__TRY(th_generator_set_state(loader->args.generator, own));
    if (saved_sampler != NULL && sampler != NULL && sampler->ops.load_state_dict != NULL)
        TH__TRY(th__callback_status(sampler->ops.load_state_dict(sampler->self, saved_sampler), "load_state_dict",
                                    sampler->ops.name));
    th_status status = begin_fresh(loader);
    loader->yielded = th_value_as_int(th_value_get(loader->resume, "batch"), 0);
    if (status == TH_OK) status = skip(loader, loader->yielded);
    if (status == TH_OK) status = th_set_rng_state(before);
    return status;
}

th_status th__loader_begin(th_dataloader *loader)
{
    if (loader->wrapper_ops != NULL) give_epochs(loader);
    loader->begun++;
    loader->yielded = 0;
    loader->active = loader->ran = true;
    th_status status = loader->resume != NULL ? begin_saved(loader) : begin_fresh(loader);
    th_value_free(loader->resume);
    loader->resume = NULL;
    if (status == TH_OK && loader->workers != NULL)
        th__workers_begin(loader->workers, loader->yielded, loader->plan.batched ? loader->args.batch_size : 1);
    return status;
}

void th__loader_end(th_dataloader *loader)
{
    if (!loader->active) return;
    loader->active = false;
    th__fetch_close(&loader->plan, &loader->iterator);
    if (loader->workers == NULL) return;
    bool late = th__pending() == TH_ERR_TIMEOUT; /* a stuck worker cannot be waited for */
    if (loader->args.persistent_workers && !late) {
        th__workers_cancel(loader->workers);
    } else {
        th__workers_stop(loader->workers);
        loader->workers = NULL;
    }
}

/* ---------------------------------------------------------------- batches */

static th_status fetch_here(th_dataloader *loader, th_batch *batch, bool *end)
{
    size_t n = 0;
    *end = !th__loader_draw(loader, &loader->indices, &n) || loader->iterator.ended;
    if (*end) return th__pending();
    const int64_t *indices = loader->indices.size > 0 ? loader->indices.data : NULL;
    return th__fetch(&loader->plan, &loader->iterator, indices, n, batch, end, NULL);
}

/* Moves the tensors of a batch to where Fabric wants them, in place. */
static th_status place(th_dataloader *loader, th_batch *batch)
{
    if (loader->wrapper_ops == NULL || loader->wrapper_ops->move == NULL) return TH_OK;
    TH_SCOPE();
    for (size_t i = 0; i < batch->size; i++) {
        th_tensor *moved = loader->wrapper_ops->move(batch->data[i], loader->wrapper);
        if (moved == NULL) return th__callback_status(TH_ERR_CALLBACK, "moving a batch", loader->args.dataset->ops.name);
        if (moved == batch->data[i]) continue;
        th_tensor *kept = th_retain(moved);
        th_free(batch->data[i]);
        batch->data[i] = kept;
    }
    return th__pending();
}

static bool stop(th_dataloader *loader, th_batch *batch)
{
    th__batch_clear(batch);
    th__loader_end(loader);
    return false;
}

static _Thread_local th__data_position last_position;

th__data_position th__data_position_last(void) { return last_position; }

static void note_position(th_dataloader *loader, int64_t batch)
{
    if (loader->wrapper_ops == NULL) return;
    if (batch == 0 || loader->begun - 1 != last_position.pass) last_position.length = th__dataloader_pass_len(loader);
    last_position.pass = loader->begun - 1;
    last_position.batch = batch;
}

bool th_dataloader_next(th_dataloader *loader, th_batch *batch)
{
    bool end = false;
    *batch = (th_batch){0};
    if (th__pending() != TH_OK || !TH__LOADER_CHECK(loader)) return false;
    th__batch_clear(&loader->current);
    th_batch *next = &loader->current;
    if (!loader->active && th__loader_begin(loader) != TH_OK) return stop(loader, next);
    th_status status = loader->workers != NULL ? th__workers_next(loader->workers, th__loader_draw, loader, next, &end)
                                               : fetch_here(loader, next, &end);
    if (status != TH_OK || end || place(loader, next) != TH_OK) return stop(loader, next);
    next->index = loader->yielded++;
    note_position(loader, next->index);
    *batch = *next;
    return true;
}

th_status th_dataloader_reset(th_dataloader *loader)
{
    th__object *object = (th__object *)loader;
    if (object == NULL || object->magic != TH__OBJECT_LIVE) {
        TH__LOADER_CHECK(loader);
        return th__pending();
    }
    th__batch_clear(&loader->current);
    th__loader_end(loader);
    th_value_free(loader->resume);
    loader->resume = NULL;
    return th__pending();
}

th_status th_dataloader_set_epoch(th_dataloader *loader, int64_t epoch)
{
    TH__CHECK_PENDING();
    TH__TRY(th_dataloader_reset(loader));
    if (epoch < 0) return TH__FAIL(TH_ERR_VALUE, "epoch is %lld, expected 0 or more", (long long)epoch);
    loader->begun = epoch;
    return TH_OK;
}
