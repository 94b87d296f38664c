/* data/loader.c: making a loader, with PyTorch's checks of its arguments, and asking it about itself. */
#include "data/loader.h"

#include "data/tensors.h"
#include <stdlib.h>

static void loader_destroy(void *object)
{
    th_dataloader *loader = object;
    th__loader_end(loader);
    th__workers_stop(loader->workers);
    th__batch_clear(&loader->current);
    if (loader->wrapper_ops != NULL && loader->wrapper_ops->free != NULL) loader->wrapper_ops->free(loader->wrapper);
    th_dataset_free(loader->args.dataset);
    th_sampler_free(loader->sampler);
    th_sampler_free(loader->batch_sampler);
    th_free(loader->default_start);
    th_free(loader->generator_start);
    th_value_free(loader->resume);
    th_indices_free(&loader->indices);
    free(loader);
}

const th__class th__dataloader_class = {"dataloader", loader_destroy};

/* ---------------------------------------------------------------- arguments */

#define REFUSE(...) th__fail(TH_ERR_VALUE, "th_dataloader_new", __VA_ARGS__)

static th_status check_workers(const struct th_dataloader_args *a)
{
    if (a->num_workers < 0)
        return REFUSE("num_workers option should be non-negative, but got %d; use 0 to read without threads", a->num_workers);
    if (!(a->timeout >= 0)) return REFUSE("timeout option should be non-negative, but got %g", a->timeout);
    if (a->num_workers == 0 && a->timeout > 0)
        return REFUSE("timeout option needs num_workers > 0, but got timeout=%g", a->timeout);
    if (a->prefetch_factor < 0) return REFUSE("prefetch_factor option should be non-negative, but got %d", a->prefetch_factor);
    if (a->num_workers == 0 && a->prefetch_factor > 0)
        return REFUSE("prefetch_factor option could only be specified with num_workers > 0, but got prefetch_factor=%d",
                      a->prefetch_factor);
    if (a->num_workers == 0 && a->persistent_workers) return REFUSE("persistent_workers option needs num_workers > 0");
    return TH_OK;
}

static th_status check_iterable(const struct th_dataloader_args *a)
{
    const char *name = a->dataset->ops.name;
    if (a->dataset->ops.iter_next == NULL) return TH_OK;
    if (a->shuffle) return REFUSE("iterable-style dataset '%s': expected unspecified shuffle option, but got shuffle=true", name);
    if (a->sampler != NULL)
        return REFUSE("iterable-style dataset '%s': expected unspecified sampler option, but got '%s'", name,
                      a->sampler->ops.name);
    if (a->batch_sampler != NULL)
        return REFUSE("iterable-style dataset '%s': expected unspecified batch_sampler option, but got '%s'", name,
                      a->batch_sampler->ops.name);
    return TH_OK;
}

static th_status check_samplers(const struct th_dataloader_args *a)
{
    if (a->sampler != NULL && a->shuffle) return REFUSE("sampler option is mutually exclusive with shuffle");
    if (a->batch_sampler != NULL) {
        if (a->batch_size != 1 || a->shuffle || a->sampler != NULL || a->drop_last)
            return REFUSE("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last");
        if (a->batch_sampler->ops.next_batch == NULL)
            return th__fail(TH_ERR_TYPE, "th_dataloader_new",
                            "batch_sampler '%s' yields single indices, expected a batch sampler "
                            "(th_sampler_batch makes one)",
                            a->batch_sampler->ops.name);
    } else if (a->batch_size == TH_NO_BATCH) {
        if (a->drop_last) return REFUSE("batch_size=TH_NO_BATCH disables auto-batching and is mutually exclusive with drop_last");
    } else if (a->batch_size <= 0) {
        return REFUSE("batch_size should be a positive integer value, but got batch_size=%lld", (long long)a->batch_size);
    }
    if (a->sampler != NULL && a->sampler->ops.next == NULL)
        return th__fail(TH_ERR_TYPE, "th_dataloader_new", "sampler '%s' is a batch sampler: give it as batch_sampler",
                        a->sampler->ops.name);
    return TH_OK;
}

