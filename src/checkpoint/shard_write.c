/* checkpoint/shard_write.c: one rank's data file, and rank 0's commit. */
#include "checkpoint/sharded.h"

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/format/dcp_index.h"
#include "checkpoint/internal.h"
#include "checkpoint/plan.h"
#include <cfabric/scope.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct th__shard {
    th__atomic_file file;
    th__sink sink;
    char name[48];
    th_value *items; /* a list of dicts: path, dtype, sizes, offsets, piece, file, offset, length */
};

/* ---------------------------------------------------------------- kinds of checkpoints */

th__checkpoint_kind th__checkpoint_kind_of(const char *path)
{
    if (!th__path_exists(path)) return TH__CHECKPOINT_NONE;
    if (!th__is_dir(path)) return TH__CHECKPOINT_FILE;
    char *extra = th__path_join(path, TH__DCP_EXTRA);
    bool sharded = extra != NULL && th__is_file(extra);
    free(extra);
    return sharded ? TH__CHECKPOINT_SHARDED : TH__CHECKPOINT_FOLDER;
}

/* "__<rank>_<number>.distcp"; the number, or -1. */
static int number_of(const char *name)
{
    int rank, number, end = 0;
    if (sscanf(name, "__%d_%d.distcp%n", &rank, &number, &end) < 2 || end == 0 || name[end] != '\0') return -1;
    return rank >= 0 && number >= 0 ? number : -1;
}

static bool is_ours(const char *name)
{
    return number_of(name) >= 0 || strcmp(name, TH__DCP_INDEX) == 0 || strcmp(name, TH__DCP_EXTRA) == 0 ||
           th__is_temporary_name(name);
}

/* Removes our files; the folder too when nothing else is in it, so a user's file in it survives. */
static th_status remove_sharded(const char *folder)
{
    th__strings names = {0};
    bool foreign = false;
    TH__TRY(th__list_dir(folder, &names));
    for (size_t i = 0; i < names.count; i++) foreign |= !is_ours(names.items[i]);
    th_status status = TH_OK;
    if (foreign)
        status = th__fail(TH_ERR_IO, "fabric_save",
                          "'%s' is a sharded checkpoint with other files in it; it is not replaced by a file", folder);
    else
        status = th__remove_tree(folder);
    th__strings_free(&names);
    return status;
}

th_status th__checkpoint_prepare(const char *path, bool sharded)
{
    TH__CHECK_PENDING();
    switch (th__checkpoint_kind_of(path)) {
    case TH__CHECKPOINT_NONE: return TH_OK;
    case TH__CHECKPOINT_FILE:
        if (!sharded) return TH_OK;
        if (unlink(path) == 0) return TH_OK;
        return th__fail(TH_ERR_IO, "fabric_save", "cannot remove the file '%s': %s", path, strerror(errno));
    case TH__CHECKPOINT_SHARDED: return sharded ? TH_OK : remove_sharded(path);
    case TH__CHECKPOINT_FOLDER: break;
    }
    if (sharded) return TH_OK;
    return th__fail(TH_ERR_IO, "fabric_save", "the checkpoint path exists and is a directory: '%s'", path);
}

/* ---------------------------------------------------------------- one rank */

int th__shards_next(const char *folder)
{
    if (th__pending() != TH_OK) return -1;
    if (th__checkpoint_kind_of(folder) == TH__CHECKPOINT_NONE) return 0;
    int next = 0;
    th__strings names = {0};
    char *index_path = th__path_join(folder, TH__DCP_INDEX);
    if (index_path != NULL && th__is_file(index_path)) {
        th__dcp_index index;
        if (th__dcp_read_index(&index, folder) == TH_OK) {
            for (size_t i = 0; i < index.count; i++)
                for (size_t c = 0; c < index.items[i].n_chunks; c++)
                    if (number_of(index.items[i].chunks[c].file) >= next) next = number_of(index.items[i].chunks[c].file) + 1;
            th__dcp_free_index(&index);
        } else if (th_error() == TH_ERR_DATA) { /* a damaged one is replaced: any number that is not there yet */
            th_error_clear();
            th__list_dir(folder, &names);
            for (size_t i = 0; i < names.count; i++)
                if (number_of(names.items[i]) >= next) next = number_of(names.items[i]) + 1;
        }
    }
    th__strings_free(&names);
    free(index_path);
    return th__pending() == TH_OK ? next : -1;
}

