/* data/idx_file.h: files in the MNIST (IDX) format, as bytes in memory. No tensors here, so a fuzzer can drive it. */
#ifndef FABRIC_DATA_IDX_FILE_H
#define FABRIC_DATA_IDX_FILE_H

#include <cfabric/base.h>

enum { TH__IDX_MAX_DIMS = 8 };

typedef struct th__idx {
    uint8_t type; /* 0x08 uint8, 0x09 int8, 0x0b int16, 0x0c int32, 0x0d float32, 0x0e float64 */
    size_t dims;
    int64_t sizes[TH__IDX_MAX_DIMS];
    size_t element_size;
    uint8_t *bytes; /* the elements, big-endian as in the file */
    size_t size;    /* of `bytes` */
} th__idx;

/* Finds the file (other spellings included), unpacks it if its contents are gzip, checks and parses it. On error nothing is kept.
 */
th_status th__idx_load(const char *path, th__idx *idx);
/* The same for a file's contents; `name` is for messages. */
th_status th__idx_decode(const char *name, const uint8_t *data, size_t size, th__idx *idx);
void th__idx_free(th__idx *idx);
/* "uint8"; "unknown" for a byte that is no type. */
const char *th__idx_type_name(uint8_t type);

#endif
