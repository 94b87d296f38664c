/* dist/wire.c: a nested value as bytes, to send it to another rank of the same program. Not a file format: no versions, host order. */
#include "dist/internal.h"
#include <cfabric/ops.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 200

/* ---------------------------------------------------------------- writing */

typedef struct writer {
    char *data;
    size_t size, capacity;
} writer;

static th_status put(writer *w, const void *data, size_t size)
{
    if (w->size + size > w->capacity) {
        size_t capacity = (w->size + size) * 2;
        char *grown = th__realloc(w->data, capacity, 1);
        if (!grown) return th__pending();
        w->data = grown;
        w->capacity = capacity;
    }
    if (size) memcpy(w->data + w->size, data, size);
    w->size += size;
    return TH_OK;
}

static th_status put_byte(writer *w, int byte) { return put(w, &(char){(char)byte}, 1); }
static th_status put_int(writer *w, int64_t v) { return put(w, &v, sizeof v); }

static th_status put_text(writer *w, const void *text, size_t size)
{
    TH__TRY(put_int(w, (int64_t)size));
    return put(w, text, size);
}

static th_status put_tensor(writer *w, th_tensor *tensor)
{
    TH_SCOPE();
    TH_NO_GRAD();
    th_tensor *plain = th_detach(tensor);
    if (plain && th_dtype_is_complex(th_dtype_of(plain))) plain = th_resolve_conj(plain);
    plain = th_contiguous(th_to_device(plain, TH_CPU, th_dtype_of(tensor)));
    TH__CHECK_PENDING();
    th_ints sizes = th_sizes(plain);
    TH__TRY(put_int(w, th_dtype_of(plain)));
    TH__TRY(put_text(w, sizes.data, sizes.size * sizeof *sizes.data));
    size_t bytes = th_nbytes(plain);
    return put_text(w, bytes ? th_data_ptr(plain) : NULL, bytes);
}

static th_status put_value(writer *w, th_value *value, int depth);

static th_status put_items(writer *w, th_value *value, int depth)
{
    bool dict = th_value_kind_of(value) == TH_VALUE_DICT;
    size_t n = th_value_size(value);
    TH__TRY(put_int(w, (int64_t)n));
    for (size_t i = 0; i < n; i++) {
        int64_t number = 0;
        const char *key = dict ? th_value_key_at(value, i, &number) : NULL;
        if (dict) {
            TH__TRY(put_byte(w, key != NULL));
            TH__TRY(key ? put_text(w, key, strlen(key)) : put_int(w, number));
        }
        TH__TRY(put_value(w, th_value_at(value, i), depth + 1));
    }
    return TH_OK;
}

static th_status put_object(writer *w, th_value *value, int depth)
{
    void *object = NULL;
    const th_stateful *ops = th_value_as_object(value, &object);
    th_value *state = ops && ops->state_dict ? ops->state_dict(object) : NULL;
    TH__CHECK_PENDING();
    th_status status = put_value(w, state, depth + 1);
    th_value_free(state);
    return status;
}

static th_status put_value(writer *w, th_value *value, int depth)
{
    th_value_kind kind = th_value_kind_of(value);
    size_t size = 0;
    const char *text;
    if (depth > MAX_DEPTH) return th__fail(TH_ERR_VALUE, "broadcast", "a value nested more than %d levels deep", MAX_DEPTH);
    if (kind == TH_VALUE_OBJECT) return put_object(w, value, depth);
    TH__TRY(put_byte(w, kind));
    switch (kind) {
    case TH_VALUE_BOOL: return put_byte(w, th_value_as_bool(value, false));
    case TH_VALUE_INT: return put_int(w, th_value_as_int(value, 0));
    case TH_VALUE_DOUBLE: return put(w, &(double){th_value_as_double(value, 0)}, sizeof(double));
    case TH_VALUE_STRING: text = th_value_as_string(value, ""); return put_text(w, text, strlen(text));
    case TH_VALUE_BYTES: text = th_value_as_bytes(value, &size); return put_text(w, text, size);
    case TH_VALUE_TENSOR: return put_tensor(w, th_value_as_tensor(value));
    case TH_VALUE_LIST: case TH_VALUE_TUPLE: case TH_VALUE_DICT: return put_items(w, value, depth);
    default: return TH_OK;
    }
}

