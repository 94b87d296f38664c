/* checkpoint/format/assemble.c: opens chunks and copies boxes between them and a whole tensor, run by run. */
#include "checkpoint/format/assemble.h"

#include "base/fs.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1024 * 1024 };

/* ---------------------------------------------------------------- files */

static void close_file(struct th__dcp_file *file)
{
    th__source_close(&file->source);
    free(file->name);
    free(file);
}

const th__source *th__dcp_file(th__dcp_files *files, const char *name)
{
    TH__CHECK_PENDING_NULL();
    for (size_t i = 0; i < files->count; i++)
        if (strcmp(files->files[i]->name, name) == 0) return &files->files[i]->source;
    struct th__dcp_file *file = th__calloc(1, sizeof *file);
    if (file == NULL) return NULL;
    file->source.fd = -1;
    file->name = th__strdup(name);
    char *path = file->name == NULL ? NULL : th__path_join(files->folder, name);
    if (path != NULL) th__source_open(&file->source, path);
    free(path);
    if (th__pending() == TH_OK && TH__PUSH(files->files, files->count, files->capacity, file) == 0) return &file->source;
    close_file(file);
    return NULL;
}

void th__dcp_close_files(th__dcp_files *files)
{
    for (size_t i = 0; i < files->count; i++) close_file(files->files[i]);
    free(files->files);
    files->files = NULL;
    files->count = files->capacity = 0;
}

/* ---------------------------------------------------------------- chunks */

static uint64_t numel_of(const int64_t *sizes, size_t dim)
{
    uint64_t n = 1;
    for (size_t i = 0; i < dim; i++) n *= (uint64_t)sizes[i];
    return n;
}

static bool is_dense(const th__tensor_layout *l)
{
    int64_t expected = 1;
    for (size_t i = l->dim; i-- > 0;) {
        if (l->sizes[i] != 1 && l->strides[i] != expected) return false;
        expected *= l->sizes[i];
    }
    return true;
}

/* A strided chunk (channels-last, say) is put into row-major order in memory. */
static th_status gather(th__dcp_data *data, size_t element)
{
    const th__tensor_layout *l = &data->layout;
    unsigned char *storage = th__malloc((size_t)data->storage.nbytes + 1);
    data->copy = th__malloc((size_t)l->numel * element + 1);
    th_status status =
        data->copy == NULL || storage == NULL ? th__pending() : th__torch_file_read(&data->archive, &data->storage, storage);
    int64_t index[TH__DIM_MAX] = {0};
    for (int64_t i = 0; status == TH_OK && i < l->numel; i++) {
        int64_t at = l->offset;
        for (size_t d = 0; d < l->dim; d++) at += index[d] * l->strides[d];
        memcpy(data->copy + (size_t)i * element, storage + (size_t)at * element, element);
        for (size_t d = l->dim; d-- > 0;) {
            if (++index[d] < l->sizes[d]) break;
            index[d] = 0;
        }
    }
    free(storage);
    return status;
}

static th_status bad_chunk(const th__dcp_item *item, const th__dcp_chunk *chunk, const char *why)
{
    return th__fail(TH_ERR_DATA, "sharded", "'%s' at byte %llu: the chunk of '%s' %s", chunk->file,
                    (unsigned long long)chunk->offset, item->fqn, why);
}

static th_status read_chunk(th__dcp_data *data, const th__dcp_item *item, const th__dcp_chunk *chunk, const char *path)
{
    const th__node *root = data->archive.root;
    if (th__node_is_call(root, "torch._utils._rebuild_parameter")) root = th__node_arg(root, 0);
    TH__TRY(th__read_tensor_layout(root, &data->layout, path));
    TH__TRY(th__torch_file_storage(&data->archive, data->layout.storage, &data->storage));
    const th__dtype_info *dtype = data->layout.dtype != NULL ? data->layout.dtype : data->storage.dtype;
    if (dtype->dtype != item->dtype->dtype) return bad_chunk(item, chunk, "has another dtype than the index says");
    if (data->layout.dim != item->dim || memcmp(data->layout.sizes, chunk->sizes, item->dim * sizeof *chunk->sizes) != 0)
        return bad_chunk(item, chunk, "has other sizes than the index says");
    if (data->layout.extent > data->storage.nbytes / dtype->size) return bad_chunk(item, chunk, "reaches beyond its storage");
    if (data->archive.big_endian) return bad_chunk(item, chunk, "is big-endian, which is not supported here");
    TH__TRY(th__torch_file_verify_rest(&data->archive));
    data->dense = is_dense(&data->layout);
    data->at = data->storage.at + (uint64_t)data->layout.offset * dtype->size;
    return data->dense || data->layout.numel == 0 ? TH_OK : gather(data, dtype->size);
}

