/* checkpoint/format/dtype.h: one table of dtypes with their names in every format. */
#ifndef FABRIC_CHECKPOINT_DTYPE_H
#define FABRIC_CHECKPOINT_DTYPE_H

#include <cfabric/tensor.h>

typedef struct th__dtype_info {
    th_dtype dtype;
    unsigned char size;      /* bytes of an element */
    unsigned char swap;      /* bytes of what is swapped for big-endian files: half a complex number */
    const char *name;        /* "float32" */
    const char *storage;     /* "FloatStorage"; NULL: PyTorch has no such class and stores bytes plus the dtype */
    const char *safetensors; /* "F32"; NULL: not in that format */
} th__dtype_info;

/* NULL if unknown. */
const th__dtype_info *th__dtype_info_of(th_dtype dtype);
const th__dtype_info *th__dtype_by_name(const char *name, size_t length);
const th__dtype_info *th__dtype_by_storage(const char *name, size_t length);
const th__dtype_info *th__dtype_by_safetensors(const char *name);

#endif
