/* checkpoint/format/dcp_write.c: builds and writes .metadata, object for object as PyTorch pickles it. */
#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/format/dcp_index.h"
#include "checkpoint/format/pickle_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define META "torch.distributed.checkpoint.metadata"

/* ---------------------------------------------------------------- building */

th_status th__dcp_new_index(th__dcp_index *index)
{
    *index = (th__dcp_index){.arena = th__arena_new()};
    return index->arena == NULL ? th__pending() : TH_OK;
}

void th__dcp_free_index(th__dcp_index *index)
{
    th__arena_free(index->arena);
    free(index->items);
    *index = (th__dcp_index){0};
}

static void *copy(th__dcp_index *index, const void *data, size_t size)
{
    void *to = th__arena_alloc(index->arena, size + 1);
    if (to != NULL && size > 0) memcpy(to, data, size);
    if (to != NULL) ((char *)to)[size] = '\0';
    return to;
}

/* "model", 0, "weight" -> "model.0.weight" */
static const char *join(th__dcp_index *index, const th__dcp_step *steps, size_t n)
{
    th__buffer text = {0};
    for (size_t i = 0; i < n; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)steps[i].index);
        const char *part = steps[i].text != NULL ? steps[i].text : number;
        if (i > 0) th__buffer_add(&text, ".", 1);
        th__buffer_add(&text, part, strlen(part));
    }
    const char *joined = th__pending() == TH_OK ? copy(index, text.data, text.size) : NULL;
    th__buffer_free(&text);
    return joined;
}

th__dcp_item *th__dcp_add_item(th__dcp_index *index, const th__dcp_step *steps, size_t n_steps, const th__dtype_info *dtype,
                               const int64_t *sizes, size_t dim)
{
    TH__CHECK_PENDING_NULL();
    th__dcp_step *own = copy(index, steps, n_steps * sizeof *steps);
    for (size_t i = 0; own != NULL && i < n_steps; i++)
        if (own[i].text != NULL && (own[i].text = copy(index, own[i].text, strlen(own[i].text))) == NULL) return NULL;
    if (own == NULL) return NULL;
    th__dcp_item item = {.fqn = join(index, steps, n_steps), .steps = own, .n_steps = n_steps, .dtype = dtype, .dim = dim};
    item.sizes = copy(index, sizes, dim * sizeof *sizes);
    if (item.fqn == NULL || item.sizes == NULL) return NULL;
    return TH__PUSH(index->items, index->count, index->capacity, item) == 0 ? &index->items[index->count - 1] : NULL;
}

th_status th__dcp_add_chunk(th__dcp_index *index, th__dcp_item *item, const th__dcp_chunk *chunk)
{
    if ((item->n_chunks & (item->n_chunks - 1)) == 0) { /* full at powers of two */
        th__dcp_chunk *grown = th__arena_alloc(index->arena, (item->n_chunks == 0 ? 1 : item->n_chunks * 2) * sizeof *grown);
        if (grown == NULL) return th__pending();
        if (item->n_chunks > 0) memcpy(grown, item->chunks, item->n_chunks * sizeof *grown);
        item->chunks = grown;
    }
    th__dcp_chunk own = *chunk;
    own.file = copy(index, chunk->file, strlen(chunk->file));
    own.offsets = copy(index, chunk->offsets, item->dim * sizeof *chunk->offsets);
    own.sizes = copy(index, chunk->sizes, item->dim * sizeof *chunk->sizes);
    if (own.file == NULL || own.offsets == NULL || own.sizes == NULL) return th__pending();
    item->chunks[item->n_chunks++] = own;
    return TH_OK;
}

/* ---------------------------------------------------------------- writing */

/* An object without arguments: class.__new__(class), then a dict of its members follows, then 'b'. */
static th_status open_object(th__pickler *p, const char *module, const char *class_name)
{
    TH__TRY(th__pickle_global(p, module, class_name));
    return th__buffer_add(&p->out, ")\x81", 2);
}

static th_status open_members(th__pickler *p, const char *module, const char *class_name)
{
    TH__TRY(open_object(p, module, class_name));
    return th__pickle_open(p, '{');
}

static th_status close_members(th__pickler *p)
{
    TH__TRY(th__pickle_close(p, '{'));
    return th__pickle_op(p, 'b');
}

static th_status put_properties(th__pickler *p, const th__dtype_info *dtype)
{
    TH__TRY(open_object(p, META, "TensorProperties"));
    TH__TRY(th__pickle_open(p, '('));
    TH__TRY(th__pickle_global(p, "torch", dtype->name));
    TH__TRY(th__pickle_global(p, "torch.serialization", "_get_layout"));
    TH__TRY(th__pickle_text(p, "torch.strided"));
    TH__TRY(th__buffer_add(&p->out, "\x85R", 2));
    TH__TRY(th__pickle_bool(p, false));
    TH__TRY(th__pickle_global(p, META, "_MEM_FORMAT_ENCODING"));
    TH__TRY(th__pickle_int(p, 0));
    TH__TRY(th__buffer_add(&p->out, "\x85R", 2));
    TH__TRY(th__pickle_bool(p, false));
    TH__TRY(th__pickle_close(p, '('));
    return th__pickle_op(p, 'b');
}

