/* checkpoint/storages.h: the storages of a file being loaded, each read once, as one-dimensional tensors. */
#ifndef FABRIC_CHECKPOINT_STORAGES_H
#define FABRIC_CHECKPOINT_STORAGES_H

#include "checkpoint/from_nodes.h"

typedef struct th__loaded {
    const char *key;
    size_t key_length;
    th_tensor *tensor; /* NULL: a free slot */
    void *data;
    th__storage what;
} th__loaded;

/* An open hash table by key. */
typedef struct th__storage_table {
    th__torch_file *file;
    th__loaded *slots;
    size_t count, size;
} th__storage_table;

/* The storage of a persistent id, read if it was not yet. [borrowed] from the table */
th_tensor *th__storages_get(th__storage_table *table, const th__node *persistent, th__storage *what);
/* Reads all storages of a large file at once, on several threads. Raises what goes wrong. */
th_status th__storages_prefetch(th__storage_table *table);
void th__storages_free(th__storage_table *table);

#endif
