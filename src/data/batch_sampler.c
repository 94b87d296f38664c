/* data/batch_sampler.c: BatchSampler, and what the room asks of samplers through it. */
#include "data/objects.h"

#include <stdlib.h>

typedef struct batches {
    th_sampler *inner;
    int64_t batch_size;
    bool drop_last;
    bool ended; /* the inner sampler has: it is not asked again */
} batches;

static int64_t batches_len(void *self)
{
    batches *b = self;
    int64_t n = th_sampler_len(b->inner);
    if (n < 0) return -1;
    return b->drop_last ? n / b->batch_size : n / b->batch_size + (n % b->batch_size != 0);
}

static th_status batches_begin(void *self)
{
    batches *b = self;
    b->ended = false;
    return th_sampler_begin(b->inner);
}

static th_status batches_next(void *self, th_indices *indices, bool *end)
{
    batches *b = self;
    int64_t index;
    while (!b->ended && (int64_t)indices->size < b->batch_size) {
        if (!th_sampler_next(b->inner, &index))
            b->ended = true;
        else
            TH__TRY(th_indices_push(indices, index));
    }
    if (indices->size == 0 || (b->drop_last && (int64_t)indices->size < b->batch_size)) *end = true;
    return th__pending();
}

static th_value *batches_state(void *self)
{
    th_sampler *inner = ((batches *)self)->inner;
    return inner->ops.state_dict != NULL ? inner->ops.state_dict(inner->self) : NULL;
}

static th_status batches_load(void *self, th_value *state)
{
    th_sampler *inner = ((batches *)self)->inner;
    return inner->ops.load_state_dict != NULL ? inner->ops.load_state_dict(inner->self, state) : TH_OK;
}

static th_sampler *batches_inner(void *self) { return ((batches *)self)->inner; }

static th_sampler *batches_rebuild(void *self, th_sampler *sampler)
{
    batches *b = self;
    return th_sampler_batch(sampler, b->batch_size, b->drop_last);
}

static void batches_free(void *self)
{
    th_sampler_free(((batches *)self)->inner);
    free(self);
}

static const th_sampler_ops batches_ops = {.size = sizeof batches_ops,
                                           .name = "BatchSampler",
                                           .len = batches_len,
                                           .begin = batches_begin,
                                           .next_batch = batches_next,
                                           .state_dict = batches_state,
                                           .load_state_dict = batches_load,
                                           .inner = batches_inner,
                                           .rebuild = batches_rebuild,
                                           .free = batches_free};

th_sampler *th_sampler_batch(th_sampler *sampler, int64_t batch_size, bool drop_last)
{
    batches *b = NULL;
    if (th__pending() == TH_OK && TH__SAMPLER_CHECK(sampler)) {
        if (batch_size <= 0)
            TH__FAIL(TH_ERR_VALUE, "batch_size should be a positive integer value, but got batch_size=%lld",
                     (long long)batch_size);
        else if (sampler->ops.next == NULL)
            TH__FAIL(TH_ERR_TYPE, "'%s' is a batch sampler already, expected one that yields indices", sampler->ops.name);
        else
            b = th__calloc(1, sizeof *b);
    }
    if (b == NULL) {
        th_sampler_free(sampler);
        return NULL;
    }
    *b = (batches){.inner = sampler, .batch_size = batch_size, .drop_last = drop_last};
    return th__sampler_make(&batches_ops, b, sampler->kind, false);
}

static batches *as_batches(th_sampler *sampler)
{
    return sampler != NULL && sampler->ops.next_batch == batches_next ? sampler->self : NULL;
}

int64_t th__sampler_batch_size(th_sampler *sampler)
{
    batches *b = as_batches(sampler);
    return b != NULL ? b->batch_size : 0;
}

bool th__sampler_batch_drops_last(th_sampler *sampler)
{
    batches *b = as_batches(sampler);
    return b != NULL && b->drop_last;
}
