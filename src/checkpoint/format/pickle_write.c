/* checkpoint/format/pickle_write.c: opcodes for plain values, and the calls that rebuild a tensor. */
#include "checkpoint/format/pickle_write.h"

#include "checkpoint/format/text.h"

#include <string.h>

th_status th__pickle_op(th__pickler *pickler, char opcode) { return th__buffer_add(&pickler->out, &opcode, 1); }

static th_status put(th__pickler *pickler, const void *data, size_t size) { return th__buffer_add(&pickler->out, data, size); }

th_status th__pickle_begin(th__pickler *pickler)
{
    *pickler = (th__pickler){0};
    return put(pickler, "\x80\x02", 2);
}

th_status th__pickle_end(th__pickler *pickler) { return th__pickle_op(pickler, '.'); }

void th__pickle_free(th__pickler *pickler) { th__buffer_free(&pickler->out); }

th_status th__pickle_none(th__pickler *pickler) { return th__pickle_op(pickler, 'N'); }

th_status th__pickle_bool(th__pickler *pickler, bool v) { return th__pickle_op(pickler, v ? '\x88' : '\x89'); }

th_status th__pickle_int(th__pickler *pickler, int64_t v)
{
    unsigned char b[10];
    if (v >= 0 && v < 256) {
        b[0] = 'K';
        b[1] = (unsigned char)v;
        return put(pickler, b, 2);
    }
    if (v >= INT32_MIN && v <= INT32_MAX) {
        b[0] = 'J';
        th__put32(b + 1, (uint32_t)v);
        return put(pickler, b, 5);
    }
    b[0] = 0x8a;
    b[1] = 8;
    th__put64(b + 2, (uint64_t)v);
    return put(pickler, b, 10);
}

th_status th__pickle_double(th__pickler *pickler, double v)
{
    uint64_t bits;
    unsigned char b[9] = {'G'};
    memcpy(&bits, &v, sizeof bits);
    for (int i = 0; i < 8; i++) b[1 + i] = (unsigned char)(bits >> (56 - 8 * i));
    return put(pickler, b, sizeof b);
}

static th_status put_text(th__pickler *pickler, const char *text, size_t size)
{
    unsigned char head[5] = {'X'};
    if (size > UINT32_MAX) return TH__FAIL(TH_ERR_VALUE, "a text of %zu bytes; at most 4 GiB are possible", size);
    th__put32(head + 1, (uint32_t)size);
    TH__TRY(put(pickler, head, sizeof head));
    return put(pickler, text, size);
}

th_status th__pickle_text_n(th__pickler *pickler, const char *text, size_t size)
{
    /* Python refuses what is not UTF-8, so a file with it could be read by nobody. */
    if (!th__is_utf8(text, size))
        return TH__FAIL(TH_ERR_VALUE, "the text '%.*s' is not UTF-8, so it cannot be saved", size < 60 ? (int)size : 60, text);
    return put_text(pickler, text, size);
}

th_status th__pickle_text(th__pickler *pickler, const char *text) { return th__pickle_text_n(pickler, text, strlen(text)); }

/* Protocol 2 has no bytes: Python writes them as latin-1 text to be encoded, and so do we. */
th_status th__pickle_bytes(th__pickler *pickler, const void *data, size_t size)
{
    const unsigned char *p = data;
    size_t high = 0;
    unsigned char head[5] = {'X'};
    for (size_t i = 0; i < size; i++) high += p[i] >> 7;
    if (size + high > UINT32_MAX) return TH__FAIL(TH_ERR_VALUE, "%zu bytes in one value; use a uint8 tensor", size);
    TH__TRY(th__pickle_global(pickler, "_codecs", "encode"));
    th__put32(head + 1, (uint32_t)(size + high));
    TH__TRY(put(pickler, head, sizeof head));
    for (size_t i = 0; i < size; i++) {
        unsigned char two[2] = {(unsigned char)(0xc0 | p[i] >> 6), (unsigned char)(0x80 | (p[i] & 0x3f))};
        TH__TRY(p[i] < 0x80 ? put(pickler, p + i, 1) : put(pickler, two, 2));
    }
    TH__TRY(put_text(pickler, "latin1", 6));
    return put(pickler, "\x86R", 2);
}

