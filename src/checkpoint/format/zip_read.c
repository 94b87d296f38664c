/* checkpoint/format/zip_read.c: opens a zip whose every number is distrusted: bounds, overlaps, names, structure checksum. */
#include "base/memory.h"
#include "checkpoint/format/zip.h"
#include "checkpoint/format/zip_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERIFY_PIECE = 256 * 1024 };

/* Fuzzers would spend their time on checksums. */
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
enum { CHECKSUMS_MATTER = 0 };
#else
enum { CHECKSUMS_MATTER = 1 };
#endif

typedef struct opening {
    th__zip *zip;
    const th__source *source;
    uint64_t offset, length;       /* the archive within the source */
    uint64_t end, directory, size; /* relative to offset: end record, central directory and its bytes */
    uint64_t count;
    bool has_checksum;
    uint32_t checksum;
} opening;

#define DAMAGED(o, ...) damaged((o), __VA_ARGS__)
static th_status damaged(const opening *o, const char *format, ...) FABRIC_PRINTF(2, 3);
static th_status damaged(const opening *o, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return th__fail(TH_ERR_DATA, "th_load", "'%s' (%llu bytes) is damaged or truncated: %s", o->source->path,
                    (unsigned long long)o->source->size, text);
}

static th_status read_at(const opening *o, uint64_t at, void *out, uint64_t size)
{
    if (at > o->length || o->length - at < size) return DAMAGED(o, "its zip directory points outside the archive");
    return th__source_read(o->source, o->offset + at, out, (size_t)size);
}

/* ---------------------------------------------------------------- the end record */

static th_status read_end64(opening *o)
{
    unsigned char locator[TH__ZIP_LOCATOR64_SIZE], end[TH__ZIP_END64_SIZE];
    if (o->end < TH__ZIP_LOCATOR64_SIZE) return DAMAGED(o, "no zip64 record before the end record");
    TH__TRY(read_at(o, o->end - TH__ZIP_LOCATOR64_SIZE, locator, sizeof locator));
    if (th__le32(locator) != TH__ZIP_LOCATOR64) return DAMAGED(o, "no zip64 record before the end record");
    uint64_t at = th__le64(locator + 8);
    TH__TRY(read_at(o, at, end, sizeof end));
    if (th__le32(end) != TH__ZIP_END64) return DAMAGED(o, "the zip64 end record is not where it should be");
    o->count = th__le64(end + 32);
    o->size = th__le64(end + 40);
    o->directory = th__le64(end + 48);
    return TH_OK;
}

static th_status read_comment(opening *o, const char *comment, size_t size)
{
    char digits[9] = {0}, *stop;
    if (size == 0) return TH_OK;
    if (size != TH__ZIP_COMMENT_SIZE || memcmp(comment, TH__ZIP_COMMENT, sizeof TH__ZIP_COMMENT - 1) != 0)
        return DAMAGED(o, "the zip has a comment that neither PyTorch nor cfabric wrote");
    memcpy(digits, comment + sizeof TH__ZIP_COMMENT - 1, 8);
    o->checksum = (uint32_t)strtoul(digits, &stop, 16);
    char again[9];
    snprintf(again, sizeof again, "%08x", o->checksum); /* one spelling only: a flipped case bit is damage too */
    if (stop != digits + 8 || strcmp(again, digits) != 0) return DAMAGED(o, "its checksum is not readable");
    o->has_checksum = true;
    return TH_OK;
}

