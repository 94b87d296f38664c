/* tensor/value_tree.c: whole-tree work on values: copy, map, compare, text. */
#include "tensor/value_internal.h"

#include "base/memory.h"
#include <cfabric/autograd.h>
#include <cfabric/ops.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 200 }; /* deeper trees are an error: they are cyclic or hostile */

static th_value *copy_tensor(const th_value *value, bool clone)
{
    if (!clone) return th_value_tensor(value->u.tensor);
    TH_SCOPE();
    TH_NO_GRAD();
    return th_value_tensor(th_clone(th_detach(value->u.tensor)));
}

static th_value *copy(const th_value *value, bool clone, int depth)
{
    if (depth > MAX_DEPTH) {
        th__fail(TH_ERR_VALUE, "th_value_copy", "values nest deeper than %d", MAX_DEPTH);
        return NULL;
    }
    switch (value->kind) {
    case TH_VALUE_NONE: return th_value_none();
    case TH_VALUE_BOOL: return th_value_bool(value->u.i != 0);
    case TH_VALUE_INT: return th_value_int(value->u.i);
    case TH_VALUE_DOUBLE: return th_value_double(value->u.d);
    case TH_VALUE_STRING: return th_value_string(value->u.bytes.data);
    case TH_VALUE_BYTES: return th_value_bytes(value->u.bytes.data, value->u.bytes.size);
    case TH_VALUE_TENSOR: return copy_tensor(value, clone);
    case TH_VALUE_OBJECT: return th_value_object(value->u.object.ops, value->u.object.pointer);
    default: break;
    }
    th_value *result = value->kind == TH_VALUE_DICT ? th_value_dict() : value->kind == TH_VALUE_LIST ? th_value_list() : th_value_tuple();
    for (size_t i = 0; result != NULL && i < value->u.items.count; i++) {
        th_value *item = copy(value->u.items.data[i], clone, depth + 1);
        th_status status;
        if (value->kind != TH_VALUE_DICT) status = th_value_append(result, item);
        else if (value->u.items.keys[i].text != NULL) status = th_value_set(result, value->u.items.keys[i].text, item);
        else status = th_value_set_int(result, value->u.items.keys[i].number, item);
        if (status == TH_OK) continue;
        th_value_free(result);
        return NULL;
    }
    return result;
}

th_value *th_value_copy(const th_value *value, bool clone_tensors)
{
    TH__CHECK_PENDING_NULL();
    return value == NULL ? th_value_none() : copy(value, clone_tensors, 0);
}

static th_status map(th_value *value, th_tensor *(*fn)(th_tensor *, void *), void *user, int depth)
{
    if (depth > MAX_DEPTH) return th__fail(TH_ERR_VALUE, "th_value_map_tensors", "values nest deeper than %d", MAX_DEPTH);
    if (value->kind == TH_VALUE_TENSOR) {
        int scope = th_scope_push();
        th_tensor *result = fn(value->u.tensor, user);
        if (result != NULL && result != value->u.tensor) {
            th_tensor *own = th_retain(result);
            if (own != NULL) {
                th_free(value->u.tensor);
                value->u.tensor = own;
            }
        } else if (result == NULL && th__pending() == TH_OK) {
            th__fail(TH_ERR_CALLBACK, "th_value_map_tensors", "the callback returned NULL");
        }
        th_scope_pop(scope);
        return th__pending();
    }
    for (size_t i = 0; i < th_value_size(value); i++) TH__TRY(map(value->u.items.data[i], fn, user, depth + 1));
    return TH_OK;
}

th_status th_value_map_tensors(th_value *value, th_tensor *(*fn)(th_tensor *tensor, void *user), void *user)
{
    TH__CHECK_PENDING();
    return value == NULL ? TH_OK : map(value, fn, user, 0);
}

/* ---------------------------------------------------------------- comparing */

static bool equal_tensors(th_tensor *a, th_tensor *b)
{
    TH_SCOPE();
    th_ints sa = th_sizes(a), sb = th_sizes(b);
    if (th_dtype_of(a) != th_dtype_of(b) || sa.size != sb.size) return false;
    for (size_t i = 0; i < sa.size; i++)
        if (sa.data[i] != sb.data[i]) return false;
    size_t bytes = th_nbytes(a);
    if (bytes == 0) return true;
    void *pa = th_data_ptr(th_contiguous(th_detach(a))), *pb = th_data_ptr(th_contiguous(th_detach(b)));
    return pa != NULL && pb != NULL && memcmp(pa, pb, bytes) == 0;
}

