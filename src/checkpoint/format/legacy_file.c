/* checkpoint/format/legacy_file.c: magic number, version, machine facts, the object, the storage keys, then length and bytes of
 * each storage in that order. Nothing in it has a checksum. */
#include "checkpoint/format/legacy_file.h"

#include "base/memory.h"
#include "checkpoint/format/pickle_read.h"

#include <stdlib.h>
#include <string.h>

static const unsigned char magic[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e};

typedef struct reading {
    th__torch_file *file;
    size_t at;
    const th__node **mentions; /* persistent ids, sorted by key */
    size_t n_mentions;
} reading;

static th__node *next(reading *r)
{
    size_t used = 0;
    th__node *node =
        th__pickle_read(r->file->arena, r->file->pickle + r->at, (size_t)r->file->length - r->at, &used, r->file->source->path);
    r->at += used;
    return node;
}

static th_status check_head(reading *r)
{
    int64_t version;
    th__node *node = next(r);
    if (node == NULL) return th__pending();
    node = next(r);
    if (node == NULL) return th__pending();
    if (!th__node_as_int(node, &version) || version != 1001)
        return th__fail(TH_ERR_DATA, "th_load", "'%s': protocol version of the old format is not 1001", r->file->source->path);
    return next(r) == NULL ? th__pending() : TH_OK; /* sizes of C types and byte order: the storages are little-endian always */
}

static int compare_text(const char *a, size_t n_a, const char *b, size_t n_b)
{
    int order = memcmp(a, b, n_a < n_b ? n_a : n_b);
    return order != 0 ? order : (n_a > n_b) - (n_a < n_b);
}

static int by_mentioned_key(const void *a, const void *b)
{
    const th__node *x = th__node_arg(*(const th__node *const *)a, 2), *y = th__node_arg(*(const th__node *const *)b, 2);
    return compare_text(x->v.text, x->count, y->v.text, y->count);
}

static int by_key(const void *a, const void *b)
{
    const th__legacy_storage *x = a, *y = b;
    return compare_text(x->key->v.text, x->key->count, y->key->v.text, y->key->count);
}

/* The object mentions each storage at least once, with its class. */
static th_status collect_mentions(reading *r)
{
    size_t count = 0;
    for (const th__node *p = th__arena_persistent(r->file->arena); p != NULL; p = p->extra) count++;
    r->mentions = th__calloc(count + 1, sizeof *r->mentions);
    if (r->mentions == NULL) return th__pending();
    for (const th__node *p = th__arena_persistent(r->file->arena); p != NULL; p = p->extra) {
        const th__node *key = th__node_arg(p, 2);
        if (key != NULL && key->kind == TH__NODE_TEXT) r->mentions[r->n_mentions++] = p;
    }
    qsort(r->mentions, r->n_mentions, sizeof *r->mentions, by_mentioned_key);
    return TH_OK;
}

static th_status describe(const reading *r, const th__node *key, th__legacy_storage *out)
{
    const char *path = r->file->source->path;
    bool untyped;
    size_t low = 0, high = r->n_mentions;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const th__node *k = th__node_arg(r->mentions[middle], 2);
        int order = compare_text(k->v.text, k->count, key->v.text, key->count);
        if (order == 0) {
            const th__node *view = th__node_arg(r->mentions[middle], 5);
            if (view != NULL && view->kind != TH__NODE_NONE)
                return th__fail(TH_ERR_DATA, "th_load", "'%s': views of storages from PyTorch 0.x are not supported", path);
            out->key = key;
            return th__storage_class(r->file, th__node_arg(r->mentions[middle], 1), &out->dtype, &untyped);
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return th__fail(TH_ERR_DATA, "th_load", "'%s': a storage key that the object does not mention", path);
}

static th_status read_storages(reading *r, const th__node *keys)
{
    th__torch_file *file = r->file;
    if (keys->kind != TH__NODE_LIST)
        return th__fail(TH_ERR_DATA, "th_load", "'%s': the list of storage keys is a %s", file->source->path,
                        th__node_kind_name(keys));
    file->legacy = th__calloc(keys->count + 1, sizeof *file->legacy);
    if (file->legacy == NULL) return th__pending();
    TH__TRY(collect_mentions(r));
    uint64_t at = r->at;
    for (size_t i = 0; i < keys->count; i++) {
        th__legacy_storage *s = &file->legacy[i];
        unsigned char number[8];
        if (keys->v.items[i]->kind != TH__NODE_TEXT)
            return th__fail(TH_ERR_DATA, "th_load", "'%s': a storage key is no text", file->source->path);
        TH__TRY(describe(r, keys->v.items[i], s));
        if (file->length - at < 8)
            return th__fail(TH_ERR_DATA, "th_load", "'%s' (%llu bytes) is truncated: storage %zu of %zu is missing",
                            file->source->path, (unsigned long long)file->length, i + 1, keys->count);
        TH__TRY(th__source_read(file->source, file->offset + at, number, 8));
        s->numel = th__le64(number);
        s->offset = file->offset + at + 8;
        if (s->numel > (file->length - at - 8) / s->dtype->size)
            return th__fail(TH_ERR_DATA, "th_load", "'%s' (%llu bytes) is truncated: storage %zu of %zu has %llu elements",
                            file->source->path, (unsigned long long)file->length, i + 1, keys->count,
                            (unsigned long long)s->numel);
        at += 8 + s->numel * s->dtype->size;
        file->n_legacy++;
    }
    if (at != file->length)
        return th__fail(TH_ERR_DATA, "th_load", "'%s': %llu bytes after the last storage", file->source->path,
                        (unsigned long long)(file->length - at));
    qsort(file->legacy, file->n_legacy, sizeof *file->legacy, by_key);
    return TH_OK;
}

th_status th__legacy_open(th__torch_file *file)
{
    reading r = {.file = file};
    size_t size = (size_t)file->length;
    file->pickle_size = size;
    file->pickle = th__malloc(size + 1);
    if (file->pickle == NULL) return th__pending();
    TH__TRY(th__source_read(file->source, file->offset, file->pickle, size));
    if (size < sizeof magic || memcmp(file->pickle, magic, sizeof magic) != 0)
        return th__fail(TH_ERR_DATA, "th_load",
                        "'%s' (%zu bytes) is a pickle, but not one that torch.save wrote, or it is truncated", file->source->path,
                        size);
    if (check_head(&r) == TH_OK) {
        file->root = next(&r);
        th__node *keys = file->root == NULL ? NULL : next(&r);
        if (keys != NULL) read_storages(&r, keys);
    }
    free(r.mentions);
    return th__pending();
}

th_status th__legacy_storage_of(const th__torch_file *file, th__storage *out)
{
    th__node node = {.v.text = out->key, .count = out->key_length};
    th__legacy_storage key = {.key = &node};
    const th__legacy_storage *s = file->n_legacy == 0 ? NULL : bsearch(&key, file->legacy, file->n_legacy, sizeof key, by_key);
    if (s == NULL || s->numel * s->dtype->size != out->nbytes)
        return th__fail(TH_ERR_DATA, "th_load", "'%s': a storage is missing or has another size", file->source->path);
    out->at = s->offset;
    return TH_OK;
}
