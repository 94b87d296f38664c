/* fuzz_safetensors.c: whole files: every tensor of an accepted header lies inside the data, and together they cover it. */
#include "fuzz.h"

#include "checkpoint/format/safetensors_header.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    th__source source;
    th__st_header header;
    if (th__source_memory(&source, data, size, "input") != TH_OK) return 0;
    if (th__st_read_header(&header, &source) == TH_OK) {
        uint64_t at = 0;
        for (size_t i = 0; i < header.count; i++) {
            const th__st_tensor *t = &header.tensors[i];
            if (t->begin != at || t->end < t->begin || header.data_start + t->end > size) abort();
            at = t->end;
            th__st_find(&header, t->name);
        }
        if (header.data_start + at != size) abort();
        th__st_free_header(&header);
    }
    th__source_close(&source);
    return 0;
}
