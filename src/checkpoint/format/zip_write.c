/* checkpoint/format/zip_write.c: writes stored, aligned zip records straight from memory; only a CRC is patched in afterwards. */
#include "base/memory.h"
#include "checkpoint/format/zip.h"
#include "checkpoint/format/zip_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_RECORD = 64 * 1024, DOS_DATE = 0x0021 /* 1980-01-01: files depend on their contents only */, LIMIT32 = 0xffff };
static const uint32_t full32 = 0xffffffffu;

void th__zip_begin(th__zip_writer *writer, th__sink *sink) { *writer = (th__zip_writer){.sink = sink, .start = sink->at}; }

void th__zip_writer_free(th__zip_writer *writer)
{
    for (size_t i = 0; i < writer->count; i++) free(writer->records[i].name);
    free(writer->records);
    th__buffer_free(&writer->structure);
    *writer = (th__zip_writer){0};
}

static th_status put_structure(th__zip_writer *writer, const void *data, size_t size)
{
    TH__TRY(th__buffer_add(&writer->structure, data, size));
    return th__sink_write(writer->sink, data, size);
}

/* The local header with the padding that aligns the data. Sizes of 4 GiB and more go into a zip64 field. */
static th_status put_local_header(th__zip_writer *writer, const th__zip_record *r)
{
    unsigned char head[TH__ZIP_LOCAL_SIZE + 20], *p = head;
    size_t n_name = strlen(r->name);
    bool big = r->size >= full32;
    size_t fixed = TH__ZIP_LOCAL_SIZE + n_name + (big ? 20 : 0);
    size_t padding = (size_t)((0 - (r->header + fixed + 4)) & (TH__ZIP_ALIGN - 1));
    p = th__put32(p, TH__ZIP_LOCAL);
    p = th__put16(p, big ? 45 : 20);
    p = th__put16(p, 0x0800); /* names are UTF-8 */
    p = th__put16(p, 0);      /* stored */
    p = th__put16(p, 0);
    p = th__put16(p, DOS_DATE);
    p = th__put32(p, r->crc);
    p = th__put32(p, big ? full32 : (uint32_t)r->size);
    p = th__put32(p, big ? full32 : (uint32_t)r->size);
    p = th__put16(p, (uint16_t)n_name);
    p = th__put16(p, (uint16_t)((big ? 20 : 0) + 4 + padding));
    TH__TRY(put_structure(writer, head, TH__ZIP_LOCAL_SIZE));
    TH__TRY(put_structure(writer, r->name, n_name));
    p = head;
    if (big) {
        p = th__put16(p, 1);
        p = th__put16(p, 16);
        p = th__put64(p, r->size);
        p = th__put64(p, r->size);
    }
    TH__TRY(put_structure(writer, head, (size_t)(p - head)));
    unsigned char pad[4 + TH__ZIP_ALIGN] = {'F', 'B'};
    th__put16(pad + 2, (uint16_t)padding);
    return put_structure(writer, pad, 4 + padding);
}

static th_status begin_record(th__zip_writer *writer, const char *name, uint64_t size, uint32_t crc)
{
    TH__CHECK_PENDING();
    if (strlen(name) > LIMIT32 / 2) return TH__FAIL(TH_ERR_VALUE, "a record name of %zu bytes", strlen(name));
    th__zip_record record = {.header = writer->sink->at - writer->start, .size = size, .crc = crc};
    record.name = th__strdup(name);
    if (record.name == NULL) return th__pending();
    if (TH__PUSH(writer->records, writer->count, writer->capacity, record) != 0) {
        free(record.name);
        return th__pending();
    }
    return put_local_header(writer, &writer->records[writer->count - 1]);
}

th_status th__zip_add_begin(th__zip_writer *writer, const char *name, uint64_t size)
{
    return begin_record(writer, name, size, 0);
}

th_status th__zip_add_piece(th__zip_writer *writer, const void *data, uint64_t size)
{
    return th__sink_write_crc(writer->sink, data, size, &writer->records[writer->count - 1].crc);
}

th_status th__zip_add_end(th__zip_writer *writer)
{
    TH__CHECK_PENDING();
    th__zip_record *r = &writer->records[writer->count - 1];
    unsigned char crc[4];
    th__put32(crc, r->crc);
    /* The header was the last structure written, so it ends the structure's bytes. */
    size_t big = r->size >= full32 ? 20 : 0, fixed = TH__ZIP_LOCAL_SIZE + strlen(r->name) + big + 4;
    size_t whole = (size_t)((r->header + fixed + TH__ZIP_ALIGN - 1) / TH__ZIP_ALIGN * TH__ZIP_ALIGN - r->header);
    memcpy(writer->structure.data + writer->structure.size - whole + 14, crc, 4);
    return th__sink_patch(writer->sink, writer->start + r->header + 14, crc, 4);
}

