/* checkpoint/format/recognise.c: says what a file is that is no checkpoint. Cut-off downloads and error pages are the usual
 * cases. */
#include "checkpoint/format/torch_file.h"

#include <string.h>

enum { HEAD = 512 };

static bool starts(const unsigned char *head, size_t n, const char *magic, size_t length)
{
    return n >= length && memcmp(head, magic, length) == 0;
}
#define STARTS(magic) starts(head, n, (magic), sizeof(magic) - 1)

static bool is_text(const unsigned char *head, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (head[i] < 0x20 && head[i] != '\n' && head[i] != '\r' && head[i] != '\t') return false;
    return true;
}

static bool is_safetensors(const unsigned char *head, size_t n)
{
    return n >= 9 && head[8] == '{' && th__le64(head) >= 2 && th__le64(head) < 100u * 1000 * 1000;
}

bool th__looks_like_safetensors(const th__source *source)
{
    unsigned char head[9];
    if (source->size < 10 || th__source_read(source, 0, head, sizeof head) != TH_OK) return false;
    return is_safetensors(head, sizeof head);
}

static const char *kind_of(const unsigned char *head, size_t n)
{
    const unsigned char *p = head;
    while (p < head + n && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    if (STARTS("version https://git-lfs"))
        return "it is a Git LFS pointer: the file itself was not downloaded ('git lfs pull' fetches it)";
    if (p < head + n && *p == '<' && is_text(head, n))
        return "it is an HTML or XML page: the download got an error page or a login page instead";
    if (is_safetensors(head, n)) return "it is a safetensors file: th_safetensors_load reads it";
    if (STARTS("\x1f\x8b")) return "it is compressed with gzip: unpack it first";
    if (STARTS("BZh") ||
        STARTS("\xfd"
               "7zXZ") ||
        STARTS("\x28\xb5\x2f\xfd"))
        return "it is compressed: unpack it first";
    if (STARTS("\x93NUMPY")) return "it is a NumPy array";
    if (STARTS("\x89HDF")) return "it is an HDF5 file";
    if (STARTS("GGUF")) return "it is a GGUF file";
    if (n > 262 && memcmp(head + 257, "ustar", 5) == 0)
        return "it is a tar archive (PyTorch before 0.4 wrote those): load and save it once with PyTorch";
    if (is_text(head, n)) return "it is a text file";
    return NULL;
}

th_status th__torch_file_recognise(const th__source *source, uint64_t offset, uint64_t length)
{
    unsigned char head[HEAD];
    size_t n = length < HEAD ? (size_t)length : HEAD;
    if (length == 0) return th__fail(TH_ERR_DATA, "th_load", "'%s' is not a checkpoint: it is empty", source->path);
    TH__TRY(th__source_read(source, offset, head, n));
    if (STARTS("PK\3\4") || (n >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5)) return TH_OK;
    const char *kind = kind_of(head, n);
    return th__fail(TH_ERR_DATA, "th_load", "'%s' (%llu bytes) is not a checkpoint%s%s", source->path, (unsigned long long)length,
                    kind != NULL ? ": " : "", kind != NULL ? kind : ": it starts like neither of PyTorch's formats");
}
