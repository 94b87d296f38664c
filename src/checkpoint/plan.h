/* checkpoint/plan.h: a state made ready for writing: its pickle, and the memory of every storage it uses.
 *
 * A plan holds its tensors, so they may end or change their owner meanwhile; th__plan_snapshot copies their memory as well.
 * Writing a plan needs no libtorch, so any thread can do it. */
#ifndef FABRIC_CHECKPOINT_PLAN_H
#define FABRIC_CHECKPOINT_PLAN_H

#include "checkpoint/format/pickle_write.h"
#include "checkpoint/format/zip.h"
#include <cfabric/value.h>

typedef struct th__plan_storage {
    const void *id; /* th_storage_id */
    th_dtype dtype;
    uint64_t numel, nbytes;
    const void *data; /* CPU memory */
    th_tensor *keep;  /* what owns it, or NULL */
    void *copy;       /* the snapshot, or NULL */
} th__plan_storage;

typedef struct th__plan {
    th__pickler pickler;
    th__plan_storage *storages;
    size_t n_storages, storages_capacity;
    uint32_t *table; /* (id, dtype) -> storage index + 1 */
    size_t table_size;
    th_tensor **tensors; /* in order of appearance, resolved and retained */
    size_t n_tensors, tensors_capacity;
} th__plan;

/* `state` without TH_VALUE_OBJECT. On failure there is nothing to free. */
th_status th__plan_make(th__plan *plan, const th_value *state);
/* Copies the storages and lets the tensors go. */
th_status th__plan_snapshot(th__plan *plan);
/* Writes one torch.save archive. */
th_status th__plan_write(const th__plan *plan, th__sink *sink);
/* The same as a whole file, atomically. */
th_status th__plan_write_file(const th__plan *plan, const char *path);
uint64_t th__plan_nbytes(const th__plan *plan);
void th__plan_free(th__plan *plan);

#endif