static th_status find_end(opening *o)
{
    size_t window = o->length < 65557 ? (size_t)o->length : 65557;
    if (window < TH__ZIP_END_SIZE) return DAMAGED(o, "too short for a zip archive");
    unsigned char *tail = th__malloc(window);
    if (tail == NULL) return th__pending();
    th_status status = th__source_read(o->source, o->offset + o->length - window, tail, window);
    size_t at = window - TH__ZIP_END_SIZE + 1;
    bool found = false;
    while (status == TH_OK && !found && at-- > 0)
        found = th__le32(tail + at) == TH__ZIP_END && at + TH__ZIP_END_SIZE + th__le16(tail + at + 20) == window;
    if (status == TH_OK && !found) status = DAMAGED(o, "the zip directory, which comes last, is missing");
    if (status == TH_OK) {
        const unsigned char *end = tail + at;
        o->end = o->length - window + at;
        o->count = th__le16(end + 10);
        o->size = th__le32(end + 12);
        o->directory = th__le32(end + 16);
        if (th__le16(end + 4) != 0 || th__le16(end + 6) != 0) status = DAMAGED(o, "a zip in several parts");
        if (status == TH_OK) status = read_comment(o, (const char *)end + TH__ZIP_END_SIZE, th__le16(end + 20));
        if (status == TH_OK && (o->count == 0xffff || o->size == 0xffffffffu || o->directory == 0xffffffffu))
            status = read_end64(o);
        if (status == TH_OK &&
            (o->directory > o->end || o->end - o->directory < o->size || o->count > o->size / TH__ZIP_CENTRAL_SIZE))
            status = DAMAGED(o, "the zip directory does not fit into the file");
    }
    free(tail);
    return status;
}

/* ---------------------------------------------------------------- the directory */

/* Fields that did not fit into 32 bits. */
static th_status read_extra(const opening *o, const unsigned char *extra, size_t n, uint64_t *size, uint64_t *stored,
                            uint64_t *header)
{
    while (n >= 4) {
        size_t length = th__le16(extra + 2);
        if (length > n - 4) break; /* padding that is not well-formed is harmless */
        if (th__le16(extra) == 1) {
            const unsigned char *p = extra + 4, *end = p + length;
            uint64_t *const fields[] = {size, stored, header};
            for (int i = 0; i < 3; i++) {
                if (*fields[i] != 0xffffffffu) continue;
                if (end - p < 8) return DAMAGED(o, "a zip64 field is too short");
                *fields[i] = th__le64(p);
                p += 8;
            }
            return TH_OK;
        }
        extra += 4 + length;
        n -= 4 + length;
    }
    return TH_OK;
}

static th_status read_central(opening *o, const unsigned char **at, const unsigned char *end, char **names)
{
    const unsigned char *p = *at;
    if (end - p < TH__ZIP_CENTRAL_SIZE || th__le32(p) != TH__ZIP_CENTRAL) return DAMAGED(o, "the zip directory is garbled");
    size_t n_name = th__le16(p + 28), n_extra = th__le16(p + 30), n_comment = th__le16(p + 32);
    size_t whole = TH__ZIP_CENTRAL_SIZE + n_name + n_extra + n_comment;
    if ((size_t)(end - p) < whole) return DAMAGED(o, "the zip directory is garbled");
    const char *name = (const char *)p + TH__ZIP_CENTRAL_SIZE;
    if (n_name == 0 || memchr(name, '\0', n_name) != NULL) return DAMAGED(o, "a record without a proper name");
    th__zip_entry *e = &o->zip->entries[o->zip->count++];
    memcpy(*names, name, n_name);
    (*names)[n_name] = '\0';
    uint64_t stored = th__le32(p + 20);
    *e = (th__zip_entry){.name = *names, .crc = th__le32(p + 16), .size = th__le32(p + 24), .header = th__le32(p + 42)};
    *names += n_name + 1;
    TH__TRY(read_extra(o, p + TH__ZIP_CENTRAL_SIZE + n_name, n_extra, &e->size, &stored, &e->header));
    if (th__le16(p + 8) & 1) return DAMAGED(o, "record '%.80s' is encrypted", e->name);
    e->compressed = th__le16(p + 10) != 0;
    if (e->compressed) e->size = stored;
    if (stored != e->size) return DAMAGED(o, "record '%.80s' has two sizes", e->name);
    *at = p + whole;
    return TH_OK;
}