static th_status put_chunk(th__pickler *p, const th__dcp_item *item, const th__dcp_chunk *chunk)
{
    TH__TRY(open_members(p, META, "ChunkStorageMetadata"));
    TH__TRY(th__pickle_text(p, "offsets"));
    TH__TRY(th__pickle_size(p, chunk->offsets, item->dim));
    TH__TRY(th__pickle_text(p, "sizes"));
    TH__TRY(th__pickle_size(p, chunk->sizes, item->dim));
    return close_members(p);
}

static th_status put_item(th__pickler *p, const th__dcp_item *item)
{
    if (item->dtype == NULL) return open_object(p, META, "BytesStorageMetadata");
    TH__TRY(open_members(p, META, "TensorStorageMetadata"));
    TH__TRY(th__pickle_text(p, "properties"));
    TH__TRY(put_properties(p, item->dtype));
    TH__TRY(th__pickle_text(p, "size"));
    TH__TRY(th__pickle_size(p, item->sizes, item->dim));
    TH__TRY(th__pickle_text(p, "chunks"));
    TH__TRY(th__pickle_open(p, '['));
    for (size_t i = 0; i < item->n_chunks; i++) TH__TRY(put_chunk(p, item, &item->chunks[i]));
    TH__TRY(th__pickle_close(p, '['));
    return close_members(p);
}

static th_status put_steps(th__pickler *p, const th__dcp_item *item)
{
    TH__TRY(th__pickle_open(p, '('));
    for (size_t i = 0; i < item->n_steps; i++)
        TH__TRY(item->steps[i].text != NULL ? th__pickle_text(p, item->steps[i].text) : th__pickle_int(p, item->steps[i].index));
    return th__pickle_close(p, '(');
}

static th_status put_place(th__pickler *p, const th__dcp_item *item, size_t i)
{
    const th__dcp_chunk *chunk = &item->chunks[i];
    TH__TRY(open_members(p, META, "MetadataIndex"));
    TH__TRY(th__pickle_text(p, "fqn"));
    TH__TRY(th__pickle_text(p, item->fqn));
    TH__TRY(th__pickle_text(p, "index"));
    TH__TRY(item->dtype != NULL ? th__pickle_int(p, (int64_t)i) : th__pickle_none(p));
    if (item->dtype != NULL) {
        TH__TRY(th__pickle_text(p, "offset"));
        TH__TRY(th__pickle_size(p, chunk->offsets, item->dim));
    }
    TH__TRY(close_members(p));
    TH__TRY(open_members(p, "torch.distributed.checkpoint.filesystem", "_StorageInfo"));
    TH__TRY(th__pickle_text(p, "relative_path"));
    TH__TRY(th__pickle_text(p, chunk->file));
    TH__TRY(th__pickle_text(p, "offset"));
    TH__TRY(th__pickle_int(p, (int64_t)chunk->offset));
    TH__TRY(th__pickle_text(p, "length"));
    TH__TRY(th__pickle_int(p, (int64_t)chunk->length));
    return close_members(p);
}

static th_status put_index(th__pickler *p, const th__dcp_index *index)
{
    TH__TRY(th__pickle_begin(p));
    TH__TRY(open_members(p, META, "Metadata"));
    TH__TRY(th__pickle_text(p, "state_dict_metadata"));
    TH__TRY(th__pickle_open(p, '{'));
    for (size_t i = 0; i < index->count; i++) {
        TH__TRY(th__pickle_text(p, index->items[i].fqn));
        TH__TRY(put_item(p, &index->items[i]));
    }
    TH__TRY(th__pickle_close(p, '{'));
    TH__TRY(th__pickle_text(p, "planner_data"));
    TH__TRY(th__pickle_open(p, '{'));
    for (size_t i = 0; i < index->count; i++) {
        TH__TRY(th__pickle_text(p, index->items[i].fqn));
        TH__TRY(put_steps(p, &index->items[i]));
    }
    TH__TRY(th__pickle_close(p, '{'));
    TH__TRY(th__pickle_text(p, "storage_data"));
    TH__TRY(th__pickle_open(p, '{'));
    for (size_t i = 0; i < index->count; i++)
        for (size_t c = 0; c < index->items[i].n_chunks; c++) TH__TRY(put_place(p, &index->items[i], c));
    TH__TRY(th__pickle_close(p, '{'));
    TH__TRY(th__pickle_text(p, "storage_meta"));
    TH__TRY(th__pickle_none(p));
    TH__TRY(th__pickle_text(p, "version"));
    TH__TRY(th__pickle_none(p));
    TH__TRY(close_members(p));
    return th__pickle_end(p);
}

th_status th__dcp_write_index(const th__dcp_index *index, const char *folder)
{
    TH__CHECK_PENDING();
    th__pickler p = {0};
    char *path = th__path_join(folder, TH__DCP_INDEX);
    th_status status = path == NULL ? th__pending() : put_index(&p, index);
    if (status == TH_OK) status = th__write_file(path, p.out.data, p.out.size);
    free(path);
    th__pickle_free(&p);
    return status;
}
