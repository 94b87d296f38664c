/* checkpoint/format/safetensors_header.c: reads, checks and writes safetensors headers. */
#include "checkpoint/format/safetensors_header.h"

#include "base/json.h"
#include "base/memory.h"
#include "checkpoint/format/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BAD(path, ...) bad((path), __VA_ARGS__)
static th_status bad(const char *path, const char *format, ...) FABRIC_PRINTF(2, 3);
static th_status bad(const char *path, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return th__fail(TH_ERR_DATA, "safetensors", "'%s' is not a valid safetensors file: %s", path, text);
}

/* ---------------------------------------------------------------- one tensor */

static bool whole_number(const cJSON *item, uint64_t *out)
{
    if (!cJSON_IsNumber(item) || item->valuedouble < 0 || item->valuedouble > 9007199254740992.0 ||
        floor(item->valuedouble) != item->valuedouble)
        return false;
    *out = (uint64_t)item->valuedouble;
    return true;
}

static th_status read_shape(th__st_tensor *t, const cJSON *shape, const char *path)
{
    if (!cJSON_IsArray(shape)) return BAD(path, "tensor '%.80s' has no shape", t->name);
    const cJSON *item;
    size_t n = 0;
    cJSON_ArrayForEach(item, shape) n++;
    if (n > TH__ST_DIM_MAX) return BAD(path, "tensor '%.80s' has %zu dimensions", t->name, n);
    t->shape = th__calloc(n + 1, sizeof *t->shape);
    if (t->shape == NULL) return th__pending();
    cJSON_ArrayForEach(item, shape)
    {
        uint64_t size;
        if (!whole_number(item, &size)) return BAD(path, "tensor '%.80s' has a shape that is no list of sizes", t->name);
        t->shape[t->dim++] = (int64_t)size;
    }
    return TH_OK;
}

static th_status check_length(const th__st_tensor *t, const char *path)
{
    uint64_t bytes = t->dtype->size;
    for (size_t i = 0; i < t->dim; i++)
        if (__builtin_mul_overflow(bytes, (uint64_t)t->shape[i], &bytes))
            return BAD(path, "tensor '%.80s' has a shape that overflows", t->name);
    if (bytes != t->end - t->begin || bytes > INT64_MAX)
        return BAD(path, "tensor '%.80s' takes %llu bytes by its shape and %llu by its offsets", t->name,
                   (unsigned long long)bytes, (unsigned long long)(t->end - t->begin));
    return TH_OK;
}

static th_status read_tensor(th__st_tensor *t, const cJSON *item, uint64_t data_size, const char *path)
{
    if (!cJSON_IsObject(item)) return BAD(path, "entry '%.80s' is no object", t->name);
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(item, "dtype");
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
    if (!cJSON_IsString(dtype)) return BAD(path, "tensor '%.80s' has no dtype", t->name);
    t->dtype_name = dtype->valuestring;
    t->dtype = th__dtype_by_safetensors(dtype->valuestring);
    TH__TRY(read_shape(t, cJSON_GetObjectItemCaseSensitive(item, "shape"), path));
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 || !whole_number(cJSON_GetArrayItem(offsets, 0), &t->begin) ||
        !whole_number(cJSON_GetArrayItem(offsets, 1), &t->end))
        return BAD(path, "tensor '%.80s' has no data_offsets", t->name);
    if (t->begin > t->end || t->end > data_size)
        return BAD(path, "tensor '%.80s' has offsets [%llu, %llu], the data has %llu bytes (a truncated file?)", t->name,
                   (unsigned long long)t->begin, (unsigned long long)t->end, (unsigned long long)data_size);
    return t->dtype != NULL ? check_length(t, path) : TH_OK;
}

/* ---------------------------------------------------------------- the header */