th_status th__wire_encode(th_value *value, char **data, size_t *size)
{
    writer w = {0};
    if (put_value(&w, value, 0) != TH_OK) {
        free(w.data);
        return th__pending();
    }
    *data = w.data;
    *size = w.size;
    return TH_OK;
}

/* ---------------------------------------------------------------- reading */

typedef struct reader {
    const char *at, *end;
} reader;

static const char *take(reader *r, size_t size)
{
    if ((size_t)(r->end - r->at) < size) {
        th__fail(TH_ERR_DATA, "broadcast", "a value from another rank is cut off");
        return NULL;
    }
    const char *data = r->at;
    r->at += size;
    return data;
}

static int64_t take_int(reader *r)
{
    int64_t v = 0;
    const char *data = take(r, sizeof v);
    if (data) memcpy(&v, data, sizeof v);
    return v;
}

static const char *take_text(reader *r, size_t *size)
{
    int64_t n = take_int(r);
    *size = n > 0 ? (size_t)n : 0;
    return take(r, *size);
}

static th_value *take_tensor(reader *r)
{
    TH_SCOPE();
    int64_t dtype = take_int(r), sizes[64];
    size_t size_bytes, bytes;
    const char *dims = take_text(r, &size_bytes), *data = dims ? take_text(r, &bytes) : NULL;
    if (!data) return NULL;
    if (size_bytes > sizeof sizes) return th__fail(TH_ERR_DATA, "broadcast", "a tensor from another rank has too many dimensions"), NULL;
    memcpy(sizes, dims, size_bytes);
    th_tensor *t = th_zeros((th_ints){sizes, size_bytes / sizeof *sizes}, .dtype = (th_dtype)dtype);
    if (!t) return NULL;
    if (th_nbytes(t) != bytes) return th__fail(TH_ERR_DATA, "broadcast", "a tensor from another rank has the wrong length"), NULL;
    if (bytes) memcpy(th_data_ptr(t), data, bytes);
    return th_value_tensor(t);
}

static th_value *take_value(reader *r);

static th_value *take_string(reader *r)
{
    size_t size;
    const char *text = take_text(r, &size);
    char *copy = text ? th__malloc(size + 1) : NULL;
    if (!copy) return NULL;
    memcpy(copy, text, size);
    copy[size] = '\0';
    th_value *value = th_value_string(copy);
    free(copy);
    return value;
}

static th_status take_entry(reader *r, th_value *dict)
{
    const char *named = take(r, 1);
    if (!named) return th__pending();
    if (!*named) {
        int64_t number = take_int(r);
        return th_value_set_int(dict, number, take_value(r));
    }
    th_value *key = take_string(r);
    th_status status = key ? th_value_set(dict, th_value_as_string(key, ""), take_value(r)) : th__pending();
    th_value_free(key);
    return status;
}

static th_value *take_items(reader *r, th_value *container, bool dict)
{
    int64_t n = take_int(r);
    for (int64_t i = 0; container && i < n && th__pending() == TH_OK; i++) {
        if (dict)
            take_entry(r, container);
        else
            th_value_append(container, take_value(r));
    }
    if (th__pending() == TH_OK) return container;
    th_value_free(container);
    return NULL;
}

static th_value *take_value(reader *r)
{
    size_t size;
    double number;
    const char *kind = take(r, 1), *data;
    if (!kind) return NULL;
    switch (*kind) {
    case TH_VALUE_NONE: return th_value_none();
    case TH_VALUE_BOOL: data = take(r, 1); return data ? th_value_bool(*data != 0) : NULL;
    case TH_VALUE_INT: return th_value_int(take_int(r));
    case TH_VALUE_DOUBLE:
        data = take(r, sizeof number);
        if (!data) return NULL;
        memcpy(&number, data, sizeof number);
        return th_value_double(number);
    case TH_VALUE_STRING: return take_string(r);
    case TH_VALUE_BYTES: data = take_text(r, &size); return data ? th_value_bytes(data, size) : NULL;
    case TH_VALUE_TENSOR: return take_tensor(r);
    case TH_VALUE_LIST: return take_items(r, th_value_list(), false);
    case TH_VALUE_TUPLE: return take_items(r, th_value_tuple(), false);
    case TH_VALUE_DICT: return take_items(r, th_value_dict(), true);
    default: return th__fail(TH_ERR_DATA, "broadcast", "a value from another rank has the unknown kind %d", *kind), NULL;
    }
}

th_value *th__wire_decode(const char *data, size_t size)
{
    reader r = {data, data + size};
    return take_value(&r);
}