th_status th__zip_add(th__zip_writer *writer, const char *name, const void *data, uint64_t size)
{
    if (size <= SMALL_RECORD) { /* it stays in cache: no patching */
        TH__TRY(begin_record(writer, name, size, th__crc32(0, data, (size_t)size)));
        return th__sink_write(writer->sink, data, (size_t)size);
    }
    TH__TRY(th__zip_add_begin(writer, name, size));
    TH__TRY(th__zip_add_piece(writer, data, size));
    return th__zip_add_end(writer);
}

static th_status put_central(th__zip_writer *writer, const th__zip_record *r)
{
    unsigned char head[TH__ZIP_CENTRAL_SIZE] = {0}, extra[28], *p = head, *x = extra + 4;
    bool big = r->size >= full32, far = r->header >= full32;
    if (big) x = th__put64(th__put64(x, r->size), r->size);
    if (far) x = th__put64(x, r->header);
    size_t n_extra = big || far ? (size_t)(x - extra) : 0;
    th__put16(th__put16(extra, 1), (uint16_t)(x - extra - 4));
    p = th__put32(p, TH__ZIP_CENTRAL);
    p = th__put16(p, 45);
    p = th__put16(p, big || far ? 45 : 20);
    p = th__put16(p, 0x0800);
    p = th__put16(p, 0);
    p = th__put16(p, 0);
    p = th__put16(p, DOS_DATE);
    p = th__put32(p, r->crc);
    p = th__put32(p, big ? full32 : (uint32_t)r->size);
    p = th__put32(p, big ? full32 : (uint32_t)r->size);
    p = th__put16(p, (uint16_t)strlen(r->name));
    p = th__put16(p, (uint16_t)n_extra);
    p += 10; /* no comment, disk 0, no attributes */
    th__put32(p, far ? full32 : (uint32_t)r->header);
    TH__TRY(put_structure(writer, head, sizeof head));
    TH__TRY(put_structure(writer, r->name, strlen(r->name)));
    return put_structure(writer, extra, n_extra);
}

static th_status put_end64(th__zip_writer *writer, uint64_t directory, uint64_t size)
{
    unsigned char end[TH__ZIP_END64_SIZE + TH__ZIP_LOCATOR64_SIZE], *p = end;
    p = th__put32(p, TH__ZIP_END64);
    p = th__put64(p, TH__ZIP_END64_SIZE - 12);
    p = th__put32(p, 45u | 45u << 16);
    p = th__put64(p, 0); /* disks */
    p = th__put64(p, writer->count);
    p = th__put64(p, writer->count);
    p = th__put64(p, size);
    p = th__put64(p, directory);
    p = th__put32(p, TH__ZIP_LOCATOR64);
    p = th__put32(p, 0);
    p = th__put64(p, directory + size);
    p = th__put32(p, 1);
    return put_structure(writer, end, (size_t)(p - end));
}

th_status th__zip_finish(th__zip_writer *writer)
{
    TH__CHECK_PENDING();
    uint64_t directory = writer->sink->at - writer->start;
    for (size_t i = 0; i < writer->count; i++) TH__TRY(put_central(writer, &writer->records[i]));
    uint64_t size = writer->sink->at - writer->start - directory;
    bool big = directory >= full32 || size >= full32 || writer->count >= LIMIT32;
    if (big) TH__TRY(put_end64(writer, directory, size));
    unsigned char end[TH__ZIP_END_SIZE], *p = end;
    uint16_t count = big ? LIMIT32 : (uint16_t)writer->count;
    p = th__put32(p, TH__ZIP_END);
    p = th__put32(p, 0);
    p = th__put16(p, count);
    p = th__put16(p, count);
    p = th__put32(p, big ? full32 : (uint32_t)size);
    p = th__put32(p, big ? full32 : (uint32_t)directory);
    th__put16(p, TH__ZIP_COMMENT_SIZE);
    TH__TRY(put_structure(writer, end, sizeof end));
    char comment[TH__ZIP_COMMENT_SIZE + 1];
    snprintf(comment, sizeof comment, TH__ZIP_COMMENT "%08x", th__crc32(0, writer->structure.data, writer->structure.size));
    TH__TRY(th__sink_write(writer->sink, comment, TH__ZIP_COMMENT_SIZE));
    return th__sink_flush(writer->sink);
}