static int by_place(const void *a, const void *b)
{
    const th__st_tensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static th_status check_names(const th__st_header *h, const char *path)
{
    const char **names = th__calloc(h->count + 1, sizeof *names);
    if (names == NULL) return th__pending();
    for (size_t i = 0; i < h->count; i++) names[i] = h->tensors[i].name;
    qsort(names, h->count, sizeof *names, by_text);
    th_status status = TH_OK;
    for (size_t i = 1; i < h->count && status == TH_OK; i++)
        if (strcmp(names[i], names[i - 1]) == 0) status = BAD(path, "two tensors are called '%.80s'", names[i]);
    free(names);
    return status;
}

static th_status check_metadata(const cJSON *metadata, const char *path)
{
    if (!cJSON_IsObject(metadata)) return BAD(path, "__metadata__ is no object");
    const cJSON *item;
    cJSON_ArrayForEach(item, metadata) if (!cJSON_IsString(item)) return BAD(path, "__metadata__ entry '%.80s' is no text",
                                                                             item->string);
    return TH_OK;
}

static th_status read_entries(th__st_header *h, uint64_t data_size, const char *path)
{
    size_t n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, h->json) n++;
    h->tensors = th__calloc(n + 1, sizeof *h->tensors);
    if (h->tensors == NULL) return th__pending();
    cJSON_ArrayForEach(item, h->json)
    {
        if (strcmp(item->string, "__metadata__") == 0) {
            if (h->metadata != NULL) return BAD(path, "__metadata__ appears twice");
            TH__TRY(check_metadata(item, path));
            h->metadata = item;
            continue;
        }
        th__st_tensor *t = &h->tensors[h->count++];
        t->name = item->string;
        TH__TRY(read_tensor(t, item, data_size, path));
    }
    TH__TRY(check_names(h, path));
    qsort(h->tensors, h->count, sizeof *h->tensors, by_place);
    uint64_t at = 0;
    for (size_t i = 0; i < h->count; i++) {
        const th__st_tensor *t = &h->tensors[i];
        if (t->begin != at)
            return BAD(path, "tensor '%.80s' begins at %llu, %s the data before it ends at %llu", t->name,
                       (unsigned long long)t->begin, t->begin < at ? "although" : "leaving a hole:", (unsigned long long)at);
        at = t->end;
    }
    if (at != data_size)
        return BAD(path, "the tensors cover %llu bytes, the file has %llu bytes of data", (unsigned long long)at,
                   (unsigned long long)data_size);
    return TH_OK;
}

static th_status parse(th__st_header *h, const char *text, size_t length, uint64_t data_size, const char *path)
{
    if (length == 0 || text[0] != '{') return BAD(path, "its header does not begin with '{'");
    if (memchr(text, '\0', length) != NULL) return BAD(path, "its header has a NUL byte; padding must be spaces");
    if (!th__is_utf8(text, length)) return BAD(path, "its header is not UTF-8");
    h->json = th__json_parse(text, length, path);
    if (h->json == NULL) return th__pending();
    if (!cJSON_IsObject(h->json)) return BAD(path, "its header is no object");
    return read_entries(h, data_size, path);
}

th_status th__st_read_header(th__st_header *h, const th__source *source)
{
    TH__CHECK_PENDING();
    *h = (th__st_header){0};
    unsigned char head[8];
    if (source->size < 8) return BAD(source->path, "it has %llu bytes, too few for a header", (unsigned long long)source->size);
    TH__TRY(th__source_read(source, 0, head, sizeof head));
    uint64_t length = th__le64(head);
    if (length > TH__ST_HEADER_MAX)
        return BAD(source->path, "its header would have %llu bytes, at most 100 MB are allowed", (unsigned long long)length);
    if (length > source->size - 8)
        return BAD(source->path, "its header has %llu bytes, the file only %llu (truncated?)", (unsigned long long)length,
                   (unsigned long long)source->size);
    char *text = th__malloc((size_t)length + 1);
    if (text == NULL) return th__pending();
    th_status status = th__source_read(source, 8, text, (size_t)length);
    text[length] = '\0';
    h->data_start = 8 + length;
    if (status == TH_OK) status = parse(h, text, (size_t)length, source->size - h->data_start, source->path);
    free(text);
    if (status != TH_OK) th__st_free_header(h);
    return status;
}

void th__st_free_header(th__st_header *h)
{
    for (size_t i = 0; i < h->count; i++) free(h->tensors[i].shape);
    free(h->tensors);
    cJSON_Delete(h->json);
    *h = (th__st_header){0};
}

const th__st_tensor *th__st_find(const th__st_header *h, const char *name)
{
    for (size_t i = 0; i < h->count; i++)
        if (strcmp(h->tensors[i].name, name) == 0) return &h->tensors[i];
    return NULL;
}

