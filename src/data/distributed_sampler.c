/* data/distributed_sampler.c: DistributedSampler, its un-padded form for evaluation, and the wrapper that shards any other
 * sampler. */
#include "data/objects.h"
#include "data/tensors.h"

#include <stdlib.h>

typedef struct distributed {
    int64_t n, num_replicas, rank;
    int64_t total; /* positions dealt out: n padded or cut to a multiple of num_replicas, or n itself */
    bool shuffle, drop_last, exact;
    uint64_t seed;
    int64_t epoch;
    th_sampler *inner; /* the wrapper: what is sharded */
    /* the running pass */
    int64_t *order;   /* of all ranks; NULL: 0, 1, 2, ... */
    int64_t position; /* the next one of this rank */
    bool started;
} distributed;

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 && a > 0); }

static void set_total(distributed *d)
{
    int64_t per_rank = ceil_div(d->n, d->num_replicas);
    if (d->drop_last && d->n % d->num_replicas != 0) per_rank = ceil_div(d->n - d->num_replicas, d->num_replicas);
    d->total = d->exact ? d->n : per_rank * d->num_replicas;
}

static int64_t distributed_len(void *self)
{
    distributed *d = self;
    return d->total / d->num_replicas + (d->rank < d->total % d->num_replicas);
}

static th_status distributed_begin(void *self)
{
    distributed *d = self;
    free(d->order);
    d->order = NULL;
    d->started = false;
    return TH_OK;
}

static th_status draw_order(distributed *d)
{
    if (!d->shuffle) return TH_OK;
    th_generator *generator = th_generator_new(TH_CPU);
    if (generator == NULL) return th__pending();
    if (th_generator_manual_seed(generator, d->seed + (uint64_t)d->epoch) == TH_OK) d->order = th__data_randperm(d->n, generator);
    th_generator_free(generator);
    return th__pending();
}

/* The wrapped sampler's whole pass. */
static th_status collect_order(distributed *d)
{
    int64_t count = 0, index;
    TH__TRY(th_sampler_begin(d->inner));
    if ((d->order = th__malloc((size_t)d->n * sizeof *d->order)) == NULL) return th__pending();
    while (count < d->n && th_sampler_next(d->inner, &index)) d->order[count++] = index;
    while (count == d->n && th_sampler_next(d->inner, &index)) continue; /* let it draw to its end, as list(sampler) does */
    TH__CHECK_PENDING();
    if (count == d->n) return TH_OK;
    return th__fail(TH_ERR_VALUE, "th_sampler_distributed_wrap", "sampler '%s' gave %lld indices, its length says %lld",
                    d->inner->ops.name, (long long)count, (long long)d->n);
}

static th_status distributed_next(void *self, int64_t *index, bool *end)
{
    distributed *d = self;
    if (!d->started) {
        d->position = d->rank;
        TH__TRY(d->inner != NULL ? collect_order(d) : draw_order(d));
        d->started = true;
    }
    if (d->position >= d->total) {
        *end = true;
        return TH_OK;
    }
    int64_t at = d->position % d->n; /* padding repeats from the start */
    *index = d->order != NULL ? d->order[at] : at;
    d->position += d->num_replicas;
    return TH_OK;
}

static void distributed_set_epoch(void *self, int64_t epoch)
{
    distributed *d = self;
    d->epoch = epoch;
    if (d->inner != NULL && d->inner->ops.set_epoch != NULL) d->inner->ops.set_epoch(d->inner->self, epoch);
}

static th_value *distributed_state(void *self)
{
    distributed *d = self;
    if (d->inner != NULL) return d->inner->ops.state_dict != NULL ? d->inner->ops.state_dict(d->inner->self) : NULL;
    th_value *state = th_value_dict();
    th_value_set(state, "seed", th_value_int((int64_t)d->seed));
    th_value_set(state, "epoch", th_value_int(d->epoch));
    return state;
}

