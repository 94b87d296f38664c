/* checkpoint/globals.c: functions and classes that Python checkpoints commonly mention, turned into plain values without running
 * them. */
#include "checkpoint/globals.h"

#include "base/memory.h"
#include <cfabric/scope.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool th__is_known_name(const th__node *global)
{
    static const char *const names[] = {"torch.strided", "torch.contiguous_format", "torch.channels_last",
                                        "torch.preserve_format"};
    if (global->count > 6 && memcmp(global->v.text, "torch.", 6) == 0 &&
        th__dtype_by_name(global->v.text + 6, global->count - 6) != NULL)
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (th__node_is_global(global, names[i])) return true;
    return false;
}

static th_value *wrong(th__loader *loader, const char *what)
{
    th__fail(TH_ERR_DATA, "th_load", "'%s': %s is described wrongly", th__loader_path(loader), what);
    return NULL;
}

/* _codecs.encode(text, "latin1"): how protocol 2 spells bytes. Each character is one byte, in UTF-8 here. [owned] free() */
static unsigned char *latin1(th__loader *loader, const th__node *call, size_t *size)
{
    const th__node *text = th__node_arg(call, 0), *coding = th__node_arg(call, 1);
    if (text == NULL || text->kind != TH__NODE_TEXT ||
        !(th__node_is_text(coding, "latin1") || th__node_is_text(coding, "latin-1"))) {
        wrong(loader, "a bytes value");
        return NULL;
    }
    unsigned char *out = th__malloc(text->count + 1);
    if (out == NULL) return NULL;
    const unsigned char *p = (const unsigned char *)text->v.text, *end = p + text->count;
    size_t n = 0;
    while (p < end) {
        if (*p < 0x80) {
            out[n++] = *p++;
        } else if ((*p == 0xc2 || *p == 0xc3) && end - p >= 2 && (p[1] & 0xc0) == 0x80) {
            out[n++] = (unsigned char)((*p & 3) << 6 | (p[1] & 0x3f));
            p += 2;
        } else {
            free(out);
            wrong(loader, "a bytes value");
            return NULL;
        }
    }
    *size = n;
    return out;
}

static th_value *bytes_value(th__loader *loader, const th__node *call)
{
    size_t size;
    unsigned char *data = latin1(loader, call, &size);
    th_value *value = data == NULL ? NULL : th_value_bytes(data, size);
    free(data);
    return value;
}

static th_value *bytearray_value(th__loader *loader, const th__node *call)
{
    const th__node *first = th__node_arg(call, 0);
    if (first == NULL) return th_value_bytes("", 0);
    if (first->kind == TH__NODE_BYTES) return th_value_bytes(first->v.text, first->count);
    return bytes_value(
        loader, th__node_is_call(first, "_codecs.encode") ? first : call); /* bytearray(text, "latin-1") has the same form */
}

static th_value *device_value(th__loader *loader, const th__node *call)
{
    const th__node *type = th__node_arg(call, 0);
    int64_t index;
    char text[48], name[32];
    if (type == NULL || type->kind != TH__NODE_TEXT || type->count >= sizeof name) return wrong(loader, "a torch.device");
    th__node_show(type, name, sizeof name);
    if (th__node_as_int(th__node_arg(call, 1), &index))
        snprintf(text, sizeof text, "%s:%" PRId64, name, index);
    else
        snprintf(text, sizeof text, "%s", name);
    return th_value_string(text);
}

/* There is no complex value: a tensor without dimensions stands for it. */
static th_value *complex_value(th__loader *loader, const th__node *call)
{
    const th__node *re = th__node_arg(call, 0), *im = th__node_arg(call, 1);
    if (re == NULL || im == NULL || re->kind != TH__NODE_FLOAT || im->kind != TH__NODE_FLOAT)
        return wrong(loader, "a complex number");
    TH_SCOPE();
    th_tensor *tensor = th_tensor_scalar(th_scalar_complex(re->v.d, im->v.d), TH_COMPLEX128);
    return tensor == NULL ? NULL : th_value_tensor(tensor);
}

