/* data/idx_dataset.c: images and labels in the MNIST format as a dataset; th_idx_read.
 *
 * A batch is made in one pass over the bytes of its images, straight into the memory of its tensor. */
#include "data/idx_file.h"
#include "data/objects.h"
#include "data/pixels.h"
#include "data/tensors.h"

#include <stdlib.h>
#include <string.h>

enum { PREFETCH_MAX = 4096 }; /* bytes of the next image; the processor finds the rest by itself */

typedef struct idx_dataset {
    th__idx images, labels;
    bool has_labels, raw;
    int64_t shape[TH__IDX_MAX_DIMS]; /* of one sample: channels, height, width */
    size_t pixels;                   /* per sample */
    size_t plane;                    /* pixels that are normalised alike: a channel, or the whole sample */
    th__pixels *channels;
} idx_dataset;

static int64_t idx_len(void *self) { return ((idx_dataset *)self)->images.sizes[0]; }

/* Rows are read in random order: ask for the next one while this one is converted. */
static void expect_image(const idx_dataset *set, int64_t index)
{
#ifdef __GNUC__
    const uint8_t *from = set->images.bytes + (size_t)index * set->pixels;
    for (size_t i = 0; i < set->pixels && i < PREFETCH_MAX; i += 64) __builtin_prefetch(from + i);
#else
    (void)set, (void)index;
#endif
}

static void copy_image(const idx_dataset *set, int64_t index, void *target, size_t row)
{
    const uint8_t *from = set->images.bytes + (size_t)index * set->pixels;
    if (set->raw) {
        memcpy((uint8_t *)target + row * set->pixels, from, set->pixels);
        return;
    }
    float *to = (float *)target + row * set->pixels;
    for (size_t done = 0, channel = 0; done < set->pixels; done += set->plane, channel++)
        th__pixels_convert(&set->channels[channel], from + done, to + done, set->plane);
}

static th_status idx_get_batch(void *self, const int64_t *indices, size_t n, th_sample *batch)
{
    const idx_dataset *set = self;
    th_tensor *images = th__data_empty_rows((int64_t)n, (th_ints){set->shape, 3}, set->raw ? TH_UINT8 : TH_FLOAT32);
    void *pixels = th_data_ptr(images);
    TH__CHECK_PENDING();
    for (size_t i = 0; i < n && set->pixels > 0; i++) {
        if (i + 1 < n) expect_image(set, indices[i + 1]);
        copy_image(set, indices[i], pixels, i);
    }
    batch->data[0] = images;
    batch->size = 1;
    if (!set->has_labels) return TH_OK;
    th_tensor *labels = th__data_empty(TH_INTS((int64_t)n), TH_INT64);
    int64_t *values = th_data_ptr(labels);
    TH__CHECK_PENDING();
    for (size_t i = 0; i < n; i++) values[i] = set->labels.bytes[indices[i]];
    batch->data[1] = labels;
    batch->size = 2;
    return TH_OK;
}

static void idx_free(void *self)
{
    idx_dataset *set = self;
    th__idx_free(&set->images);
    th__idx_free(&set->labels);
    free(set->channels);
    free(set);
}

static const th_dataset_ops idx_ops = {
    .size = sizeof idx_ops, .name = "idx", .len = idx_len, .get_batch = idx_get_batch, .free = idx_free};

/* ---------------------------------------------------------------- checks */

#define FAULT(status, ...) th__fail((status), "th_dataset_idx", __VA_ARGS__)

static th_status check_kind(const char *path, const th__idx *idx, bool images)
{
    if (idx->type != 0x08)
        return FAULT(TH_ERR_DATA, "'%s' holds %s values (type 0x%02x), expected %s of type uint8 (0x08)", path,
                     th__idx_type_name(idx->type), idx->type, images ? "images" : "labels");
    if (images && idx->dims != 3 && idx->dims != 4)
        return FAULT(TH_ERR_DATA, "'%s' has %zu dimension%s, expected images with 3 (n, height, width) or 4%s", path, idx->dims,
                     idx->dims == 1 ? "" : "s", idx->dims == 1 ? ": is this the file of labels?" : "");
    if (!images && idx->dims != 1)
        return FAULT(TH_ERR_DATA, "'%s' has %zu dimensions, expected labels with 1%s", path, idx->dims,
                     idx->dims == 3 ? ": is this the file of images?" : "");
    return TH_OK;
}