/* ---------------------------------------------------------------- writing */

/* The reference library's order of dtypes: large alignment first. */
static int rank_of(const th__dtype_info *dtype)
{
    static const char *const order[] = {"BOOL", "U8",   "I8",  "F8_E5M2", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16", "U16",
                                        "F16",  "BF16", "I32", "U32",     "F32",     "C64",         "F64",         "I64", "U64"};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (strcmp(order[i], dtype->safetensors) == 0) return (int)i;
    return -1;
}

static int by_rank(const void *a, const void *b)
{
    const th__st_tensor *x = a, *y = b;
    int difference = rank_of(y->dtype) - rank_of(x->dtype);
    return difference != 0 ? difference : strcmp(x->name, y->name);
}

static th_status put_text(th__buffer *out, const char *text) { return th__buffer_add(out, text, strlen(text)); }

/* JSON as the reference library writes it, so that equal contents make equal files. */
static th_status put_string(th__buffer *out, const char *text)
{
    TH__TRY(put_text(out, "\""));
    for (const char *p = text; *p != '\0'; p++) {
        char escape[8];
        const char *plain = "\"\\\n\r\t\b\f", *letter = "\"\\nrtbf", *at = strchr(plain, *p);
        if (at != NULL)
            snprintf(escape, sizeof escape, "\\%c", letter[at - plain]);
        else if ((unsigned char)*p < 0x20)
            snprintf(escape, sizeof escape, "\\u%04x", *p);
        else
            snprintf(escape, sizeof escape, "%c", *p);
        TH__TRY(put_text(out, escape));
    }
    return put_text(out, "\"");
}

static th_status put_metadata(th__buffer *out, const cJSON *metadata)
{
    const cJSON *item;
    TH__TRY(put_text(out, "\"__metadata__\":{"));
    cJSON_ArrayForEach(item, metadata)
    {
        if (item != metadata->child) TH__TRY(put_text(out, ","));
        TH__TRY(put_string(out, item->string));
        TH__TRY(put_text(out, ":"));
        TH__TRY(put_string(out, item->valuestring));
    }
    return put_text(out, "}");
}

static th_status put_tensor(th__buffer *out, const th__st_tensor *t)
{
    char number[64];
    TH__TRY(put_string(out, t->name));
    snprintf(number, sizeof number, ":{\"dtype\":\"%s\",\"shape\":[", t->dtype->safetensors);
    TH__TRY(put_text(out, number));
    for (size_t i = 0; i < t->dim; i++) {
        snprintf(number, sizeof number, "%s%lld", i > 0 ? "," : "", (long long)t->shape[i]);
        TH__TRY(put_text(out, number));
    }
    snprintf(number, sizeof number, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)t->begin, (unsigned long long)t->end);
    return put_text(out, number);
}

th_status th__st_make_header(th__st_tensor *tensors, size_t count, const cJSON *metadata, th__buffer *out)
{
    uint64_t at = 0;
    qsort(tensors, count, sizeof *tensors, by_rank);
    unsigned char length[8] = {0};
    size_t start = out->size;
    TH__TRY(th__buffer_add(out, length, 8));
    TH__TRY(put_text(out, "{"));
    if (metadata != NULL) TH__TRY(put_metadata(out, metadata));
    for (size_t i = 0; i < count; i++) {
        th__st_tensor *t = &tensors[i];
        t->begin = at;
        t->end = t->dtype->size;
        for (size_t k = 0; k < t->dim; k++) t->end *= (uint64_t)t->shape[k];
        at = t->end += at;
        if (i > 0 || metadata != NULL) TH__TRY(put_text(out, ","));
        TH__TRY(put_tensor(out, t));
    }
    TH__TRY(put_text(out, "}"));
    while ((out->size - start) % 8 != 0) TH__TRY(put_text(out, " "));
    if (out->size - start - 8 > TH__ST_HEADER_MAX)
        return TH__FAIL(TH_ERR_VALUE, "a safetensors header of %zu bytes, at most 100 MB are allowed", out->size - start);
    th__put64(out->data + start, out->size - start - 8);
    return TH_OK;
}