/* pathlib.PosixPath("/", "data", "x") */
static th_value *path_value(th__loader *loader, const th__node *call)
{
    char text[4096];
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; th__node_arg(call, i) != NULL; i++) {
        const th__node *part = th__node_arg(call, i);
        bool slash = used > 0 && text[used - 1] != '/';
        if (part->kind != TH__NODE_TEXT || part->count + slash >= sizeof text - used ||
            memchr(part->v.text, '\0', part->count) != NULL)
            return wrong(loader, "a path");
        if (slash) text[used++] = '/';
        memcpy(text + used, part->v.text, part->count);
        used += part->count;
        text[used] = '\0';
    }
    return th_value_string(text);
}

/* numpy.core.multiarray.scalar(dtype("f8"), bytes): a metric that was logged as a NumPy number. */
static th_value *numpy_scalar(th__loader *loader, const th__node *call)
{
    const th__node *type = th__node_arg(call, 0), *data = th__node_arg(call, 1), *name = th__node_arg(type, 0);
    unsigned char *owned = NULL;
    const unsigned char *bytes = NULL;
    size_t size = 0;
    if (data != NULL && data->kind == TH__NODE_BYTES) {
        bytes = (const unsigned char *)data->v.text;
        size = data->count;
    } else if (th__node_is_call(data, "_codecs.encode")) {
        bytes = owned = latin1(loader, data, &size);
        if (owned == NULL) return NULL;
    }
    th_value *value = NULL;
    char kind[4] = "";
    if (th__node_is_call(type, "numpy.dtype") && name != NULL && name->kind == TH__NODE_TEXT && name->count < sizeof kind &&
        bytes != NULL)
        memcpy(kind, name->v.text, name->count);
    uint64_t bits = 0;
    for (size_t i = size < 8 ? size : 8; i-- > 0;) bits = bits << 8 | bytes[i];
    if (strcmp(kind, "f8") == 0 && size == 8) {
        double d;
        memcpy(&d, &bits, 8);
        value = th_value_double(d);
    } else if (strcmp(kind, "f4") == 0 && size == 4) {
        uint32_t half = (uint32_t)bits;
        float f;
        memcpy(&f, &half, 4);
        value = th_value_double((double)f);
    } else if (strcmp(kind, "b1") == 0 && size == 1) {
        value = th_value_bool(bits != 0);
    } else if ((kind[0] == 'i' || kind[0] == 'u') && size >= 1 && size <= 8 && kind[1] == (char)('0' + size)) {
        if (kind[0] == 'i' && size < 8 && bits >> (8 * size - 1)) bits |= ~UINT64_C(0) << (8 * size);
        value = th_value_int((int64_t)bits);
    } else if (th__pending() == TH_OK) {
        wrong(loader, "a NumPy number (only real ones and ints are supported)");
    }
    free(owned);
    return value;
}

th_value *th__convert_known_call(th__loader *loader, const th__node *call, bool *known)
{
    static const struct {
        const char *name;
        th_value *(*convert)(th__loader *loader, const th__node *call);
    } table[] = {
        {"_codecs.encode", bytes_value},
        {"builtins.bytearray", bytearray_value},
        {"builtins.complex", complex_value},
        {"torch.device", device_value},
        {"pathlib.PosixPath", path_value},
        {"pathlib.PurePosixPath", path_value},
        {"pathlib.WindowsPath", path_value},
        {"pathlib._local.PosixPath", path_value},
        {"numpy.core.multiarray.scalar", numpy_scalar},
        {"numpy._core.multiarray.scalar", numpy_scalar},
    };
    *known = true;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (th__node_is_call(call, table[i].name)) return table[i].convert(loader, call);
    *known = false;
    return NULL;
}
