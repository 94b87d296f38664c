/* fuzz_dcp_index.c: .metadata of sharded checkpoints: chunks of accepted indexes lie inside their tensors, data files are plain
 * names. */
#include "fuzz.h"

#include "checkpoint/format/dcp_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    th__dcp_index index;
    if (th__dcp_parse_index(&index, data, size, "input") != TH_OK) return 0;
    for (size_t i = 0; i < index.count; i++) {
        const th__dcp_item *item = &index.items[i];
        for (size_t c = 0; c < item->n_chunks; c++) {
            if (item->chunks[c].file == NULL || strchr(item->chunks[c].file, '/') != NULL) abort();
            for (size_t d = 0; d < item->dim; d++)
                if (item->chunks[c].offsets[d] < 0 || item->chunks[c].offsets[d] + item->chunks[c].sizes[d] > item->sizes[d])
                    abort();
        }
        if (th__dcp_find(&index, item->fqn) == NULL) abort();
    }
    th__dcp_free_index(&index);
    return 0;
}
