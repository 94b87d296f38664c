/* data/sampler.c: the sampler object, lists of indices, and the sequential sampler. */
#include "data/objects.h"

#include <stdlib.h>
#include <string.h>

th_status th_indices_push(th_indices *indices, int64_t index)
{
    if (TH__PUSH(indices->data, indices->size, indices->capacity, index) != 0) return th__pending();
    return TH_OK;
}

void th_indices_free(th_indices *indices)
{
    free(indices->data);
    *indices = (th_indices){0};
}

static void sampler_destroy(void *object)
{
    th_sampler *sampler = object;
    if (sampler->ops.free != NULL) sampler->ops.free(sampler->self);
    free(sampler);
}

const th__class th__sampler_class = {"sampler", sampler_destroy};

th_sampler *th__sampler_make(const th_sampler_ops *ops, void *self, th__sampler_kind kind, bool exact)
{
    th_sampler_ops copy = {0};
    th_sampler *sampler = NULL;
    if (ops != NULL) memcpy(&copy, ops, ops->size < sizeof copy ? ops->size : sizeof copy);
    if (copy.name == NULL) copy.name = "sampler";
    if (th__pending() == TH_OK) {
        if (ops == NULL || ops->size == 0)
            th__fail(TH_ERR_VALUE, "th_sampler_new",
                     "the table of sampler '%s' is NULL or has size 0, expected "
                     "sizeof(th_sampler_ops)",
                     copy.name);
        else if ((copy.next == NULL) == (copy.next_batch == NULL))
            th__fail(TH_ERR_VALUE, "th_sampler_new", "sampler '%s' has %s next and next_batch, expected exactly one of them",
                     copy.name, copy.next == NULL ? "neither" : "both");
        else
            sampler = th__object_new(&th__sampler_class, sizeof *sampler);
    }
    if (sampler == NULL) {
        if (copy.free != NULL) copy.free(self);
        return NULL;
    }
    sampler->ops = copy;
    sampler->self = self;
    sampler->kind = kind;
    sampler->exact = exact;
    return sampler;
}

th_sampler *th_sampler_new(const th_sampler_ops *ops, void *self)
{
    return th__sampler_make(ops, self, TH__SAMPLER_OTHER, false);
}

th_sampler *th_sampler_retain(th_sampler *sampler) { return th__retain(sampler); }
void th_sampler_free(th_sampler *sampler) { th__release(sampler); }

int64_t th_sampler_len(th_sampler *sampler)
{
    if (th__pending() != TH_OK || !TH__SAMPLER_CHECK(sampler)) return -1;
    int64_t length = sampler->ops.len != NULL ? sampler->ops.len(sampler->self) : -1;
    return length < 0 ? -1 : length;
}

bool th_sampler_is_batch(th_sampler *sampler)
{
    return th__pending() == TH_OK && TH__SAMPLER_CHECK(sampler) && sampler->ops.next_batch != NULL;
}

th_status th_sampler_begin(th_sampler *sampler)
{
    TH__CHECK_PENDING();
    if (!TH__SAMPLER_CHECK(sampler)) return th__pending();
    sampler->manual_epoch = false;
    if (sampler->ops.begin == NULL) return TH_OK;
    return th__callback_status(sampler->ops.begin(sampler->self), "begin", sampler->ops.name);
}

bool th_sampler_next(th_sampler *sampler, int64_t *index)
{
    bool end = false;
    if (th__pending() != TH_OK || !TH__SAMPLER_CHECK(sampler)) return false;
    if (sampler->ops.next == NULL) {
        TH__FAIL(TH_ERR_TYPE, "'%s' is a batch sampler: it yields lists, use th_sampler_next_batch", sampler->ops.name);
        return false;
    }
    th_status status = sampler->ops.next(sampler->self, index, &end);
    return th__callback_status(status, "next", sampler->ops.name) == TH_OK && !end;
}

bool th_sampler_next_batch(th_sampler *sampler, th_indices *indices)
{
    bool end = false;
    indices->size = 0;
    if (th__pending() != TH_OK || !TH__SAMPLER_CHECK(sampler)) return false;
    if (sampler->ops.next_batch == NULL) {
        TH__FAIL(TH_ERR_TYPE, "'%s' yields single indices, expected a batch sampler", sampler->ops.name);
        return false;
    }
    th_status status = sampler->ops.next_batch(sampler->self, indices, &end);
    return th__callback_status(status, "next_batch", sampler->ops.name) == TH_OK && !end;
}

th_status th_sampler_set_epoch(th_sampler *sampler, int64_t epoch)
{
    TH__CHECK_PENDING();
    if (!TH__SAMPLER_CHECK(sampler)) return th__pending();
    if (sampler->ops.set_epoch == NULL)
        return TH__FAIL(TH_ERR_RUNTIME, "sampler '%s' has no epochs: its passes do not depend on set_epoch", sampler->ops.name);
    sampler->ops.set_epoch(sampler->self, epoch);
    sampler->manual_epoch = true;
    return th__pending();
}

/* ---------------------------------------------------------------- sequential */

typedef struct sequential {
    int64_t n, next;
} sequential;

static int64_t sequential_len(void *self) { return ((sequential *)self)->n; }
static th_status sequential_begin(void *self)
{
    ((sequential *)self)->next = 0;
    return TH_OK;
}

static th_status sequential_next(void *self, int64_t *index, bool *end)
{
    sequential *s = self;
    if (s->next >= s->n)
        *end = true;
    else
        *index = s->next++;
    return TH_OK;
}

static const th_sampler_ops sequential_ops = {.size = sizeof sequential_ops,
                                              .name = "SequentialSampler",
                                              .len = sequential_len,
                                              .begin = sequential_begin,
                                              .next = sequential_next,
                                              .free = free};

th_sampler *th_sampler_sequential(int64_t n)
{
    TH__CHECK_PENDING_NULL();
    if (n < 0) TH__FAIL(TH_ERR_VALUE, "n is %lld, expected the length of a dataset", (long long)n);
    sequential *s = th__calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->n = n;
    return th__sampler_make(&sequential_ops, s, TH__SAMPLER_SEQUENTIAL, true);
}
