/* fuzz_torch_file.c: torch.save's containers: zip directory, records, the older stream; then every storage the pickle mentions.
 */
#include "fuzz.h"

#include "checkpoint/format/tensor_layout.h"
#include "checkpoint/format/torch_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    th__source source;
    th__torch_file file;
    if (th__source_memory(&source, data, size, "input") != TH_OK) return 0;
    if (th__torch_file_open(&file, &source, 0, size) == TH_OK) {
        for (th__node *p = th__arena_persistent(file.arena); p != NULL; p = p->extra) {
            th__storage storage;
            th_error_clear();
            if (th__torch_file_storage(&file, p, &storage) != TH_OK) continue;
            if (storage.nbytes > size) abort(); /* a storage cannot be larger than the file */
            void *memory = malloc((size_t)storage.nbytes + 1);
            th__torch_file_read(&file, &storage, memory);
            free(memory);
        }
        th_error_clear();
        th__torch_file_verify_rest(&file);
        th__torch_file_close(&file);
    }
    th__source_close(&source);
    return 0;
}
