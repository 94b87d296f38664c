/* checkpoint/format/repickle.h: writes a tree of nodes as a pickle again, with its tensors' storages renamed. */
#ifndef FABRIC_CHECKPOINT_REPICKLE_H
#define FABRIC_CHECKPOINT_REPICKLE_H

#include "checkpoint/format/node.h"
#include "checkpoint/format/pickle_write.h"

typedef struct th__repickler {
    th__pickler *pickler;
    const char *path; /* for messages */
    /* Writes what stands for a persistent id, or for a node that has `user` set. */
    th_status (*special)(struct th__repickler *repickler, th__node *node);
    void *user;
} th__repickler;

/* Cycles and deep nesting are TH_ERR_DATA. */
th_status th__repickle(th__repickler *repickler, th__node *node);

#endif
