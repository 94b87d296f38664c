/* data/dataset_views.c: datasets made of other datasets: subset, concatenation, random split. */
#include "data/objects.h"
#include "data/tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- subset */

typedef struct subset {
    th_dataset *inner;
    int64_t *indices;
    int64_t size;
} subset;

static int64_t subset_len(void *self) { return ((subset *)self)->size; }

static th_status subset_item(void *self, int64_t index, th_sample *sample)
{
    subset *set = self;
    return th__dataset_item(set->inner, set->indices[index], sample);
}

static th_status subset_batch(void *self, const int64_t *indices, size_t n, th_sample *batch)
{
    subset *set = self;
    int64_t *mapped = th__malloc(n * sizeof *mapped);
    if (mapped == NULL) return th__pending();
    for (size_t i = 0; i < n; i++) mapped[i] = set->indices[indices[i]];
    th_status status = th__dataset_batch(set->inner, mapped, n, batch);
    free(mapped);
    return status;
}

static void subset_free(void *self)
{
    subset *set = self;
    th_dataset_free(set->inner);
    free(set->indices);
    free(set);
}

static const th_dataset_ops subset_ops = {.size = sizeof subset_ops,
                                          .name = "Subset",
                                          .len = subset_len,
                                          .get_item = subset_item,
                                          .get_batch = subset_batch,
                                          .free = subset_free};

/* Takes over `inner` and `indices` (NULL: an error is pending). */
static th_dataset *subset_make(th_dataset *inner, int64_t *indices, int64_t size)
{
    subset *set = indices != NULL ? th__calloc(1, sizeof *set) : NULL;
    if (set == NULL) {
        th_dataset_free(inner);
        free(indices);
        return NULL;
    }
    *set = (subset){inner, indices, size};
    th_dataset_ops ops = subset_ops;
    if (inner->ops.get_batch == NULL) ops.get_batch = NULL;
    return th_dataset_new(&ops, set);
}

static th_status check_map_style(th_dataset *dataset, const char *function)
{
    TH__CHECK_PENDING();
    if (!th__object_check(dataset, &th__dataset_class, function, "dataset")) return th__pending();
    if (dataset->ops.iter_next == NULL) return TH_OK;
    return th__fail(TH_ERR_TYPE, function, "dataset '%s' is iterable-style, expected a map-style one", dataset->ops.name);
}

th_dataset *th_dataset_subset(th_dataset *dataset, th_ints indices)
{
    th_status status = check_map_style(dataset, __func__);
    int64_t length = status == TH_OK ? th_dataset_len(dataset) : 0;
    int64_t *copy = status == TH_OK ? th__malloc(indices.size * sizeof *copy) : NULL;
    for (size_t i = 0; copy != NULL && status == TH_OK && i < indices.size; i++) {
        copy[i] = indices.data[i] < 0 ? indices.data[i] + length : indices.data[i];
        if (copy[i] < 0 || copy[i] >= length)
            status = TH__FAIL(TH_ERR_VALUE, "index %lld is outside dataset '%s' of %lld samples", (long long)indices.data[i],
                              dataset->ops.name, (long long)length);
    }
    if (copy == NULL || status != TH_OK) {
        free(copy);
        th_dataset_free(dataset);
        return NULL;
    }
    return subset_make(dataset, copy, (int64_t)indices.size);
}

/* ---------------------------------------------------------------- concat */

typedef struct concat {
    th_dataset **parts;
    int64_t *ends; /* cumulative lengths */
    size_t n;
} concat;

static int64_t concat_len(void *self)
{
    concat *set = self;
    return set->n > 0 ? set->ends[set->n - 1] : 0;
}

static size_t concat_part(const concat *set, int64_t *index)
{
    size_t part = 0;
    while (*index >= set->ends[part]) part++;
    if (part > 0) *index -= set->ends[part - 1];
    return part;
}

static th_status concat_item(void *self, int64_t index, th_sample *sample)
{
    concat *set = self;
    size_t part = concat_part(set, &index);
    return th__dataset_item(set->parts[part], index, sample);
}

static void concat_free(void *self)
{
    concat *set = self;
    for (size_t i = 0; i < set->n; i++) th_dataset_free(set->parts[i]);
    free(set->parts);
    free(set->ends);
    free(set);
}

static const th_dataset_ops concat_ops = {
    .size = sizeof concat_ops, .name = "ConcatDataset", .len = concat_len, .get_item = concat_item, .free = concat_free};