th_status th__dcp_open_chunk(th__dcp_data *data, th__dcp_files *files, const th__dcp_item *item, const th__dcp_chunk *chunk)
{
    *data = (th__dcp_data){0};
    const th__source *source = th__dcp_file(files, chunk->file);
    if (source == NULL) return th__pending();
    if (chunk->offset > source->size || source->size - chunk->offset < chunk->length)
        return bad_chunk(item, chunk, "lies beyond the end of the file, which is truncated");
    TH__TRY(th__torch_file_open(&data->archive, source, chunk->offset, chunk->length));
    th_status status = read_chunk(data, item, chunk, source->path);
    if (status != TH_OK) th__dcp_close_chunk(data);
    return status;
}

void th__dcp_close_chunk(th__dcp_data *data)
{
    th__torch_file_close(&data->archive);
    free(data->copy);
    *data = (th__dcp_data){0};
}

th_status th__dcp_chunk_bytes(const th__dcp_data *data, uint64_t from, void *out, size_t size)
{
    if (data->dense) return th__source_read(data->archive.source, data->at + from, out, size);
    memcpy(out, data->copy + from, size);
    return TH_OK;
}

/* ---------------------------------------------------------------- boxes */

/* Where a run of bytes goes. */
typedef th_status (*sink_run)(void *user, uint64_t at, const th__dcp_data *data, uint64_t from, size_t size);

/* Visits the runs in which `chunk` meets the box, as (place in the box, place in the chunk, bytes). Returns the elements through
 * `met`. */
static th_status visit_runs(const th__dcp_item *item, const th__dcp_chunk *chunk, const th__dcp_data *data,
                            const int64_t *offsets, const int64_t *sizes, sink_run run, void *user)
{
    int64_t low[TH__DIM_MAX], n[TH__DIM_MAX], index[TH__DIM_MAX] = {0};
    size_t dim = item->dim, element = item->dtype->size, outer = dim;
    for (size_t d = 0; d < dim; d++) {
        int64_t high = chunk->offsets[d] + chunk->sizes[d], end = offsets[d] + sizes[d];
        low[d] = chunk->offsets[d] > offsets[d] ? chunk->offsets[d] : offsets[d];
        n[d] = (high < end ? high : end) - low[d];
        if (n[d] <= 0) return TH_OK;
    }
    /* The last dimensions that both sides hold completely form one run with the one before them. */
    uint64_t run_length = 1;
    while (outer > 0) {
        outer--;
        run_length *= (uint64_t)n[outer];
        if (n[outer] != chunk->sizes[outer] || n[outer] != sizes[outer]) break;
    }
    for (;;) {
        uint64_t at = 0, from = 0;
        for (size_t d = 0; d < dim; d++) {
            int64_t place = low[d] + (d < outer ? index[d] : 0);
            at = at * (uint64_t)sizes[d] + (uint64_t)(place - offsets[d]);
            from = from * (uint64_t)chunk->sizes[d] + (uint64_t)(place - chunk->offsets[d]);
        }
        TH__TRY(run(user, at * element, data, from * element, (size_t)run_length * element));
        size_t d = outer;
        while (d > 0 && ++index[d - 1] == n[d - 1]) index[--d] = 0;
        if (d == 0) return TH_OK;
    }
}

