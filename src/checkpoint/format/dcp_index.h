/* checkpoint/format/dcp_index.h: `.metadata` of PyTorch's distributed checkpoints: which piece of which tensor lies where.
 *
 * A folder holds .metadata, data files __<rank>_<n>.distcp (torch.save archives one after the other) and Fabric's meta.pt
 * (everything that is no tensor of the model or the optimizer). */
#ifndef FABRIC_CHECKPOINT_DCP_INDEX_H
#define FABRIC_CHECKPOINT_DCP_INDEX_H

#include "checkpoint/format/dtype.h"
#include "checkpoint/format/node.h"
#include "checkpoint/format/tensor_layout.h"

#define TH__DCP_INDEX ".metadata"
#define TH__DCP_EXTRA "meta.pt"

typedef struct th__dcp_chunk {
    const int64_t *offsets, *sizes; /* dim of the item each */
    const char *file;               /* relative */
    uint64_t offset, length;        /* of the archive in it */
} th__dcp_chunk;

/* One step of the way to an item through nested dicts (text) and lists (text NULL). */
typedef struct th__dcp_step {
    const char *text;
    int64_t index;
} th__dcp_step;

typedef struct th__dcp_item {
    const char *fqn; /* the steps joined by '.' */
    const th__dcp_step *steps;
    size_t n_steps;
    const th__dtype_info *dtype; /* NULL: a pickled object, in the only chunk */
    const int64_t *sizes;
    size_t dim;
    th__dcp_chunk *chunks;
    size_t n_chunks;
} th__dcp_item;

typedef struct th__dcp_index {
    th__arena *arena; /* owns everything, texts too */
    th__dcp_item *items;
    size_t count, capacity;
} th__dcp_index;

/* Reads FOLDER/.metadata. Every item has all its chunks, which lie inside it, and the files named are plain names in the folder.
 * On failure there is nothing to free. */
th_status th__dcp_read_index(th__dcp_index *index, const char *folder);
/* The same from memory; `path` is for messages. */
th_status th__dcp_parse_index(th__dcp_index *index, const void *data, size_t size, const char *path);
void th__dcp_free_index(th__dcp_index *index);
/* NULL if absent. */
const th__dcp_item *th__dcp_find(const th__dcp_index *index, const char *fqn);

/* Building: an empty index, and an item in it whose texts and numbers are copied; chunks are added to it. NULL with an error. */
th_status th__dcp_new_index(th__dcp_index *index);
th__dcp_item *th__dcp_add_item(th__dcp_index *index, const th__dcp_step *steps, size_t n_steps, const th__dtype_info *dtype,
                               const int64_t *sizes, size_t dim);
th_status th__dcp_add_chunk(th__dcp_index *index, th__dcp_item *item, const th__dcp_chunk *chunk);
/* Writes FOLDER/.metadata, atomically: with it the checkpoint is complete. */
th_status th__dcp_write_index(const th__dcp_index *index, const char *folder);

#endif