static th_status check_arguments(const struct th_dataloader_args *a)
{
    TH__CHECK_PENDING();
    if (!th__object_check(a->dataset, &th__dataset_class, "th_dataloader_new", "dataset")) return th__pending();
    if (a->sampler != NULL && !th__object_check(a->sampler, &th__sampler_class, "th_dataloader_new", "sampler"))
        return th__pending();
    if (a->batch_sampler != NULL && !th__object_check(a->batch_sampler, &th__sampler_class, "th_dataloader_new", "batch_sampler"))
        return th__pending();
    TH__TRY(check_workers(a));
    TH__TRY(check_iterable(a));
    return check_samplers(a);
}

/* The default samplers. Takes over those of the arguments. */
static th_status make_samplers(th_dataloader *loader)
{
    struct th_dataloader_args *a = &loader->args;
    loader->sampler = a->sampler;
    loader->batch_sampler = a->batch_sampler;
    a->sampler = a->batch_sampler = NULL;
    if (a->dataset->ops.iter_next != NULL || loader->batch_sampler != NULL) return TH_OK;
    if (loader->sampler == NULL) {
        int64_t n = th_dataset_len(a->dataset);
        loader->sampler = a->shuffle ? th_sampler_random(n, .generator = a->generator) : th_sampler_sequential(n);
    }
    if (loader->sampler != NULL && a->batch_size != TH_NO_BATCH)
        loader->batch_sampler = th_sampler_batch(th_sampler_retain(loader->sampler), a->batch_size, a->drop_last);
    return th__pending();
}

th_dataloader *th_dataloader_new_call(struct th_dataloader_args args)
{
    th_dataloader *loader = check_arguments(&args) == TH_OK ? th__object_new(&th__dataloader_class, sizeof *loader) : NULL;
    if (loader == NULL) {
        th_dataset_free(args.dataset);
        th_sampler_free(args.sampler);
        th_sampler_free(args.batch_sampler);
        return NULL;
    }
    loader->args = args;
    loader->worker_rank = -1;
    if (make_samplers(loader) != TH_OK) {
        th__release(loader);
        return NULL;
    }
    bool batched = args.batch_size != TH_NO_BATCH;
    loader->plan = (th__fetch_plan){args.dataset, batched, args.drop_last, args.collate_fn, args.collate_user, args.pin_memory};
    if (args.num_workers > 0 && args.prefetch_factor == 0) loader->args.prefetch_factor = 2;
    if (args.pin_memory && !th__data_can_pin()) {
        th__warn_rank_zero(
            "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used");
        loader->plan.pin_memory = false;
    }
    th__warn_of_too_many_workers(args.num_workers);
    return loader;
}

/* ---------------------------------------------------------------- questions */

th_dataloader *th_dataloader_retain(th_dataloader *loader) { return th__retain(loader); }
void th_dataloader_free(th_dataloader *loader) { th__release(loader); }

th_sampler *th__loader_index_sampler(const th_dataloader *loader)
{
    return loader->batch_sampler != NULL ? loader->batch_sampler : loader->sampler;
}

int64_t th_dataloader_dataset_len(th_dataloader *loader)
{
    if (th__pending() != TH_OK || !TH__LOADER_CHECK(loader)) return -1;
    return th_dataset_len(loader->args.dataset);
}

int64_t th_dataloader_len(th_dataloader *loader)
{
    if (th__pending() != TH_OK || !TH__LOADER_CHECK(loader)) return -1;
    th_sampler *sampler = th__loader_index_sampler(loader);
    if (sampler != NULL) return th_sampler_len(sampler);
    int64_t n = th_dataset_len(loader->args.dataset), batch_size = loader->args.batch_size;
    if (n < 0 || batch_size == TH_NO_BATCH) return n;
    return loader->args.drop_last ? n / batch_size : n / batch_size + (n % batch_size != 0);
}

int64_t th__dataloader_pass_len(th_dataloader *loader) { return th_dataloader_len(loader); }

th_dataset *th_dataloader_dataset(th_dataloader *loader)
{
    return th__pending() == TH_OK && TH__LOADER_CHECK(loader) ? loader->args.dataset : NULL;
}

th_sampler *th_dataloader_sampler(th_dataloader *loader)
{
    return th__pending() == TH_OK && TH__LOADER_CHECK(loader) ? loader->sampler : NULL;
}

th_sampler *th_dataloader_batch_sampler(th_dataloader *loader)
{
    return th__pending() == TH_OK && TH__LOADER_CHECK(loader) ? loader->batch_sampler : NULL;
}

int64_t th_dataloader_epoch(th_dataloader *loader)
{
    return th__pending() == TH_OK && TH__LOADER_CHECK(loader) ? loader->begun : -1;
}