th_dataset *th_dataset_concat(th_dataset *const *datasets, size_t n)
{
    th_status status = th__pending();
    if (status == TH_OK && n == 0) status = TH__FAIL(TH_ERR_VALUE, "0 datasets given, expected at least 1");
    for (size_t i = 0; i < n && status == TH_OK; i++) status = check_map_style(datasets[i], __func__);
    concat *set = status == TH_OK ? th__calloc(1, sizeof *set) : NULL;
    if (set != NULL) {
        set->parts = th__calloc(n, sizeof *set->parts);
        set->ends = th__calloc(n, sizeof *set->ends);
    }
    if (set == NULL || set->parts == NULL || set->ends == NULL) {
        if (set != NULL) concat_free(set); /* still empty */
        for (size_t i = 0; i < n; i++) th_dataset_free(datasets[i]);
        return NULL;
    }
    for (set->n = 0; set->n < n; set->n++) {
        set->parts[set->n] = datasets[set->n];
        set->ends[set->n] = (set->n > 0 ? set->ends[set->n - 1] : 0) + th_dataset_len(datasets[set->n]);
    }
    return th_dataset_new(&concat_ops, set);
}

/* ---------------------------------------------------------------- random split */

/* The lengths that fractions stand for: floors, then the remainder one by one from the first part on. */
static th_status lengths_of_fractions(th_doubles fractions, int64_t total, int64_t *lengths)
{
    double sum = 0;
    int64_t used = 0;
    for (size_t i = 0; i < fractions.size; i++) sum += fractions.data[i];
    if (fabs(sum - 1) > 1e-9 || sum > 1) /* what math.isclose and <= 1 ask */
        return th__fail(TH_ERR_VALUE, "th_random_split", "the fractions add up to %.17g, expected 1", sum);
    for (size_t i = 0; i < fractions.size; i++) {
        if (!(fractions.data[i] >= 0 && fractions.data[i] <= 1))
            return th__fail(TH_ERR_VALUE, "th_random_split", "fraction %zu is %g, expected 0 to 1", i, fractions.data[i]);
        lengths[i] = (int64_t)floor((double)total * fractions.data[i]);
        used += lengths[i];
    }
    for (int64_t i = 0; i < total - used; i++) lengths[i % (int64_t)fractions.size]++;
    for (size_t i = 0; i < fractions.size; i++)
        if (lengths[i] == 0) th__warn("th_random_split: part %zu has no samples", i);
    return TH_OK;
}

static th_status split_lengths(const struct th_random_split_args *args, size_t n, int64_t *lengths)
{
    int64_t total = th_dataset_len(args->dataset), sum = 0;
    if (args->fractions.data != NULL) return lengths_of_fractions(args->fractions, total, lengths);
    for (size_t i = 0; i < n; i++) {
        if ((lengths[i] = args->lengths.data[i]) < 0)
            return th__fail(TH_ERR_VALUE, "th_random_split", "length %zu is %lld, expected 0 or more", i, (long long)lengths[i]);
        sum += lengths[i];
    }
    if (sum == total) return TH_OK;
    return th__fail(TH_ERR_VALUE, "th_random_split", "the lengths add up to %lld, but the dataset has %lld samples",
                    (long long)sum, (long long)total);
}

static th_status split_parts(const struct th_random_split_args *args, size_t n, const int64_t *lengths)
{
    int64_t *order = th__data_randperm(th_dataset_len(args->dataset), args->generator), start = 0;
    if (order == NULL) return th__pending();
    for (size_t i = 0; i < n && th__pending() == TH_OK; start += lengths[i], i++) {
        int64_t *part = th__malloc((size_t)lengths[i] * sizeof *part);
        if (part != NULL) memcpy(part, order + start, (size_t)lengths[i] * sizeof *part);
        args->parts[i] = subset_make(th_dataset_retain(args->dataset), part, lengths[i]);
    }
    free(order);
    return th__pending();
}

th_status th_random_split_call(struct th_random_split_args args)
{
    size_t n = args.fractions.data != NULL ? args.fractions.size : args.lengths.size;
    for (size_t i = 0; args.parts != NULL && i < n; i++) args.parts[i] = NULL;
    th_status status = check_map_style(args.dataset, "th_random_split");
    if (status == TH_OK && (args.parts == NULL || n == 0))
        status =
            TH__FAIL(TH_ERR_VALUE, "%s, expected lengths and room for the parts", n == 0 ? "no lengths given" : "parts is NULL");
    int64_t *lengths = status == TH_OK ? th__calloc(n, sizeof *lengths) : NULL;
    if (lengths != NULL && (status = split_lengths(&args, n, lengths)) == TH_OK) status = split_parts(&args, n, lengths);
    free(lengths);
    th_dataset_free(args.dataset);
    if (th__pending() == TH_OK) return TH_OK;
    for (size_t i = 0; args.parts != NULL && i < n; i++) {
        th_dataset_free(args.parts[i]);
        args.parts[i] = NULL;
    }
    return th__pending();
}
