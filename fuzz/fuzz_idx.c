/* fuzz_idx.c: IDX files (the MNIST format), plain and compressed with gzip. */
#include "fuzz.h"

#include "data/idx_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    th__idx idx;
    if (th__idx_decode("input", data, size, &idx) != TH_OK) return 0;
    uint64_t elements = 1;
    for (size_t i = 0; i < idx.dims; i++) elements *= (uint64_t)idx.sizes[i];
    if (elements * idx.element_size != idx.size) abort();
    volatile uint8_t last = idx.size > 0 ? idx.bytes[idx.size - 1] : 0;
    (void)last;
    th__idx_free(&idx);
    return 0;
}
