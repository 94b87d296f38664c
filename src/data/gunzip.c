/* data/gunzip.c: reading gzip data from memory, several members one after the other. */
#include "data/gunzip.h"

#include "base/error.h"
#include "base/memory.h"
#include <limits.h>
#include <stdlib.h>
#include <zlib.h>

struct th__gunzip {
    const char *name;
    const uint8_t *data;
    size_t size, used; /* `used` has been given to zlib */
    z_stream z;
    bool ended;
};

#define FAULT(...) th__fail(TH_ERR_DATA, "th_dataset_idx", __VA_ARGS__)

th__gunzip *th__gunzip_new(const char *name, const uint8_t *data, size_t size)
{
    th__gunzip *stream = th__calloc(1, sizeof *stream);
    if (stream == NULL) return NULL;
    stream->name = name;
    stream->data = data;
    stream->size = size;
    if (inflateInit2(&stream->z, 15 + 16) == Z_OK) return stream; /* + 16: gzip only */
    free(stream);
    th__fail(TH_ERR_MEMORY, "th_dataset_idx", "out of memory unpacking '%s'", name);
    return NULL;
}

void th__gunzip_free(th__gunzip *stream)
{
    if (stream == NULL) return;
    inflateEnd(&stream->z);
    free(stream);
}

/* zlib counts in unsigned int: give it the data piece by piece. */
static void feed(th__gunzip *stream)
{
    size_t left = stream->size - stream->used;
    if (stream->z.avail_in > 0 || left == 0) return;
    stream->z.next_in = (Bytef *)(stream->data + stream->used);
    stream->z.avail_in = left > UINT_MAX ? UINT_MAX : (uInt)left;
    stream->used += stream->z.avail_in;
}

/* After a member: another one, zero bytes that some tools pad with, or the end. */
static th_status next_member(th__gunzip *stream)
{
    size_t at = stream->used - stream->z.avail_in;
    if (at + 1 < stream->size && stream->data[at] == 0x1f && stream->data[at + 1] == 0x8b) {
        inflateReset(&stream->z);
        return TH_OK;
    }
    size_t zeros = at;
    while (zeros < stream->size && stream->data[zeros] == 0) zeros++;
    if (zeros < stream->size)
        return FAULT("'%s' has %zu bytes after the end of its gzip data (from byte %zu on), expected none", stream->name,
                     stream->size - at, at);
    stream->ended = true;
    return TH_OK;
}

th_status th__gunzip_read(th__gunzip *stream, void *out, size_t size, size_t *got)
{
    *got = 0;
    while (*got < size && !stream->ended) {
        size_t wanted = size - *got;
        uInt room = wanted > UINT_MAX ? UINT_MAX : (uInt)wanted;
        feed(stream);
        stream->z.next_out = (Bytef *)out + *got;
        stream->z.avail_out = room;
        int result = inflate(&stream->z, Z_NO_FLUSH);
        *got += room - stream->z.avail_out;
        if (result == Z_STREAM_END) {
            TH__TRY(next_member(stream));
        } else if (result == Z_BUF_ERROR ||
                   (result == Z_OK && stream->z.avail_in == 0 && stream->used == stream->size && stream->z.avail_out > 0)) {
            return FAULT("the gzip data of '%s' is cut off after %zu bytes, before its end", stream->name, stream->size);
        } else if (result == Z_MEM_ERROR) {
            return th__fail(TH_ERR_MEMORY, "th_dataset_idx", "out of memory unpacking '%s'", stream->name);
        } else if (result != Z_OK) {
            return FAULT("the gzip data of '%s' is damaged near byte %zu: %s", stream->name, stream->used - stream->z.avail_in,
                         stream->z.msg != NULL ? stream->z.msg : "it needs a dictionary");
        }
    }
    return TH_OK;
}
