/* checkpoint/format/zip.h: zip archives of uncompressed records, as torch.save writes them: 64-byte aligned, zip64 where needed.
 *
 * A writer adds a comment "cfabric crc32=<8 digits>" over every byte that is not record data (headers, padding, directory), so
 * that together with the records' own CRCs no bit of the file is unchecked. Archives without that comment (PyTorch's) are
 * accepted. */
#ifndef FABRIC_CHECKPOINT_ZIP_H
#define FABRIC_CHECKPOINT_ZIP_H

#include "checkpoint/format/bytes.h"

/* ---------------------------------------------------------------- reading */

typedef struct th__zip_entry {
    const char *name; /* in the archive's own memory, terminated */
    uint64_t header;  /* offset of the local header in the source */
    uint64_t data;    /* offset of the record in the source */
    uint64_t size;
    uint32_t crc;
    bool compressed; /* not readable here; `size` is what it takes in the file */
} th__zip_entry;

typedef struct th__zip {
    const th__source *source;
    th__zip_entry *entries; /* sorted by name */
    size_t count;
    char *names;
} th__zip;

/* Reads the directory of the archive that fills [offset, offset + length) of the source, and checks that every record lies inside
 * it and that none overlaps another. Damage is TH_ERR_DATA. On failure there is nothing to free. */
th_status th__zip_open(th__zip *zip, const th__source *source, uint64_t offset, uint64_t length);
void th__zip_close(th__zip *zip);
/* NULL if absent. */
const th__zip_entry *th__zip_find(const th__zip *zip, const char *name);
/* Reads a whole record into `out` (entry->size bytes) and checks its CRC; a wrong one names the record. */
th_status th__zip_read(const th__zip *zip, const th__zip_entry *entry, void *out);
/* The same without keeping it. */
th_status th__zip_verify(const th__zip *zip, const th__zip_entry *entry);

/* ---------------------------------------------------------------- writing */

typedef struct th__zip_record {
    char *name;
    uint64_t header, size;
    uint32_t crc;
} th__zip_record;

typedef struct th__zip_writer {
    th__sink *sink;
    uint64_t start;       /* sink offset of the archive */
    th__buffer structure; /* every byte written that is no record data */
    th__zip_record *records;
    size_t count, capacity;
} th__zip_writer;

void th__zip_begin(th__zip_writer *writer, th__sink *sink);
/* One record from memory. */
th_status th__zip_add(th__zip_writer *writer, const char *name, const void *data, uint64_t size);
/* One record in pieces: begin, any number of pieces that sum up to `size`, end. */
th_status th__zip_add_begin(th__zip_writer *writer, const char *name, uint64_t size);
th_status th__zip_add_piece(th__zip_writer *writer, const void *data, uint64_t size);
th_status th__zip_add_end(th__zip_writer *writer);
/* Writes the directory. The writer can then be freed. */
th_status th__zip_finish(th__zip_writer *writer);
void th__zip_writer_free(th__zip_writer *writer);

#endif