static th_status read_local(opening *o, th__zip_entry *e)
{
    unsigned char head[TH__ZIP_LOCAL_SIZE];
    TH__TRY(read_at(o, e->header, head, sizeof head));
    size_t n_name = th__le16(head + 26), n_extra = th__le16(head + 28);
    if (th__le32(head) != TH__ZIP_LOCAL || n_name != strlen(e->name))
        return DAMAGED(o, "record '%.80s' is not where the zip directory says", e->name);
    char *name = th__malloc(n_name + 1);
    if (name == NULL) return th__pending();
    th_status status = read_at(o, e->header + TH__ZIP_LOCAL_SIZE, name, n_name);
    if (status == TH_OK && memcmp(name, e->name, n_name) != 0)
        status = DAMAGED(o, "record '%.80s' has another name in its own header", e->name);
    free(name);
    TH__TRY(status);
    e->data = e->header + TH__ZIP_LOCAL_SIZE + n_name + n_extra;
    if (e->data > o->directory || o->directory - e->data < e->size)
        return DAMAGED(o, "record '%.80s' reaches into the zip directory", e->name);
    return TH_OK;
}

/* ---------------------------------------------------------------- checks over all records */

static int by_place(const void *a, const void *b)
{
    const th__zip_entry *x = a, *y = b;
    if (x->header != y->header) return x->header < y->header ? -1 : 1;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const th__zip_entry *)a)->name, ((const th__zip_entry *)b)->name);
}

static th_status crc_range(const opening *o, uint64_t from, uint64_t to, unsigned char *piece, uint32_t *crc)
{
    while (from < to) {
        size_t n = to - from < VERIFY_PIECE ? (size_t)(to - from) : VERIFY_PIECE;
        TH__TRY(th__source_read_crc(o->source, o->offset + from, piece, n, crc));
        from += n;
    }
    return TH_OK;
}

/* Everything between the records must have the checksum that the writer noted. */
static th_status check_structure(const opening *o)
{
    if (!o->has_checksum) return TH_OK;
    unsigned char *piece = th__malloc(VERIFY_PIECE);
    if (piece == NULL) return th__pending();
    uint32_t crc = 0;
    uint64_t at = 0;
    th_status status = TH_OK;
    for (size_t i = 0; i < o->zip->count && status == TH_OK; i++) {
        status = crc_range(o, at, o->zip->entries[i].data, piece, &crc);
        at = o->zip->entries[i].data + o->zip->entries[i].size;
    }
    if (status == TH_OK) status = crc_range(o, at, o->end + TH__ZIP_END_SIZE, piece, &crc);
    free(piece);
    if (status == TH_OK && crc != o->checksum && CHECKSUMS_MATTER)
        status = DAMAGED(o, "the checksum of its zip headers is wrong");
    return status;
}

static th_status check_entries(opening *o)
{
    th__zip *zip = o->zip;
    for (size_t i = 0; i < zip->count; i++) TH__TRY(read_local(o, &zip->entries[i]));
    qsort(zip->entries, zip->count, sizeof *zip->entries, by_place);
    for (size_t i = 1; i < zip->count; i++)
        if (zip->entries[i].header < zip->entries[i - 1].data + zip->entries[i - 1].size)
            return DAMAGED(o, "records '%.80s' and '%.80s' overlap", zip->entries[i - 1].name, zip->entries[i].name);
    TH__TRY(check_structure(o));
    for (size_t i = 0; i < zip->count; i++) {
        zip->entries[i].header += o->offset;
        zip->entries[i].data += o->offset;
    }
    qsort(zip->entries, zip->count, sizeof *zip->entries, by_name);
    for (size_t i = 1; i < zip->count; i++)
        if (strcmp(zip->entries[i].name, zip->entries[i - 1].name) == 0)
            return DAMAGED(o, "two records are called '%.80s'", zip->entries[i].name);
    return TH_OK;
}