static bool equal(const th_value *a, const th_value *b, int depth)
{
    if (th_value_kind_of(a) != th_value_kind_of(b) || depth > MAX_DEPTH) return false;
    switch (th_value_kind_of(a)) {
    case TH_VALUE_NONE: return true;
    case TH_VALUE_BOOL:
    case TH_VALUE_INT: return a->u.i == b->u.i;
    case TH_VALUE_DOUBLE: return a->u.d == b->u.d || (isnan(a->u.d) && isnan(b->u.d));
    case TH_VALUE_STRING:
    case TH_VALUE_BYTES:
        return a->u.bytes.size == b->u.bytes.size && memcmp(a->u.bytes.data, b->u.bytes.data, a->u.bytes.size) == 0;
    case TH_VALUE_TENSOR: return equal_tensors(a->u.tensor, b->u.tensor);
    case TH_VALUE_OBJECT: return a->u.object.pointer == b->u.object.pointer;
    default: break;
    }
    if (a->u.items.count != b->u.items.count) return false;
    for (size_t i = 0; i < a->u.items.count; i++) {
        const th_value *other = b->u.items.data[i];
        if (a->kind == TH_VALUE_DICT) {
            const struct th__value_key *key = &a->u.items.keys[i];
            other = key->text != NULL ? th_value_get(b, key->text) : th_value_get_int(b, key->number);
            if (other == NULL) return false;
        }
        if (!equal(a->u.items.data[i], other, depth + 1)) return false;
    }
    return true;
}

bool th_value_equal(const th_value *a, const th_value *b) { return equal(a, b, 0); }

/* ---------------------------------------------------------------- text */

static void write_tensor(FILE *out, th_tensor *t)
{
    th_ints sizes = th_sizes(t);
    fprintf(out, "tensor(%s, [", th_dtype_name(th_dtype_of(t)));
    for (size_t i = 0; i < sizes.size; i++) fprintf(out, "%s%" PRId64, i > 0 ? ", " : "", sizes.data[i]);
    fputs("])", out);
}

static void write_value(FILE *out, const th_value *v, int depth)
{
    static const char *const brackets[] = {"[]", "()", "{}"};
    switch (th_value_kind_of(v)) {
    case TH_VALUE_NONE: fputs("None", out); return;
    case TH_VALUE_BOOL: fputs(v->u.i != 0 ? "True" : "False", out); return;
    case TH_VALUE_INT: fprintf(out, "%" PRId64, v->u.i); return;
    case TH_VALUE_DOUBLE: fprintf(out, "%.17g", v->u.d); return;
    case TH_VALUE_STRING: fprintf(out, "'%s'", v->u.bytes.data); return;
    case TH_VALUE_BYTES: fprintf(out, "bytes(%zu)", v->u.bytes.size); return;
    case TH_VALUE_TENSOR: write_tensor(out, v->u.tensor); return;
    case TH_VALUE_OBJECT: fprintf(out, "<%s>", v->u.object.ops->type); return;
    default: break;
    }
    const char *bracket = brackets[v->kind - TH_VALUE_LIST];
    fputc(bracket[0], out);
    for (size_t i = 0; i < v->u.items.count && depth < MAX_DEPTH; i++) {
        if (i > 0) fputs(", ", out);
        if (v->kind == TH_VALUE_DICT) {
            const struct th__value_key *key = &v->u.items.keys[i];
            if (key->text != NULL) fprintf(out, "'%s': ", key->text);
            else fprintf(out, "%" PRId64 ": ", key->number);
        }
        write_value(out, v->u.items.data[i], depth + 1);
    }
    if (v->kind == TH_VALUE_TUPLE && v->u.items.count == 1) fputc(',', out);
    fputc(bracket[1], out);
}

char *th_value_to_string(const th_value *value)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) {
        TH__FAIL(TH_ERR_MEMORY, "out of memory");
        return NULL;
    }
    write_value(out, value, 0);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