static th_status load_files(idx_dataset *set, const struct th_dataset_idx_args *args)
{
    TH__TRY(th__idx_load(args->images, &set->images));
    TH__TRY(check_kind(args->images, &set->images, true));
    set->has_labels = args->labels != NULL;
    if (!set->has_labels) return TH_OK;
    TH__TRY(th__idx_load(args->labels, &set->labels));
    TH__TRY(check_kind(args->labels, &set->labels, false));
    if (set->images.sizes[0] != set->labels.sizes[0])
        return FAULT(TH_ERR_DATA, "'%s' has %lld images, but '%s' has %lld labels: expected as many", args->images,
                     (long long)set->images.sizes[0], args->labels, (long long)set->labels.sizes[0]);
    return TH_OK;
}

static void set_shape(idx_dataset *set)
{
    size_t dims = set->images.dims;
    set->shape[0] = dims == 4 ? set->images.sizes[1] : 1;
    set->shape[1] = set->images.sizes[dims - 2];
    set->shape[2] = set->images.sizes[dims - 1];
    set->pixels = (size_t)(set->shape[0] * set->shape[1] * set->shape[2]);
}

/* ---------------------------------------------------------------- normalisation */

static th_status check_normalisation(const struct th_dataset_idx_args *args, size_t channels)
{
    if (args->mean.data == NULL && args->std.data == NULL) return TH_OK;
    if (args->raw) return FAULT(TH_ERR_VALUE, "raw gives bytes as they are, expected no mean and std beside it");
    if (args->mean.data == NULL || args->std.data == NULL || args->mean.size != args->std.size)
        return FAULT(TH_ERR_VALUE, "%zu means and %zu stds given, expected as many", args->mean.size, args->std.size);
    if (args->mean.size != 1 && args->mean.size != channels)
        return FAULT(TH_ERR_VALUE, "%zu means given, expected 1 or one for each of the %zu channels", args->mean.size, channels);
    for (size_t i = 0; i < args->std.size; i++)
        if ((float)args->std.data[i] == 0.0f)
            return FAULT(TH_ERR_VALUE, "std evaluated to zero after conversion to float32, leading to division by zero");
    return TH_OK;
}

static th_status set_normalisation(idx_dataset *set, const struct th_dataset_idx_args *args)
{
    size_t count = args->mean.data != NULL ? args->mean.size : 1;
    set->plane = count == 1 ? set->pixels : set->pixels / count;
    if (set->raw) return TH_OK;
    if ((set->channels = th__calloc(count, sizeof *set->channels)) == NULL) return th__pending();
    for (size_t i = 0; i < count; i++) {
        bool given = args->mean.data != NULL;
        th__pixels_init(&set->channels[i], given ? args->mean.data[i] : 0, given ? args->std.data[i] : 1);
    }
    return TH_OK;
}

th_dataset *th_dataset_idx_call(struct th_dataset_idx_args args)
{
    TH__CHECK_PENDING_NULL();
    idx_dataset *set = th__calloc(1, sizeof *set);
    if (set == NULL) return NULL;
    set->raw = args.raw;
    th_status status = load_files(set, &args);
    if (status == TH_OK) {
        set_shape(set);
        status = check_normalisation(&args, (size_t)set->shape[0]);
    }
    if (status == TH_OK) status = set_normalisation(set, &args);
    return th_dataset_new(&idx_ops, set); /* frees `set` when an error is pending */
}

/* ---------------------------------------------------------------- any IDX file as a tensor */

static th_dtype dtype_of(uint8_t type)
{
    switch (type) {
    case 0x08: return TH_UINT8;
    case 0x09: return TH_INT8;
    case 0x0b: return TH_INT16;
    case 0x0c: return TH_INT32;
    case 0x0d: return TH_FLOAT32;
    default: return TH_FLOAT64;
    }
}

static void to_native_order(th__idx *idx)
{
    const union {
        uint16_t word;
        uint8_t first;
    } probe = {1};
    if (probe.first == 0) return; /* a big-endian machine */
    for (uint8_t *p = idx->bytes; p < idx->bytes + idx->size; p += idx->element_size) {
        for (size_t i = 0, j = idx->element_size - 1; i < j; i++, j--) {
            uint8_t byte = p[i];
            p[i] = p[j];
            p[j] = byte;
        }
    }
}

th_tensor *th_idx_read(const char *path)
{
    th__idx idx;
    TH__CHECK_PENDING_NULL();
    TH__TRY_NULL(th__idx_load(path, &idx));
    to_native_order(&idx);
    th_tensor *tensor = th_tensor_from(idx.bytes, (th_ints){idx.sizes, idx.dims}, dtype_of(idx.type));
    th__idx_free(&idx);
    return tensor;
}
