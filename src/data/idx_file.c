/* data/idx_file.c: reading and checking files in the MNIST (IDX) format, plain or gzip. Every fault is one line that names the
 * file, what was found and what was expected. */
#include "data/idx_file.h"

#include "base/error.h"
#include "base/memory.h"
#include "data/gunzip.h"
#include "data/idx_find.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAULT(...) th__fail(TH_ERR_DATA, "th_dataset_idx", __VA_ARGS__)

static const struct {
    uint8_t code;
    const char *name;
    size_t size;
} types[] = {{0x08, "uint8", 1}, {0x09, "int8", 1},    {0x0b, "int16", 2},
             {0x0c, "int32", 4}, {0x0d, "float32", 4}, {0x0e, "float64", 8}};

const char *th__idx_type_name(uint8_t type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].code == type) return types[i].name;
    return "unknown";
}

void th__idx_free(th__idx *idx)
{
    free(idx->bytes);
    *idx = (th__idx){0};
}

static uint32_t big_endian(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }

/* ---------------------------------------------------------------- the header */

static bool begins(const uint8_t *data, size_t size, const char *text)
{
    return size >= strlen(text) && memcmp(data, text, strlen(text)) == 0;
}

/* What a file that is not IDX probably is; "" if there is no telling. */
static const char *guess(const uint8_t *data, size_t size)
{
    size_t start = 0, printable = 0;
    if (begins(data, size, "\x1f\x8b")) return ": this is gzip data inside gzip, unpack it once";
    if (begins(data, size, "PK\x03\x04")) return ": this is a zip archive, unpack it";
    if (begins(data, size,
               "\xfd"
               "7zXZ"))
        return ": this is xz data, unpack it";
    if (begins(data, size, "BZh")) return ": this is bzip2 data, unpack it";
    if (begins(data, size, "version https://git-lfs")) return ": this is a Git LFS pointer, run 'git lfs pull'";
    if (begins(data, size, "\x93NUMPY")) return ": this is a NumPy file";
    while (start < size && (data[start] == ' ' || data[start] == '\n' || data[start] == '\r' || data[start] == '\t')) start++;
    if (start < size && data[start] == '<') return ": this looks like HTML/XML, probably an error page instead of the download";
    while (printable < size && printable < 64 && data[printable] >= 9 && data[printable] < 127) printable++;
    return printable >= 4 && (printable == size || printable == 64) ? ": this looks like text" : "";
}

static th_status parse_magic(const char *name, const uint8_t *data, size_t size, th__idx *idx)
{
    if (size < 4)
        return FAULT("'%s' has %zu bytes, expected an IDX file with a header of at least 8 bytes%s", name, size,
                     guess(data, size));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].code == data[2]) idx->element_size = types[i].size;
    idx->type = data[2];
    idx->dims = data[3];
    if (data[0] != 0 || data[1] != 0)
        return FAULT("'%s' begins with the bytes %02x %02x %02x %02x, expected the IDX magic 00 00 <type> <dimensions>%s", name,
                     data[0], data[1], data[2], data[3], guess(data, size));
    if (idx->element_size == 0)
        return FAULT(
            "'%s' has the IDX magic 00 00 %02x %02x: type 0x%02x is not known, expected 08 (uint8), 09, 0b, 0c, 0d or 0e", name,
            data[2], data[3], data[2]);
    if (idx->dims == 0 || idx->dims > TH__IDX_MAX_DIMS)
        return FAULT("'%s' has the IDX magic 00 00 %02x %02x: %zu dimensions, expected 1 to %d", name, data[2], data[3],
                     idx->dims, TH__IDX_MAX_DIMS);
    return TH_OK;
}

/* The magic and the sizes; `*header` is where the elements begin, `*body` how many bytes they should have. */
static th_status parse_header(const char *name, const uint8_t *data, size_t size, th__idx *idx, size_t *header, size_t *body)
{
    TH__TRY(parse_magic(name, data, size, idx));
    *header = 4 + 4 * idx->dims;
    if (size < *header)
        return FAULT("'%s' ends inside its header: %zu bytes, expected %zu for %zu dimensions", name, size, *header, idx->dims);
    *body = idx->element_size;
    for (size_t i = 0; i < idx->dims; i++) {
        idx->sizes[i] = big_endian(data + 4 + 4 * i);
        if (idx->sizes[i] != 0 && *body > (size_t)PTRDIFF_MAX / 2 / (size_t)idx->sizes[i])
            return FAULT("'%s' says it has more elements than fit into memory (size %lld in dimension %zu)", name,
                         (long long)idx->sizes[i], i);
        *body *= (size_t)idx->sizes[i];
    }
    return TH_OK;
}