static uint64_t overlap(const th__dcp_item *item, const th__dcp_chunk *chunk, const int64_t *offsets, const int64_t *sizes)
{
    uint64_t total = 1;
    for (size_t d = 0; d < item->dim; d++) {
        int64_t low = chunk->offsets[d] > offsets[d] ? chunk->offsets[d] : offsets[d];
        int64_t a = chunk->offsets[d] + chunk->sizes[d], b = offsets[d] + sizes[d], high = a < b ? a : b;
        if (high <= low) return 0;
        total *= (uint64_t)(high - low);
    }
    return total;
}

static th_status check_cover(const th__dcp_item *item, const int64_t *offsets, const int64_t *sizes)
{
    uint64_t covered = 0, wanted = numel_of(sizes, item->dim);
    for (size_t i = 0; i < item->n_chunks; i++) covered += overlap(item, &item->chunks[i], offsets, sizes);
    if (covered == wanted) return TH_OK;
    return th__fail(TH_ERR_DATA, "sharded", "'%s': its chunks hold %llu of %llu elements", item->fqn, (unsigned long long)covered,
                    (unsigned long long)wanted);
}

static th_status for_box(th__dcp_files *files, const th__dcp_item *item, const int64_t *offsets, const int64_t *sizes,
                         sink_run run, void *user)
{
    TH__TRY(check_cover(item, offsets, sizes));
    for (size_t i = 0; i < item->n_chunks; i++) {
        th__dcp_data data;
        if (overlap(item, &item->chunks[i], offsets, sizes) == 0) continue;
        TH__TRY(th__dcp_open_chunk(&data, files, item, &item->chunks[i]));
        th_status status = visit_runs(item, &item->chunks[i], &data, offsets, sizes, run, user);
        th__dcp_close_chunk(&data);
        TH__TRY(status);
    }
    return TH_OK;
}

static th_status run_to_memory(void *user, uint64_t at, const th__dcp_data *data, uint64_t from, size_t size)
{
    return th__dcp_chunk_bytes(data, from, (unsigned char *)user + at, size);
}

th_status th__dcp_read_box(th__dcp_files *files, const th__dcp_item *item, const int64_t *offsets, const int64_t *sizes,
                           void *out)
{
    TH__CHECK_PENDING();
    return for_box(files, item, offsets, sizes, run_to_memory, out);
}

/* ---------------------------------------------------------------- records */

typedef struct recording {
    th__sink *sink;
    uint64_t start; /* of the record's data in the sink */
    unsigned char *piece;
} recording;

static th_status run_to_record(void *user, uint64_t at, const th__dcp_data *data, uint64_t from, size_t size)
{
    recording *r = user;
    while (size > 0) {
        size_t n = size < PIECE ? size : PIECE;
        TH__TRY(th__dcp_chunk_bytes(data, from, r->piece, n));
        TH__TRY(th__sink_patch(r->sink, r->start + at, r->piece, n));
        at += n;
        from += n;
        size -= n;
    }
    return TH_OK;
}

/* The runs come in any order, so the checksum is taken from the finished record. */
th_status th__dcp_write_record(th__dcp_files *files, const th__dcp_item *item, th__zip_writer *zip)
{
    TH__CHECK_PENDING();
    int64_t zero[TH__DIM_MAX] = {0};
    uint64_t nbytes = numel_of(item->sizes, item->dim) * item->dtype->size;
    recording r = {.sink = zip->sink, .piece = th__malloc(PIECE)};
    if (r.piece == NULL) return th__pending();
    th_status status = th__sink_reserve(zip->sink, nbytes, &r.start);
    if (status == TH_OK) status = for_box(files, item, zero, item->sizes, run_to_record, &r);
    for (uint64_t done = 0; done < nbytes && status == TH_OK;) {
        size_t n = nbytes - done < PIECE ? (size_t)(nbytes - done) : PIECE;
        status = th__sink_read_back(zip->sink, r.start + done, r.piece, n);
        if (status == TH_OK) zip->records[zip->count - 1].crc = th__crc32(zip->records[zip->count - 1].crc, r.piece, n);
        done += n;
    }
    free(r.piece);
    return status == TH_OK ? th__zip_add_end(zip) : status;
}
