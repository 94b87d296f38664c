/* checkpoint/format/bytes.c: sources, sinks and the growing buffer. */
#include "checkpoint/format/bytes.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SINK_GATHER = 256 * 1024, CRC_PIECE = 256 * 1024, WRITEBACK_PIECE = 32 * 1024 * 1024 };

/* ---------------------------------------------------------------- sources */

th_status th__source_open(th__source *source, const char *path)
{
    *source = (th__source){.fd = -1};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return th__fail(errno == ENOENT ? TH_ERR_NOT_FOUND : TH_ERR_IO, "th_load", "cannot open '%s': %s", path, strerror(errno));
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return TH__FAIL(TH_ERR_IO, "'%s' is %s, not a file", path, S_ISDIR(info.st_mode) ? "a folder" : "a special file");
    }
    source->path = th__strdup(path);
    if (source->path == NULL) {
        close(fd);
        return th__pending();
    }
    source->fd = fd;
    source->size = (uint64_t)info.st_size;
    return TH_OK;
}

th_status th__source_memory(th__source *source, const void *data, size_t size, const char *path)
{
    *source = (th__source){.fd = -1, .memory = data, .size = size};
    source->path = th__strdup(path);
    return source->path == NULL ? th__pending() : TH_OK;
}

void th__source_close(th__source *source)
{
    if (source->fd >= 0) close(source->fd);
    free(source->path);
    *source = (th__source){.fd = -1};
}

th_status th__source_read(const th__source *source, uint64_t offset, void *out, size_t size)
{
    if (offset > source->size || source->size - offset < size)
        return TH__FAIL(TH_ERR_DATA, "'%s' is truncated: bytes %llu to %llu are wanted, the file has %llu", source->path,
                        (unsigned long long)offset, (unsigned long long)(offset + size), (unsigned long long)source->size);
    if (source->memory != NULL) {
        memcpy(out, source->memory + offset, size);
        return TH_OK;
    }
    unsigned char *to = out;
    while (size > 0) {
        ssize_t n = pread(source->fd, to, size < (1u << 30) ? size : (1u << 30), (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return TH__FAIL(TH_ERR_IO, "cannot read '%s': %s", source->path, strerror(errno));
        if (n == 0) return TH__FAIL(TH_ERR_DATA, "'%s' became shorter while it was read", source->path);
        to += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return TH_OK;
}

th_status th__source_read_crc(const th__source *source, uint64_t offset, void *out, size_t size, uint32_t *crc)
{
    for (size_t done = 0; done < size;) {
        size_t n = size - done < CRC_PIECE ? size - done : CRC_PIECE;
        TH__TRY(th__source_read(source, offset + done, (char *)out + done, n));
        *crc = th__crc32(*crc, (char *)out + done, n);
        done += n;
    }
    return TH_OK;
}

/* ---------------------------------------------------------------- the buffer */

th_status th__buffer_add(th__buffer *buffer, const void *data, size_t size)
{
    if (buffer->capacity - buffer->size < size) {
        size_t capacity = buffer->capacity < 256 ? 256 : buffer->capacity;
        while (capacity - buffer->size < size) capacity *= 2;
        unsigned char *grown = th__realloc(buffer->data, capacity, 1);
        if (grown == NULL) return th__pending();
        buffer->data = grown;
        buffer->capacity = capacity;
    }
    if (size > 0) memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
    return TH_OK;
}

void th__buffer_free(th__buffer *buffer)
{
    free(buffer->data);
    *buffer = (th__buffer){0};
}

/* ---------------------------------------------------------------- sinks */

void th__sink_init(th__sink *sink, th__atomic_file *file) { *sink = (th__sink){.file = file}; }

/* Starts the write-back of what is complete, so that the final fsync finds little left to do. */
static void start_writeback(th__sink *sink, uint64_t written)
{
    if (written - sink->synced < WRITEBACK_PIECE) return;
    sync_file_range(sink->file->fd, (off_t)sink->synced, (off_t)(written - sink->synced), SYNC_FILE_RANGE_WRITE);
    sink->synced = written;
}

th_status th__sink_flush(th__sink *sink)
{
    size_t n = sink->pending.size;
    if (n == 0) return TH_OK;
    TH__TRY(th__atomic_pwrite(sink->file, sink->pending.data, n, (int64_t)(sink->at - n)));
    sink->pending.size = 0;
    start_writeback(sink, sink->at);
    return TH_OK;
}

th_status th__sink_write(th__sink *sink, const void *data, size_t size)
{
    TH__CHECK_PENDING();
    if (sink->pending.size + size > SINK_GATHER) TH__TRY(th__sink_flush(sink));
    if (size > SINK_GATHER / 2) {
        TH__TRY(th__sink_flush(sink));
        TH__TRY(th__atomic_pwrite(sink->file, data, size, (int64_t)sink->at));
        sink->at += size;
        start_writeback(sink, sink->at);
        return TH_OK;
    }
    TH__TRY(th__buffer_add(&sink->pending, data, size));
    sink->at += size;
    return TH_OK;
}

th_status th__sink_write_crc(th__sink *sink, const void *data, uint64_t size, uint32_t *crc)
{
    for (uint64_t done = 0; done < size;) {
        size_t n = size - done < CRC_PIECE ? (size_t)(size - done) : CRC_PIECE;
        *crc = th__crc32(*crc, (const char *)data + done, n);
        TH__TRY(th__sink_write(sink, (const char *)data + done, n));
        done += n;
    }
    return TH_OK;
}

th_status th__sink_patch(th__sink *sink, uint64_t at, const void *data, size_t size)
{
    uint64_t buffered = sink->at - sink->pending.size;
    if (at >= buffered) {
        memcpy(sink->pending.data + (at - buffered), data, size);
        return TH_OK;
    }
    if (at + size > buffered) TH__TRY(th__sink_flush(sink)); /* across the edge */
    return th__atomic_pwrite(sink->file, data, size, (int64_t)at);
}

th_status th__sink_reserve(th__sink *sink, uint64_t size, uint64_t *at)
{
    TH__TRY(th__sink_flush(sink));
    *at = sink->at;
    sink->at += size;
    if (size == 0) return TH_OK;
    return th__atomic_pwrite(sink->file, "", 1, (int64_t)(sink->at - 1)); /* the file has its length, whatever is patched */
}

th_status th__sink_read_back(th__sink *sink, uint64_t at, void *out, size_t size)
{
    TH__TRY(th__sink_flush(sink));
    th__source source = {.fd = sink->file->fd, .size = sink->at, .path = sink->file->path};
    return th__source_read(&source, at, out, size);
}

void th__sink_free(th__sink *sink) { th__buffer_free(&sink->pending); }
