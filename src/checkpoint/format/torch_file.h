/* checkpoint/format/torch_file.h: a file that torch.save wrote, opened: its pickle as nodes, and where its storages lie.
 *
 * Both containers are read: the zip (PyTorch 1.6 and later) and the older stream of pickles. */
#ifndef FABRIC_CHECKPOINT_TORCH_FILE_H
#define FABRIC_CHECKPOINT_TORCH_FILE_H

#include "checkpoint/format/dtype.h"
#include "checkpoint/format/node.h"
#include "checkpoint/format/zip.h"

typedef struct th__legacy_storage {
    const th__node *key;
    uint64_t offset, numel;
    const th__dtype_info *dtype;
} th__legacy_storage;

typedef struct th__torch_file {
    const th__source *source; /* borrowed */
    uint64_t offset, length;
    bool is_zip, big_endian;
    th__zip zip;
    bool *verified;        /* per zip entry */
    char *folder;          /* "archive" */
    unsigned char *pickle; /* of a legacy file: all of it */
    size_t pickle_size;
    th__arena *arena;
    th__node *root;
    th__legacy_storage *legacy;
    size_t n_legacy;
} th__torch_file;

/* What a persistent id says, checked against the file. */
typedef struct th__storage {
    const char *key; /* not terminated */
    size_t key_length;
    const th__dtype_info *dtype; /* uint8 for untyped storages */
    bool untyped;
    uint64_t numel, nbytes;
    uint64_t at;                /* offset of the data in the source */
    const th__zip_entry *entry; /* NULL in legacy files */
} th__storage;

/* Opens what fills [offset, offset + length) of the source; on failure there is nothing to close. Every record that is no storage
 * has been verified afterwards. */
th_status th__torch_file_open(th__torch_file *file, const th__source *source, uint64_t offset, uint64_t length);
void th__torch_file_close(th__torch_file *file);
/* Describes the storage of a TH__NODE_PERSISTENT. */
th_status th__torch_file_storage(const th__torch_file *file, const th__node *node, th__storage *out);
/* Reads a storage (nbytes), verifies it, brings it into this machine's byte order. */
th_status th__torch_file_read(th__torch_file *file, const th__storage *storage, void *out);
/* Verifies the storages that nobody read. */
th_status th__torch_file_verify_rest(th__torch_file *file);

/* Raises what is wrong with a file that is no checkpoint: empty, HTML, a Git LFS pointer, another format. TH_OK if it looks like
 * one. */
th_status th__torch_file_recognise(const th__source *source, uint64_t offset, uint64_t length);
/* True when the file starts like safetensors. */
bool th__looks_like_safetensors(const th__source *source);

#endif
