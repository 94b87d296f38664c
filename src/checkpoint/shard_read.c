/* checkpoint/shard_read.c: boxes of tensors and plain values from a sharded checkpoint. */
#include "checkpoint/sharded.h"

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/format/assemble.h"
#include "checkpoint/from_nodes.h"
#include "checkpoint/internal.h"
#include <cfabric/autograd.h>
#include <cfabric/scope.h>

#include <stdlib.h>
#include <string.h>

struct th__shards {
    char *folder;
    th__dcp_index index;
    th__dcp_files files;
};

th__shards *th__shards_open(const char *folder)
{
    TH__CHECK_PENDING_NULL();
    if (th__checkpoint_kind_of(folder) != TH__CHECKPOINT_SHARDED) {
        th__fail(TH_ERR_VALUE, "fabric_load",
                 "the path '%s' does not point to a valid checkpoint: a folder with " TH__DCP_EXTRA " in it is expected", folder);
        return NULL;
    }
    th__shards *shards = th__calloc(1, sizeof *shards);
    if (shards == NULL) return NULL;
    shards->folder = th__strdup(folder);
    shards->files.folder = shards->folder;
    char *path = shards->folder == NULL ? NULL : th__path_join(folder, TH__DCP_INDEX);
    if (path != NULL && !th__is_file(path))
        th__fail(TH_ERR_DATA, "fabric_load",
                 "the checkpoint '%s' is incomplete: it has no " TH__DCP_INDEX " (was its save interrupted?)", folder);
    free(path);
    if (th__pending() == TH_OK && th__dcp_read_index(&shards->index, folder) == TH_OK) return shards;
    th__shards_close(shards);
    return NULL;
}

void th__shards_close(th__shards *shards)
{
    if (shards == NULL) return;
    th__dcp_close_files(&shards->files);
    if (shards->index.arena != NULL) th__dcp_free_index(&shards->index);
    free(shards->folder);
    free(shards);
}

size_t th__shards_count(const th__shards *shards) { return shards->index.count; }

const char *th__shards_name(const th__shards *shards, size_t i)
{
    return i < shards->index.count ? shards->index.items[i].fqn : NULL;
}

th_value *th__shards_path(const th__shards *shards, size_t i)
{
    th_value *path = th_value_tuple();
    for (size_t k = 0; i < shards->index.count && k < shards->index.items[i].n_steps; k++) {
        const th__dcp_step *step = &shards->index.items[i].steps[k];
        th_value_append(path, step->text != NULL ? th_value_string(step->text) : th_value_int(step->index));
    }
    return path;
}

bool th__shards_info(const th__shards *shards, const char *name, th_dtype *dtype, th_ints *sizes)
{
    const th__dcp_item *item = th__dcp_find(&shards->index, name);
    if (item == NULL || item->dtype == NULL) return false;
    if (dtype != NULL) *dtype = item->dtype->dtype;
    if (sizes != NULL) *sizes = (th_ints){item->sizes, item->dim};
    return true;
}

static th_status check_box(const th__dcp_item *item, th_ints offsets, th_ints sizes)
{
    bool inside = offsets.size == item->dim && sizes.size == item->dim;
    for (size_t d = 0; d < item->dim && inside; d++)
        inside = offsets.data[d] >= 0 && sizes.data[d] >= 0 && offsets.data[d] <= item->sizes[d] &&
                 item->sizes[d] - offsets.data[d] >= sizes.data[d];
    return inside ? TH_OK : th__fail(TH_ERR_VALUE, "sharded", "a piece outside of '%s'", item->fqn);
}

th_tensor *th__shards_read(th__shards *shards, const char *name, th_ints offsets, th_ints sizes)
{
    TH__CHECK_PENDING_NULL();
    const th__dcp_item *item = th__dcp_find(&shards->index, name);
    if (item == NULL || item->dtype == NULL) {
        th__fail(TH_ERR_KEY, "fabric_load", "the checkpoint '%s' has no tensor '%s'", shards->folder, name);
        return NULL;
    }
    if (check_box(item, offsets, sizes) != TH_OK) return NULL;
    TH_SCOPE();
    uint64_t numel = 1;
    void *data;
    for (size_t d = 0; d < item->dim; d++) numel *= (uint64_t)sizes.data[d];
    th_tensor *flat = th__storage_tensor(numel, item->dtype, &data), *box = NULL;
    if (flat == NULL) return NULL;
    if (numel == 0 || th__dcp_read_box(&shards->files, item, offsets.data, sizes.data, data) == TH_OK)
        box = th_call("aten::view", TH_A(flat), TH_A_INTS(sizes));
    if (box != NULL) box = th_data(box);
    th_free(flat);
    return box == NULL ? NULL : th_escape(box);
}

th_value *th__shards_value(th__shards *shards, const char *name)
{
    TH__CHECK_PENDING_NULL();
    const th__dcp_item *item = th__dcp_find(&shards->index, name);
    if (item == NULL || item->dtype != NULL) {
        th__fail(TH_ERR_KEY, "fabric_load", "the checkpoint '%s' has no value '%s'", shards->folder, name);
        return NULL;
    }
    const th__source *source = th__dcp_file(&shards->files, item->chunks[0].file);
    th__torch_file file;
    if (source == NULL || th__torch_file_open(&file, source, item->chunks[0].offset, item->chunks[0].length) != TH_OK)
        return NULL;
    th__loader *loader = th__loader_new(&file);
    th_value *value = loader == NULL ? NULL : th__loader_value(loader, file.root);
    th__loader_free(loader);
    th__torch_file_close(&file);
    return value;
}

th_value *th__shards_meta(const char *folder)
{
    TH__CHECK_PENDING_NULL();
    char *path = th__path_join(folder, TH__DCP_EXTRA);
    th_value *meta = path == NULL ? NULL : th__checkpoint_read(path);
    free(path);
    return meta;
}
