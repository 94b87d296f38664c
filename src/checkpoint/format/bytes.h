/* checkpoint/format/bytes.h: where bytes come from and go to: files read by offset, files written in order, a growing buffer,
 * CRC-32. */
#ifndef FABRIC_CHECKPOINT_BYTES_H
#define FABRIC_CHECKPOINT_BYTES_H

#include "base/error.h"
#include "base/fs.h"

/* ---------------------------------------------------------------- reading */

/* A file (fd >= 0) or a piece of memory. Reads never go past `size`; a file that shrinks meanwhile is an error, not a signal. */
typedef struct th__source {
    int fd;
    const unsigned char *memory;
    uint64_t size;
    char *path; /* for messages */
} th__source;

/* Missing: TH_ERR_NOT_FOUND; a folder: TH_ERR_IO. */
th_status th__source_open(th__source *source, const char *path);
th_status th__source_memory(th__source *source, const void *data, size_t size, const char *path);
/* After a successful open; twice is harmless. */
void th__source_close(th__source *source);
th_status th__source_read(const th__source *source, uint64_t offset, void *out, size_t size);
/* Reads and continues a CRC in the same pass. */
th_status th__source_read_crc(const th__source *source, uint64_t offset, void *out, size_t size, uint32_t *crc);

/* ---------------------------------------------------------------- writing */

typedef struct th__buffer {
    unsigned char *data;
    size_t size, capacity;
} th__buffer;

th_status th__buffer_add(th__buffer *buffer, const void *data, size_t size);
void th__buffer_free(th__buffer *buffer);

/* A new file written front to back, small pieces gathered. */
typedef struct th__sink {
    th__atomic_file *file; /* borrowed */
    uint64_t at;           /* bytes given so far */
    th__buffer pending;
    uint64_t synced; /* bytes whose write-back was started */
} th__sink;

void th__sink_init(th__sink *sink, th__atomic_file *file);
th_status th__sink_write(th__sink *sink, const void *data, size_t size);
/* Writes and continues a CRC, in cache-sized pieces. */
th_status th__sink_write_crc(th__sink *sink, const void *data, uint64_t size, uint32_t *crc);
/* Overwrites bytes that were written before. */
th_status th__sink_patch(th__sink *sink, uint64_t at, const void *data, size_t size);
th_status th__sink_flush(th__sink *sink);
/* Leaves room to be patched; `*at` is where it begins. And reads back what was written. */
th_status th__sink_reserve(th__sink *sink, uint64_t size, uint64_t *at);
th_status th__sink_read_back(th__sink *sink, uint64_t at, void *out, size_t size);
void th__sink_free(th__sink *sink);

/* ---------------------------------------------------------------- CRC-32 (zip's) */

uint32_t th__crc32(uint32_t crc, const void *data, size_t size);

/* ---------------------------------------------------------------- little-endian numbers */

static inline uint16_t th__le16(const unsigned char *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t th__le32(const unsigned char *p) { return th__le16(p) | (uint32_t)th__le16(p + 2) << 16; }
static inline uint64_t th__le64(const unsigned char *p) { return th__le32(p) | (uint64_t)th__le32(p + 4) << 32; }
static inline unsigned char *th__put16(unsigned char *p, uint16_t v)
{
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
    return p + 2;
}
static inline unsigned char *th__put32(unsigned char *p, uint32_t v)
{
    return th__put16(th__put16(p, (uint16_t)v), (uint16_t)(v >> 16));
}
static inline unsigned char *th__put64(unsigned char *p, uint64_t v)
{
    return th__put32(th__put32(p, (uint32_t)v), (uint32_t)(v >> 32));
}

#endif