static th_status read_directory(opening *o)
{
    unsigned char *directory = th__malloc((size_t)o->size + 1);
    o->zip->entries = th__calloc((size_t)o->count + 1, sizeof *o->zip->entries);
    o->zip->names = th__malloc((size_t)o->size + 1); /* names with their ends are shorter than the records that hold them */
    th_status status = th__pending();
    if (status == TH_OK) status = read_at(o, o->directory, directory, o->size);
    const unsigned char *at = directory;
    char *names = o->zip->names;
    for (uint64_t i = 0; i < o->count && status == TH_OK; i++) status = read_central(o, &at, directory + o->size, &names);
    if (status == TH_OK && at != directory + o->size) status = DAMAGED(o, "the zip directory has bytes left over");
    free(directory);
    return status == TH_OK ? check_entries(o) : status;
}

th_status th__zip_open(th__zip *zip, const th__source *source, uint64_t offset, uint64_t length)
{
    TH__CHECK_PENDING();
    *zip = (th__zip){.source = source};
    opening o = {.zip = zip, .source = source, .offset = offset, .length = length};
    if (offset > source->size || source->size - offset < length)
        return TH__FAIL(TH_ERR_DATA, "'%s' is truncated: an archive of %llu bytes at %llu is wanted, the file has %llu",
                        source->path, (unsigned long long)length, (unsigned long long)offset, (unsigned long long)source->size);
    th_status status = find_end(&o);
    if (status == TH_OK) status = read_directory(&o);
    if (status != TH_OK) th__zip_close(zip);
    return status;
}

void th__zip_close(th__zip *zip)
{
    free(zip->entries);
    free(zip->names);
    *zip = (th__zip){0};
}

const th__zip_entry *th__zip_find(const th__zip *zip, const char *name)
{
    th__zip_entry key = {.name = name};
    return zip->count == 0 ? NULL : bsearch(&key, zip->entries, zip->count, sizeof key, by_name);
}

static th_status refuse_compressed(const th__zip *zip, const th__zip_entry *entry)
{
    return TH__FAIL(TH_ERR_DATA, "'%s': record '%.80s' is compressed; PyTorch writes checkpoints uncompressed", zip->source->path,
                    entry->name);
}

static th_status wrong_crc(const th__zip *zip, const th__zip_entry *entry, uint32_t crc)
{
    return TH__FAIL(TH_ERR_DATA, "'%s' is damaged: record '%.80s' has checksum %08x, %08x is expected", zip->source->path,
                    entry->name, crc, entry->crc);
}

th_status th__zip_read(const th__zip *zip, const th__zip_entry *entry, void *out)
{
    uint32_t crc = 0;
    if (entry->compressed) return refuse_compressed(zip, entry);
    TH__TRY(th__source_read_crc(zip->source, entry->data, out, (size_t)entry->size, &crc));
    return crc == entry->crc || !CHECKSUMS_MATTER ? TH_OK : wrong_crc(zip, entry, crc);
}

th_status th__zip_verify(const th__zip *zip, const th__zip_entry *entry)
{
    if (entry->compressed) return refuse_compressed(zip, entry);
    unsigned char *piece = th__malloc(VERIFY_PIECE);
    if (piece == NULL) return th__pending();
    uint32_t crc = 0;
    th_status status = TH_OK;
    for (uint64_t done = 0; done < entry->size && status == TH_OK;) {
        size_t n = entry->size - done < VERIFY_PIECE ? (size_t)(entry->size - done) : VERIFY_PIECE;
        status = th__source_read_crc(zip->source, entry->data + done, piece, n, &crc);
        done += n;
    }
    free(piece);
    if (status == TH_OK && crc != entry->crc && CHECKSUMS_MATTER) status = wrong_crc(zip, entry, crc);
    return status;
}