th__shard *th__shard_begin(const char *folder, int rank, int number)
{
    TH__CHECK_PENDING_NULL();
    th__shard *shard = th__calloc(1, sizeof *shard);
    if (shard == NULL) return NULL;
    shard->file = TH__ATOMIC_NONE;
    snprintf(shard->name, sizeof shard->name, "__%d_%d.distcp", rank, number);
    char *path = th__path_join(folder, shard->name);
    if (path != NULL && (shard->items = th_value_list()) != NULL) th__atomic_open(&shard->file, path);
    free(path);
    if (th__pending() != TH_OK) {
        th__shard_abort(shard);
        return NULL;
    }
    th__sink_init(&shard->sink, &shard->file);
    return shard;
}

void th__shard_abort(th__shard *shard)
{
    if (shard == NULL) return;
    th__atomic_abort(&shard->file);
    th__sink_free(&shard->sink);
    th_value_free(shard->items);
    free(shard);
}

static th_value *ints_value(th_ints ints)
{
    th_value *tuple = th_value_tuple();
    for (size_t i = 0; i < ints.size; i++) th_value_append(tuple, th_value_int(ints.data[i]));
    if (th__pending() == TH_OK) return tuple;
    th_value_free(tuple);
    return NULL;
}

/* Appends an archive of `value` to the data file and describes it. */
static th_status add(th__shard *shard, th_value *path, th_value *value, th_value *item)
{
    th__plan plan;
    uint64_t start = shard->sink.at;
    th_status status = item == NULL ? th__pending() : th__plan_make(&plan, value);
    if (status == TH_OK) {
        status = th__plan_write(&plan, &shard->sink);
        th__plan_free(&plan);
    }
    if (status == TH_OK) th_value_set(item, "path", th_value_retain(path));
    if (status == TH_OK) th_value_set(item, "file", th_value_string(shard->name));
    if (status == TH_OK) th_value_set(item, "offset", th_value_int((int64_t)start));
    if (status == TH_OK) th_value_set(item, "length", th_value_int((int64_t)(shard->sink.at - start)));
    if (th__pending() == TH_OK) return th_value_append(shard->items, item);
    th_value_free(item);
    return th__pending();
}

th_status th__shard_add(th__shard *shard, th_value *path, th_tensor *piece, th_ints sizes, th_ints offsets)
{
    TH__CHECK_PENDING();
    TH_SCOPE();
    /* PyTorch reads a whole storage per piece, so a view is made dense first. */
    th_tensor *dense = th_call("aten::contiguous", TH_A(piece));
    if (dense != NULL && th_storage_offset(dense) != 0) dense = th_call("aten::clone", TH_A(dense));
    if (dense != NULL) dense = th_call("aten::detach", TH_A(dense));
    th_value *value = dense == NULL ? NULL : th_value_tensor(dense), *item = value == NULL ? NULL : th_value_dict();
    if (item != NULL) {
        th_value_set(item, "dtype", th_value_string(th_dtype_name(th_dtype_of(dense))));
        th_value_set(item, "sizes", ints_value(sizes));
        th_value_set(item, "offsets", ints_value(offsets));
        th_value_set(item, "piece", ints_value(th_sizes(dense)));
    }
    th_status status = add(shard, path, value, item);
    th_value_free(value);
    return status;
}

th_status th__shard_add_value(th__shard *shard, th_value *path, th_value *value)
{
    TH__CHECK_PENDING();
    return add(shard, path, value, th_value_dict());
}

th_value *th__shard_end(th__shard *shard)
{
    th_value *items = NULL;
    if (th__sink_flush(&shard->sink) == TH_OK && th__atomic_commit(&shard->file) == TH_OK) items = th_value_retain(shard->items);
    th__shard_abort(shard);
    return items;
}

/* ---------------------------------------------------------------- the commit */

enum { STEPS_MAX = 64 };

static bool read_ints(th_value *value, int64_t *out, size_t *n)
{
    *n = th_value_size(value);
    if (*n > TH__DIM_MAX) return false;
    for (size_t i = 0; i < *n; i++) out[i] = th_value_as_int(th_value_at(value, i), 0);
    return true;
}

