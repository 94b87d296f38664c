/* checkpoint/format/safetensors_header.h: the JSON header of a safetensors file, every rule checked before any offset is used. */
#ifndef FABRIC_CHECKPOINT_SAFETENSORS_HEADER_H
#define FABRIC_CHECKPOINT_SAFETENSORS_HEADER_H

#include "checkpoint/format/bytes.h"
#include "checkpoint/format/dtype.h"
#include <cjson/cJSON.h>

enum { TH__ST_HEADER_MAX = 100000000, TH__ST_DIM_MAX = 64 };

typedef struct th__st_tensor {
    const char *name; /* in the JSON */
    const char *dtype_name;
    const th__dtype_info *dtype; /* NULL: unknown here; the tensor is listed but cannot be read */
    int64_t *shape;
    size_t dim;
    uint64_t begin, end; /* relative to the data */
} th__st_tensor;

typedef struct th__st_header {
    cJSON *json;
    const cJSON *metadata;  /* NULL if there is none */
    th__st_tensor *tensors; /* in the order of their data */
    size_t count;
    uint64_t data_start; /* of the data in the file */
} th__st_header;

/* Reads and checks the header of a file. On failure there is nothing to free. */
th_status th__st_read_header(th__st_header *header, const th__source *source);
void th__st_free_header(th__st_header *header);
/* NULL if absent. */
const th__st_tensor *th__st_find(const th__st_header *header, const char *name);

/* Writing: `tensors` with name, dtype, shape, dim; they are put into the reference library's order, begin and end are set, and
 * the whole header (length, JSON, padding) is appended to `out`. `metadata` may be NULL. */
th_status th__st_make_header(th__st_tensor *tensors, size_t count, const cJSON *metadata, th__buffer *out);

#endif
