/* checkpoint/from_nodes.h: the tree of a pickle becomes a th_value, with tensors that share storages as they did when saved. */
#ifndef FABRIC_CHECKPOINT_FROM_NODES_H
#define FABRIC_CHECKPOINT_FROM_NODES_H

#include "checkpoint/format/torch_file.h"
#include <cfabric/value.h>

typedef struct th__loader th__loader;

/* Reads storages from `file` as they are needed. */
th__loader *th__loader_new(th__torch_file *file);
void th__loader_free(th__loader *loader);
/* [owned]; TH_ERR_DATA names what cannot be read (an unknown global, a cycle). */
th_value *th__loader_value(th__loader *loader, th__node *node);

/* Memory for a storage, aligned to 64 bytes. free() it. NULL with TH_ERR_MEMORY. */
void *th__storage_memory(uint64_t nbytes);
/* Memory for one storage and a one-dimensional tensor over it. [owned] th_free; `*data` is where to read into. */
th_tensor *th__storage_tensor(uint64_t numel, const th__dtype_info *dtype, void **data);

/* rebuild.c: the tensor that a _rebuild_* call describes. [owned] */
th_tensor *th__rebuild_tensor(th__loader *loader, th__node *call);
bool th__is_tensor_call(const th__node *node);
/* The storage of a persistent id as a one-dimensional tensor of its own dtype. [borrowed] from the loader */
th_tensor *th__loader_storage(th__loader *loader, const th__node *persistent, th__storage *what);
const char *th__loader_path(const th__loader *loader);

#endif