static th_status check_length(const char *name, size_t found, size_t expected)
{
    if (found < expected)
        return FAULT("'%s' is truncated: it has %zu bytes of elements, its header promises %zu", name, found, expected);
    if (found > expected)
        return FAULT("'%s' goes on after its end: its header promises %zu bytes of elements, there are %s%zu", name, expected,
                     found == expected + 1 ? "at least " : "", found);
    return TH_OK;
}

/* ---------------------------------------------------------------- plain and gzip contents */

/* Batches gather rows from all over this memory: large pages save most of the address translation. */
static uint8_t *allocate(size_t size)
{
#ifdef MADV_HUGEPAGE
    enum { PAGE = 2 << 20 };
    void *block = NULL;
    if (size >= 4 * PAGE && posix_memalign(&block, PAGE, size) == 0) {
        (void)madvise(block, size, MADV_HUGEPAGE); /* a wish: nothing depends on it */
        return block;
    }
#endif
    return th__malloc(size);
}

static th_status decode_plain(const char *name, const uint8_t *data, size_t size, th__idx *idx)
{
    size_t header, body;
    TH__TRY(parse_header(name, data, size, idx, &header, &body));
    TH__TRY(check_length(name, size - header, body));
    if ((idx->bytes = allocate(body)) == NULL) return th__pending();
    if (body > 0) memcpy(idx->bytes, data + header, body);
    idx->size = body;
    return TH_OK;
}

/* Unpacks exactly as much as the header promises, so a small file cannot ask for endless memory. */
static th_status decode_gzip(const char *name, const uint8_t *data, size_t size, th__idx *idx)
{
    uint8_t head[4 + 4 * TH__IDX_MAX_DIMS], extra;
    size_t header, body, got, got_extra;
    th__gunzip *stream = th__gunzip_new(name, data, size);
    if (stream == NULL) return th__pending();
    th_status status = th__gunzip_read(stream, head, 4, &got);
    if (status == TH_OK) status = parse_magic(name, head, got, idx);
    if (status == TH_OK) {
        size_t rest;
        status = th__gunzip_read(stream, head + 4, 4 * idx->dims, &rest);
        got += rest;
    }
    if (status == TH_OK) status = parse_header(name, head, got, idx, &header, &body);
    /* deflate cannot shrink anything below 1/1032 */
    if (status == TH_OK && body / 1040 > size)
        status = FAULT("'%s' is truncated: its header promises %zu bytes, more than its %zu bytes of gzip data can hold", name,
                       body, size);
    if (status == TH_OK && (idx->bytes = allocate(body)) == NULL) status = th__pending();
    if (status == TH_OK) status = th__gunzip_read(stream, idx->bytes, body, &got);
    if (status == TH_OK) status = th__gunzip_read(stream, &extra, 1, &got_extra); /* also checks the last member's CRC */
    if (status == TH_OK) status = check_length(name, got + got_extra, body);
    if (status == TH_OK) idx->size = body;
    th__gunzip_free(stream);
    return status;
}

th_status th__idx_decode(const char *name, const uint8_t *data, size_t size, th__idx *idx)
{
    *idx = (th__idx){0};
    bool gzip = size >= 2 && data[0] == 0x1f && data[1] == 0x8b;
    th_status status = gzip ? decode_gzip(name, data, size, idx) : decode_plain(name, data, size, idx);
    if (status != TH_OK) th__idx_free(idx);
    return status;
}

/* ---------------------------------------------------------------- the file */

static th_status read_all(const char *path, int file, uint8_t *data, size_t size, size_t *used)
{
    *used = 0;
    while (*used < size) {
        ssize_t got = read(file, data + *used, size - *used < SSIZE_MAX ? size - *used : SSIZE_MAX);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return th__fail(TH_ERR_IO, "th_dataset_idx", "cannot read '%s': %s", path, strerror(errno));
        if (got == 0) break;
        *used += (size_t)got;
    }
    return TH_OK;
}

static th_status read_file(const char *path, uint8_t **data, size_t *size)
{
    struct stat info;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    *data = NULL;
    if (file < 0 || fstat(file, &info) != 0) {
        th__fail(TH_ERR_IO, "th_dataset_idx", "cannot open '%s': %s", path, strerror(errno));
    } else if ((*data = th__malloc((size_t)info.st_size)) != NULL) {
        read_all(path, file, *data, (size_t)info.st_size, size);
    }
    if (file >= 0) close(file);
    return th__pending();
}

th_status th__idx_load(const char *path, th__idx *idx)
{
    *idx = (th__idx){0};
    TH__CHECK_PENDING();
    uint8_t *data = NULL;
    size_t size = 0;
    char *found = th__idx_find(path);
    th_status status = found != NULL ? read_file(found, &data, &size) : th__pending();
    if (status == TH_OK) status = th__idx_decode(found, data, size, idx);
    free(data);
    free(found);
    return status;
}