th_status th__pickle_global(th__pickler *pickler, const char *module, const char *name)
{
    for (size_t i = 0; i < pickler->n_globals; i += 2) {
        const char *const *g = &pickler->globals[i];
        if (strcmp(g[1], name) == 0 && strcmp(g[0], module) == 0) {
            unsigned char get[2] = {'h', (unsigned char)(i / 2)};
            return put(pickler, get, 2);
        }
    }
    TH__TRY(th__pickle_op(pickler, 'c'));
    TH__TRY(put(pickler, module, strlen(module)));
    TH__TRY(th__pickle_op(pickler, '\n'));
    TH__TRY(put(pickler, name, strlen(name)));
    TH__TRY(th__pickle_op(pickler, '\n'));
    if (pickler->n_globals == sizeof pickler->globals / sizeof *pickler->globals) return TH_OK;
    unsigned char memo[2] = {'q', (unsigned char)(pickler->n_globals / 2)};
    pickler->globals[pickler->n_globals++] = module;
    pickler->globals[pickler->n_globals++] = name;
    return put(pickler, memo, 2);
}

th_status th__pickle_open(th__pickler *pickler, char kind)
{
    if (kind == '[') TH__TRY(th__pickle_op(pickler, ']'));
    if (kind == '{') TH__TRY(th__pickle_op(pickler, '}'));
    return th__pickle_op(pickler, '(');
}

th_status th__pickle_close(th__pickler *pickler, char kind)
{
    return th__pickle_op(pickler, kind == '[' ? 'e' : kind == '{' ? 'u' : 't');
}

th_status th__pickle_ints(th__pickler *pickler, const int64_t *values, size_t n)
{
    if (n == 0) return th__pickle_op(pickler, ')');
    TH__TRY(th__pickle_open(pickler, '('));
    for (size_t i = 0; i < n; i++) TH__TRY(th__pickle_int(pickler, values[i]));
    return th__pickle_close(pickler, '(');
}

th_status th__pickle_size(th__pickler *pickler, const int64_t *values, size_t n)
{
    TH__TRY(th__pickle_global(pickler, "torch", "Size"));
    TH__TRY(th__pickle_ints(pickler, values, n));
    return put(pickler, "\x85R", 2);
}

static th_status put_storage(th__pickler *pickler, const th__pickle_tensor_spec *t)
{
    bool typed = t->dtype->storage != NULL;
    TH__TRY(th__pickle_open(pickler, '('));
    TH__TRY(th__pickle_text(pickler, "storage"));
    TH__TRY(typed ? th__pickle_global(pickler, "torch", t->dtype->storage)
                  : th__pickle_global(pickler, "torch.storage", "UntypedStorage"));
    TH__TRY(th__pickle_text(pickler, t->key));
    TH__TRY(th__pickle_text(pickler, t->device));
    TH__TRY(th__pickle_int(pickler, (int64_t)(typed ? t->storage_numel : t->storage_numel * t->dtype->size)));
    TH__TRY(th__pickle_close(pickler, '('));
    return th__pickle_op(pickler, 'Q');
}

th_status th__pickle_tensor(th__pickler *pickler, const th__pickle_tensor_spec *t)
{
    bool typed = t->dtype->storage != NULL;
    TH__TRY(th__pickle_global(pickler, "torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3"));
    TH__TRY(th__pickle_open(pickler, '('));
    TH__TRY(put_storage(pickler, t));
    TH__TRY(th__pickle_int(pickler, t->offset));
    TH__TRY(th__pickle_ints(pickler, t->sizes, t->dim));
    TH__TRY(th__pickle_ints(pickler, t->strides, t->dim));
    TH__TRY(th__pickle_bool(pickler, t->requires_grad));
    TH__TRY(th__pickle_global(pickler, "collections", "OrderedDict"));
    TH__TRY(put(pickler, ")R", 2));
    if (!typed) TH__TRY(th__pickle_global(pickler, "torch", t->dtype->name));
    TH__TRY(th__pickle_close(pickler, '('));
    return th__pickle_op(pickler, 'R');
}
