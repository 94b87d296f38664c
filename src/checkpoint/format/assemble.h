/* checkpoint/format/assemble.h: one whole tensor from the chunks of a sharded checkpoint, in bounded memory. */
#ifndef FABRIC_CHECKPOINT_ASSEMBLE_H
#define FABRIC_CHECKPOINT_ASSEMBLE_H

#include "checkpoint/format/dcp_index.h"
#include "checkpoint/format/torch_file.h"

/* The data files of a folder, opened once. */
typedef struct th__dcp_files {
    const char *folder; /* borrowed */
    struct th__dcp_file {
        char *name;
        th__source source;
    } * *files; /* each stays where it is: archives point at their source */
    size_t count, capacity;
} th__dcp_files;

/* [borrowed] from `files`; NULL with an error. */
const th__source *th__dcp_file(th__dcp_files *files, const char *name);
void th__dcp_close_files(th__dcp_files *files);

/* A chunk's archive, opened and verified: where its elements lie. */
typedef struct th__dcp_data {
    th__torch_file archive;
    th__tensor_layout layout;
    th__storage storage;
    bool dense;          /* row-major without gaps: the elements are the bytes from `at` on */
    uint64_t at;         /* offset in the source, dense only */
    unsigned char *copy; /* else: gathered into row-major order */
} th__dcp_data;

th_status th__dcp_open_chunk(th__dcp_data *data, th__dcp_files *files, const th__dcp_item *item, const th__dcp_chunk *chunk);
void th__dcp_close_chunk(th__dcp_data *data);
/* Row-major bytes [from, from + size) of the chunk. */
th_status th__dcp_chunk_bytes(const th__dcp_data *data, uint64_t from, void *out, size_t size);

/* The box [offsets, offsets + sizes) of the item into row-major memory `out`. The chunks must cover it. */
th_status th__dcp_read_box(th__dcp_files *files, const th__dcp_item *item, const int64_t *offsets, const int64_t *sizes,
                           void *out);
/* The whole item as the data of the zip record begun last; ends the record. */
th_status th__dcp_write_record(th__dcp_files *files, const th__dcp_item *item, th__zip_writer *zip);

#endif
