/* helpers.h: datasets that count their reads, and the indices a loader or sampler yields. */
#ifndef TESTS_DATA_HELPERS_H
#define TESTS_DATA_HELPERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/object.h"
#include "data/internal.h"
#include <stdatomic.h>
#include <time.h>

/* A map-style dataset whose sample i is the number i. */
typedef struct range {
    int64_t n;
    atomic_long *reads;
    int64_t fail_at;
    int64_t sleep_us;
} range;

static int64_t range_len(void *self) { return ((range *)self)->n; }

static th_status range_item(void *self, int64_t index, th_sample *sample)
{
    range *r = self;
    if (r->reads != NULL) atomic_fetch_add(r->reads, 1);
    if (index == r->fail_at) return th_error_set(TH_ERR_VALUE, "sample %d is bad", (int)index);
    if (r->sleep_us > 0) {
        struct timespec pause = {r->sleep_us / 1000000, (long)(r->sleep_us % 1000000) * 1000};
        nanosleep(&pause, NULL);
    }
    sample->data[0] = th_tensor_scalar(TH_S(index), TH_INT64);
    sample->size = 1;
    return TH_OK;
}

static inline th_dataset *range_with(range r)
{
    const th_dataset_ops ops = {.size = sizeof ops, .name = "range", .len = range_len, .get_item = range_item, .free = free};
    range *self = malloc(sizeof *self);
    *self = r;
    return th_dataset_new(&ops, self);
}

static inline th_dataset *range_new(int64_t n) { return range_with((range){.n = n, .fail_at = -1}); }

/* An iterable-style dataset: 0 .. n - 1, divided between workers. */
typedef struct stream {
    int64_t n;
    atomic_long *reads;
} stream;
typedef struct stream_pass {
    int64_t next, step;
} stream_pass;

static void *stream_iter(void *self, const th_worker_info *worker)
{
    (void)self;
    stream_pass *pass = malloc(sizeof *pass);
    *pass = worker != NULL ? (stream_pass){worker->id, worker->num_workers} : (stream_pass){0, 1};
    return pass;
}

static th_status stream_next(void *self, void *iterator, th_sample *sample, bool *end)
{
    stream *s = self;
    stream_pass *pass = iterator;
    if (pass->next >= s->n) {
        *end = true;
        return TH_OK;
    }
    if (s->reads != NULL) atomic_fetch_add(s->reads, 1);
    sample->data[0] = th_tensor_scalar(TH_S(pass->next), TH_INT64);
    sample->size = 1;
    pass->next += pass->step;
    return TH_OK;
}

static void stream_end(void *self, void *iterator)
{
    (void)self;
    free(iterator);
}

static inline th_dataset *stream_new(int64_t n)
{
    const th_dataset_ops ops = {.size = sizeof ops,
                                .name = "stream",
                                .iter_new = stream_iter,
                                .iter_next = stream_next,
                                .iter_free = stream_end,
                                .free = free};
    stream *self = calloc(1, sizeof *self);
    self->n = n;
    return th_dataset_new(&ops, self);
}

/* ---- lists of numbers as text: "1 2 3" */
typedef struct text {
    char *data;
    size_t size, capacity;
} text;

static inline void text_add(text *t, long long value)
{
    if (t->size + 32 > t->capacity) t->data = realloc(t->data, t->capacity = t->capacity * 2 + 256);
    t->size += (size_t)sprintf(t->data + t->size, t->size > 0 ? " %lld" : "%lld", value);
}

static inline text text_of_sampler(th_sampler *sampler)
{
    text out = {0};
    int64_t index;
    th_sampler_begin(sampler);
    while (th_sampler_next(sampler, &index)) text_add(&out, index);
    return out;
}

/* One pass: -1 before each batch, as the Python script does; stops after `stop` batches (0: at the end). */
static inline text text_of_pass(th_dataloader *loader, int64_t stop, bool marks)
{
    text out = {0};
    th_batch batch;
    while (th_dataloader_next(loader, &batch)) {
        TH_SCOPE();
        int64_t values[4096], n = th_numel(batch.data[0]);
        th_copy_to(batch.data[0], values, (size_t)n * sizeof *values, TH_INT64);
        if (marks) text_add(&out, -1);
        for (int64_t i = 0; i < n; i++) text_add(&out, values[i]);
        if (batch.index + 1 == stop) {
            th_dataloader_reset(loader);
            break;
        }
    }
    return out;
}

#define assert_text(t, expected)                                                                                                 \
    do {                                                                                                                         \
        text got_ = (t);                                                                                                         \
        assert_string_equal(got_.data != NULL ? got_.data : "", expected);                                                       \
        free(got_.data);                                                                                                         \
    } while (0)

/* The call failed with this status and a message that contains `part`; the error is cleared. */
static inline void assert_error_(th_status status, const char *part, const char *file, int line)
{
    if (th_error() != status || strstr(th_error_message(), part) == NULL)
        print_error("%s:%d: got %s '%s', expected %s with '%s'\n", file, line, th_status_name(th_error()), th_error_message(),
                    th_status_name(status), part);
    assert_int_equal(th_error(), status);
    assert_non_null(strstr(th_error_message(), part));
    assert_null(strchr(th_error_message(), '\n'));
    th_error_clear();
}
#define assert_error(status, part) assert_error_((status), (part), __FILE__, __LINE__)

/* No object of the room is left over. */
static inline int no_leftovers(void **state)
{
    (void)state;
    if (th_error() != TH_OK) print_error("left pending: %s\n", th_error_message());
    return th_error() != TH_OK || th__objects_live(NULL) != 0 ? -1 : 0;
}

#endif
