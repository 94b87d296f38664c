/* checkpoint/format/dcp_read.c: reads .metadata. */
#include "checkpoint/format/dcp_index.h"

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/format/pickle_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define META "torch.distributed.checkpoint.metadata."

typedef struct reading {
    th__dcp_index *index;
    const char *path;
} reading;

static th_status bad(const reading *r, const char *fqn, const char *why)
{
    return th__fail(TH_ERR_DATA, "sharded", "'%s' is damaged or not a checkpoint's index: %s%s%s", r->path,
                    fqn != NULL ? fqn : "", fqn != NULL ? ": " : "", why);
}

static const char *copy_text(const reading *r, const char *text, size_t n)
{
    char *copy = th__arena_alloc(r->index->arena, n + 1);
    if (copy == NULL) return NULL;
    if (memchr(text, '\0', n) != NULL) {
        bad(r, NULL, "a text with a NUL byte");
        return NULL;
    }
    memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

static const int64_t *copy_sizes(const reading *r, const th__node *node, size_t *n)
{
    int64_t sizes[TH__DIM_MAX];
    if (!th__node_as_sizes(node, sizes, n)) {
        bad(r, NULL, "a torch.Size is expected");
        return NULL;
    }
    int64_t *copy = th__arena_alloc(r->index->arena, (*n + 1) * sizeof *copy);
    if (copy != NULL && *n > 0) memcpy(copy, sizes, *n * sizeof *copy);
    return copy;
}

/* ---------------------------------------------------------------- state_dict_metadata */

static th_status read_tensor(const reading *r, th__dcp_item *item, const th__node *node)
{
    const th__node *state = th__node_get(node, "properties"), *dtype;
    if (state != NULL && state->kind == TH__NODE_OBJECT) state = state->state;
    dtype = th__node_arg(state, 0);
    if (dtype == NULL || dtype->kind != TH__NODE_GLOBAL || dtype->count < 7) return bad(r, item->fqn, "no dtype");
    item->dtype = th__dtype_by_name(dtype->v.text + 6, dtype->count - 6);
    if (item->dtype == NULL) return bad(r, item->fqn, "a dtype that is not supported");
    item->sizes = copy_sizes(r, th__node_get(node, "size"), &item->dim);
    if (item->sizes == NULL) return th__pending();
    int64_t bytes = item->dtype->size;
    for (size_t i = 0; i < item->dim; i++)
        if (__builtin_mul_overflow(bytes, item->sizes[i], &bytes)) return bad(r, item->fqn, "sizes that overflow");
    const th__node *chunks = th__node_get(node, "chunks");
    if (chunks == NULL || chunks->kind != TH__NODE_LIST) return bad(r, item->fqn, "no list of chunks");
    item->chunks = th__arena_alloc(r->index->arena, (chunks->count + 1) * sizeof *item->chunks);
    if (item->chunks == NULL) return th__pending();
    memset(item->chunks, 0, (chunks->count + 1) * sizeof *item->chunks);
    for (size_t i = 0; i < chunks->count; i++) {
        th__dcp_chunk *c = &item->chunks[item->n_chunks++];
        size_t n_offsets, n_sizes;
        c->offsets = copy_sizes(r, th__node_get(chunks->v.items[i], "offsets"), &n_offsets);
        c->sizes = c->offsets == NULL ? NULL : copy_sizes(r, th__node_get(chunks->v.items[i], "sizes"), &n_sizes);
        if (c->sizes == NULL) return th__pending();
        if (n_offsets != item->dim || n_sizes != item->dim) return bad(r, item->fqn, "a chunk of other dimensions");
        for (size_t d = 0; d < item->dim; d++)
            if (c->offsets[d] > item->sizes[d] || item->sizes[d] - c->offsets[d] < c->sizes[d])
                return bad(r, item->fqn, "a chunk outside the tensor");
    }
    return TH_OK;
}

/* The way to an item; without planner data the name is the only step. */
static th_status read_steps(const reading *r, th__dcp_item *item, const th__node *path)
{
    size_t n = path != NULL && (path->kind == TH__NODE_TUPLE || path->kind == TH__NODE_LIST) ? path->count : 0;
    th__dcp_step *steps = th__arena_alloc(r->index->arena, (n + 1) * sizeof *steps);
    if (steps == NULL) return th__pending();
    steps[0] = (th__dcp_step){.text = item->fqn};
    for (size_t i = 0; i < n; i++) {
        const th__node *step = path->v.items[i];
        steps[i] = (th__dcp_step){0};
        if (step->kind == TH__NODE_TEXT) {
            steps[i].text = copy_text(r, step->v.text, step->count);
            if (steps[i].text == NULL) return th__pending();
        } else if (!th__node_as_int(step, &steps[i].index) || steps[i].index < 0 || steps[i].index > 1 << 24) {
            return bad(r, item->fqn, "a path that is no path");
        }
    }
    item->steps = steps;
    item->n_steps = n == 0 ? 1 : n;
    return TH_OK;
}

static th_status read_item(const reading *r, const th__node *key, const th__node *node, const th__node *planner)
{
    if (key->kind != TH__NODE_TEXT) return bad(r, NULL, "a name that is no text");
    th__dcp_item item = {.fqn = copy_text(r, key->v.text, key->count)};
    if (item.fqn == NULL) return th__pending();
    if (th__node_is_call(node, META "TensorStorageMetadata")) {
        TH__TRY(read_tensor(r, &item, node));
    } else if (th__node_is_call(node, META "BytesStorageMetadata")) {
        item.n_chunks = 1;
        item.chunks = th__arena_alloc(r->index->arena, sizeof *item.chunks);
        if (item.chunks == NULL) return th__pending();
        *item.chunks = (th__dcp_chunk){0};
    } else {
        return bad(r, item.fqn, "neither a tensor nor bytes");
    }
    TH__TRY(read_steps(r, &item, planner));
    return TH__PUSH(r->index->items, r->index->count, r->index->capacity, item) == 0 ? TH_OK : th__pending();
}

/* ---------------------------------------------------------------- storage_data */

static int by_fqn(const void *a, const void *b) { return strcmp(((const th__dcp_item *)a)->fqn, ((const th__dcp_item *)b)->fqn); }

static th__dcp_item *find_item(const reading *r, const th__node *name)
{
    size_t low = 0, high = r->index->count;
    while (low < high && name != NULL && name->kind == TH__NODE_TEXT) {
        size_t middle = low + (high - low) / 2;
        th__dcp_item *item = &r->index->items[middle];
        size_t n = strlen(item->fqn);
        int order = memcmp(item->fqn, name->v.text, n < name->count ? n : name->count);
        if (order == 0) order = (n > name->count) - (n < name->count);
        if (order == 0) return item;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static th_status read_place(const reading *r, const th__node *key, const th__node *info)
{
    th__dcp_item *item = find_item(r, th__node_get(key, "fqn"));
    if (item == NULL) return bad(r, NULL, "data of an item that is not listed");
    int64_t offset, length, offsets[TH__DIM_MAX], hint = 0;
    size_t n = 0, at = 0;
    const th__node *file = th__node_get(info, "relative_path"), *place = th__node_get(key, "offset");
    if (file == NULL || file->kind != TH__NODE_TEXT || file->count == 0 || memchr(file->v.text, '/', file->count) != NULL ||
        file->v.text[0] == '.')
        return bad(r, item->fqn, "a data file that is no plain name");
    if (!th__node_as_int(th__node_get(info, "offset"), &offset) || !th__node_as_int(th__node_get(info, "length"), &length) ||
        offset < 0 || length < 0)
        return bad(r, item->fqn, "no place in its file");
    const th__node *descriptors = th__node_get(info, "transform_descriptors");
    if (descriptors != NULL && descriptors->kind != TH__NODE_NONE && descriptors->count > 0)
        return bad(r, item->fqn, "its data is transformed (compressed), which is not supported");
    if (item->dtype != NULL) {
        if (!th__node_as_sizes(place, offsets, &n) || n != item->dim) return bad(r, item->fqn, "data without an offset");
        bool hinted = th__node_as_int(th__node_get(key, "index"), &hint) && hint >= 0 && (uint64_t)hint < item->n_chunks;
        if (hinted && memcmp(item->chunks[hint].offsets, offsets, n * sizeof *offsets) == 0)
            at = (size_t)hint;
        else
            while (at < item->n_chunks && memcmp(item->chunks[at].offsets, offsets, n * sizeof *offsets) != 0) at++;
        if (at == item->n_chunks) return bad(r, item->fqn, "data of a chunk that is not listed");
    }
    th__dcp_chunk *c = &item->chunks[at];
    c->file = copy_text(r, file->v.text, file->count);
    c->offset = (uint64_t)offset;
    c->length = (uint64_t)length;
    return c->file == NULL ? th__pending() : TH_OK;
}

static th_status check_complete(const reading *r)
{
    for (size_t i = 0; i < r->index->count; i++)
        for (size_t c = 0; c < r->index->items[i].n_chunks; c++)
            if (r->index->items[i].chunks[c].file == NULL) return bad(r, r->index->items[i].fqn, "no data file is named for it");
    return TH_OK;
}

static th_status read_root(const reading *r, const th__node *root)
{
    if (!th__node_is_call(root, META "Metadata")) return bad(r, NULL, "it does not hold a Metadata object");
    const th__node *listed = th__node_as_dict(th__node_get(root, "state_dict_metadata")),
                   *places = th__node_as_dict(th__node_get(root, "storage_data"));
    const th__node *planner = th__node_as_dict(th__node_get(root, "planner_data"));
    if (listed == NULL || places == NULL) return bad(r, NULL, "it lists nothing");
    for (size_t i = 0; i + 1 < listed->count; i += 2) {
        /* Both dicts are written in one order: the entry is usually at the same place. */
        const th__node *path = NULL, *key = listed->v.items[i];
        if (planner != NULL && i + 1 < planner->count && key->kind == TH__NODE_TEXT &&
            planner->v.items[i]->kind == TH__NODE_TEXT && planner->v.items[i]->count == key->count &&
            memcmp(planner->v.items[i]->v.text, key->v.text, key->count) == 0)
            path = planner->v.items[i + 1];
        for (size_t k = 0; path == NULL && planner != NULL && key->kind == TH__NODE_TEXT && k + 1 < planner->count; k += 2)
            if (planner->v.items[k]->kind == TH__NODE_TEXT && planner->v.items[k]->count == key->count &&
                memcmp(planner->v.items[k]->v.text, key->v.text, key->count) == 0)
                path = planner->v.items[k + 1];
        TH__TRY(read_item(r, key, listed->v.items[i + 1], path));
    }
    qsort(r->index->items, r->index->count, sizeof *r->index->items, by_fqn);
    for (size_t i = 0; i + 1 < places->count; i += 2) TH__TRY(read_place(r, places->v.items[i], places->v.items[i + 1]));
    return check_complete(r);
}

th_status th__dcp_parse_index(th__dcp_index *index, const void *data, size_t size, const char *path)
{
    TH__CHECK_PENDING();
    TH__TRY(th__dcp_new_index(index));
    reading r = {.index = index, .path = path};
    th__arena *scratch = th__arena_new();
    th__node *root = scratch == NULL ? NULL : th__pickle_read(scratch, data, size, NULL, path);
    if (root != NULL) read_root(&r, root);
    th__arena_free(scratch);
    if (th__pending() != TH_OK) th__dcp_free_index(index);
    return th__pending();
}

th_status th__dcp_read_index(th__dcp_index *index, const char *folder)
{
    TH__CHECK_PENDING();
    size_t size = 0;
    char *path = th__path_join(folder, TH__DCP_INDEX), *data = path == NULL ? NULL : th__read_file(path, &size);
    th_status status = data == NULL ? th__pending() : th__dcp_parse_index(index, data, size, path);
    free(data);
    free(path);
    return status;
}

const th__dcp_item *th__dcp_find(const th__dcp_index *index, const char *fqn)
{
    th__node name = {.kind = TH__NODE_TEXT, .count = strlen(fqn), .v.text = fqn};
    reading r = {.index = (th__dcp_index *)index};
    return find_item(&r, &name);
}