static th_status add_part(th__dcp_index *index, th_value *item)
{
    th__dcp_step steps[STEPS_MAX];
    int64_t sizes[TH__DIM_MAX] = {0}, offsets[TH__DIM_MAX] = {0}, piece[TH__DIM_MAX] = {0};
    size_t n_steps = th_value_size(th_value_get(item, "path")), dim = 0, n;
    if (n_steps == 0 || n_steps > STEPS_MAX) return th__fail(TH_ERR_VALUE, "sharded", "a path of %zu steps", n_steps);
    for (size_t i = 0; i < n_steps; i++) {
        th_value *step = th_value_at(th_value_get(item, "path"), i);
        steps[i] = (th__dcp_step){.text = th_value_as_string(step, NULL), .index = th_value_as_int(step, 0)};
    }
    const char *name = th_value_as_string(th_value_get(item, "dtype"), NULL);
    const th__dtype_info *dtype = name == NULL ? NULL : th__dtype_by_name(name, strlen(name));
    if (!read_ints(th_value_get(item, "sizes"), sizes, &dim) || !read_ints(th_value_get(item, "offsets"), offsets, &n) ||
        !read_ints(th_value_get(item, "piece"), piece, &n))
        return th__fail(TH_ERR_VALUE, "sharded", "a tensor of too many dimensions");
    th__dcp_item *entry = NULL;
    th__dcp_item *fresh = th__dcp_add_item(index, steps, n_steps, dtype, sizes, dim);
    if (fresh == NULL) return th__pending();
    for (size_t i = 0; i + 1 < index->count && entry == NULL; i++)
        if (strcmp(index->items[i].fqn, fresh->fqn) == 0) entry = &index->items[i];
    if (entry == NULL)
        entry = fresh;
    else
        index->count--; /* another rank's piece of the same tensor */
    bool empty = false;
    for (size_t i = 0; i < dim; i++) empty |= piece[i] == 0 && sizes[i] != 0;
    if (empty) return TH_OK;
    th__dcp_chunk chunk = {.offsets = offsets,
                           .sizes = piece,
                           .file = th_value_as_string(th_value_get(item, "file"), ""),
                           .offset = (uint64_t)th_value_as_int(th_value_get(item, "offset"), 0),
                           .length = (uint64_t)th_value_as_int(th_value_get(item, "length"), 0)};
    return th__dcp_add_chunk(index, entry, &chunk);
}

/* Data files that the new index does not name. */
static void remove_unused(const char *folder, const th__dcp_index *index)
{
    th__strings names = {0};
    if (th__list_dir(folder, &names) != TH_OK) return;
    for (size_t i = 0; i < names.count; i++) {
        bool used = number_of(names.items[i]) < 0;
        for (size_t k = 0; k < index->count && !used; k++)
            for (size_t c = 0; c < index->items[k].n_chunks && !used; c++)
                used = strcmp(index->items[k].chunks[c].file, names.items[i]) == 0;
        char *path = used ? NULL : th__path_join(folder, names.items[i]);
        if (path != NULL) unlink(path);
        free(path);
    }
    th__strings_free(&names);
}

th_status th__shards_commit(const char *folder, th_value *parts, th_value *meta)
{
    TH__CHECK_PENDING();
    th__dcp_index index;
    TH__TRY(th__dcp_new_index(&index));
    th_status status = TH_OK;
    for (size_t r = 0; r < th_value_size(parts) && status == TH_OK; r++)
        for (size_t i = 0; i < th_value_size(th_value_at(parts, r)) && status == TH_OK; i++)
            status = add_part(&index, th_value_at(th_value_at(parts, r), i));
    char *extra = status == TH_OK ? th__path_join(folder, TH__DCP_EXTRA) : NULL;
    if (extra != NULL) status = th__checkpoint_write(extra, meta);
    free(extra);
    if (status == TH_OK) status = th__pending();
    if (status == TH_OK) status = th__dcp_write_index(&index, folder);
    if (status == TH_OK) {
        remove_unused(folder, &index);
        th_error_clear(); /* the checkpoint is complete; files that stayed go with the next save */
    }
    th__dcp_free_index(&index);
    return status;
}