static th_status distributed_load(void *self, th_value *state)
{
    distributed *d = self;
    if (d->inner != NULL)
        return d->inner->ops.load_state_dict != NULL ? d->inner->ops.load_state_dict(d->inner->self, state) : TH_OK;
    d->seed = (uint64_t)th_value_as_int(th_value_get(state, "seed"), (int64_t)d->seed);
    d->epoch = th_value_as_int(th_value_get(state, "epoch"), d->epoch);
    return TH_OK;
}

static void distributed_free(void *self)
{
    distributed *d = self;
    th_sampler_free(d->inner);
    free(d->order);
    free(d);
}

static const th_sampler_ops distributed_ops = {.size = sizeof distributed_ops,
                                               .name = "DistributedSampler",
                                               .len = distributed_len,
                                               .begin = distributed_begin,
                                               .next = distributed_next,
                                               .set_epoch = distributed_set_epoch,
                                               .state_dict = distributed_state,
                                               .load_state_dict = distributed_load,
                                               .free = distributed_free};

static th_sampler *make(const char *function, distributed filled)
{
    distributed *d = NULL;
    if (th__pending() == TH_OK) {
        if (filled.num_replicas < 1)
            th__fail(TH_ERR_VALUE, function, "num_replicas is %lld, expected 1 or more", (long long)filled.num_replicas);
        else if (filled.rank < 0 || filled.rank >= filled.num_replicas)
            th__fail(TH_ERR_VALUE, function, "Invalid rank %lld, rank should be in the interval [0, %lld]",
                     (long long)filled.rank, (long long)filled.num_replicas - 1);
        else if (filled.n < 0)
            th__fail(TH_ERR_VALUE, function, "n is %lld, expected the length of a dataset", (long long)filled.n);
        else
            d = th__malloc(sizeof *d);
    }
    if (d == NULL) {
        th_sampler_free(filled.inner);
        return NULL;
    }
    *d = filled;
    set_total(d);
    return th__sampler_make(&distributed_ops, d, TH__SAMPLER_DISTRIBUTED, false);
}

th_sampler *th_sampler_distributed_call(struct th_sampler_distributed_args args)
{
    return make("th_sampler_distributed", (distributed){.n = args.n,
                                                        .num_replicas = args.num_replicas,
                                                        .rank = args.rank,
                                                        .shuffle = args.shuffle,
                                                        .seed = args.seed,
                                                        .drop_last = args.drop_last});
}

th_sampler *th_sampler_distributed_eval_call(struct th_sampler_distributed_args args)
{
    TH__CHECK_PENDING_NULL();
    if (args.drop_last) {
        th__fail(TH_ERR_VALUE, "th_sampler_distributed_eval", "drop_last is true, but every sample is to be read once");
        return NULL;
    }
    return make("th_sampler_distributed_eval", (distributed){.n = args.n,
                                                             .num_replicas = args.num_replicas,
                                                             .rank = args.rank,
                                                             .shuffle = args.shuffle,
                                                             .seed = args.seed,
                                                             .exact = true});
}

th_sampler *th_sampler_distributed_wrap(th_sampler *sampler, int64_t num_replicas, int64_t rank, bool drop_last)
{
    int64_t n = -1;
    if (th__pending() == TH_OK && TH__SAMPLER_CHECK(sampler)) {
        n = th_sampler_len(sampler);
        if (sampler->ops.next == NULL)
            TH__FAIL(TH_ERR_TYPE, "'%s' is a batch sampler, expected one that yields indices", sampler->ops.name);
        else if (n < 0)
            TH__FAIL(TH_ERR_TYPE,
                     "sampler '%s' has no finite length, so it cannot be divided between %lld processes: give it a "
                     "len, or set use_distributed_sampler to false and divide it yourself",
                     sampler->ops.name, (long long)num_replicas);
    }
    return make(__func__,
                (distributed){.n = n, .num_replicas = num_replicas, .rank = rank, .drop_last = drop_last, .inner = sampler});
}

int64_t th__sampler_replicas(th_sampler *sampler)
{
    while (sampler != NULL && sampler->ops.next_batch != NULL && sampler->ops.inner != NULL)
        sampler = sampler->ops.inner(sampler->self);
    if (sampler == NULL || sampler->ops.next != distributed_next) return 1;
    return ((distributed *)sampler->self)->num_replicas;
}
