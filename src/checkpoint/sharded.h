/* checkpoint/sharded.h: sharded checkpoints (PyTorch's distributed-checkpoint layout) for strategies that split tensors over
 * ranks.
 *
 * Saving: rank 0 asks th__shards_next and tells everybody; every rank writes its pieces (th__shard_begin, _add, _end); rank 0
 * gathers what _end returned and commits. Until the commit the folder's previous checkpoint is untouched, afterwards its data
 * files are removed. Loading: th__shards_open and th__shards_read, with any number of ranks. */
#ifndef FABRIC_CHECKPOINT_SHARDED_H
#define FABRIC_CHECKPOINT_SHARDED_H

#include "base/error.h"
#include <cfabric/value.h>

/* What a path is: nothing, one file, a sharded checkpoint (a folder with meta.pt), another folder. */
typedef enum th__checkpoint_kind {
    TH__CHECKPOINT_NONE,
    TH__CHECKPOINT_FILE,
    TH__CHECKPOINT_SHARDED,
    TH__CHECKPOINT_FOLDER
} th__checkpoint_kind;
th__checkpoint_kind th__checkpoint_kind_of(const char *path);
/* Makes room for a save: full onto a sharded folder removes the folder, sharded onto a file removes the file. Full onto another
 * folder is TH_ERR_IO (IsADirectoryError). Call on one rank, before saving. */
th_status th__checkpoint_prepare(const char *path, bool sharded);

/* ---- saving */

/* The number of this save's data files, __<rank>_<number>.distcp; -1 with an error. */
int th__shards_next(const char *folder);

typedef struct th__shard th__shard;
/* [owned]: ends with th__shard_end or th__shard_abort. */
th__shard *th__shard_begin(const char *folder, int rank, int number);
/* A piece of a tensor: `path` is a list or tuple of texts and ints ("model", "layers.0.weight"), `sizes` those of the whole
 * tensor, `offsets` where the piece begins in it. A piece without elements is only noted. */
th_status th__shard_add(th__shard *shard, th_value *path, th_tensor *piece, th_ints sizes, th_ints offsets);
/* A plain value under a path. One rank adds it. */
th_status th__shard_add_value(th__shard *shard, th_value *path, th_value *value);
/* Completes this rank's file. What it returns goes to rank 0. [owned] */
th_value *th__shard_end(th__shard *shard);
void th__shard_abort(th__shard *shard);

/* Rank 0, when everybody's file is complete: writes meta.pt (`meta` is a dict of plain values), then .metadata, then removes data
 * files that are no longer used. `parts` is a list of what th__shard_end returned on each rank. */
th_status th__shards_commit(const char *folder, th_value *parts, th_value *meta);

/* ---- loading */

typedef struct th__shards th__shards;
/* [owned] th__shards_close. An incomplete folder is TH_ERR_DATA. */
th__shards *th__shards_open(const char *folder);
void th__shards_close(th__shards *shards);
size_t th__shards_count(const th__shards *shards);
/* The name of the i-th item: its path joined by '.'. [borrowed] */
const char *th__shards_name(const th__shards *shards, size_t i);
/* Its path, a tuple. [owned] */
th_value *th__shards_path(const th__shards *shards, size_t i);
/* False if there is no such tensor (no error). */
bool th__shards_info(const th__shards *shards, const char *name, th_dtype *dtype, th_ints *sizes);
/* The box [offsets, offsets + sizes) of a tensor. [scoped] */
th_tensor *th__shards_read(th__shards *shards, const char *name, th_ints offsets, th_ints sizes);
/* A plain value. [owned] */
th_value *th__shards_value(th__shards *shards, const char *name);
/* meta.pt. [owned] */
th_value *th__shards_meta(const char *folder);

#endif
