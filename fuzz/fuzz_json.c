/* fuzz_json.c: a safetensors header as bare JSON text (the length and the data are added), so that mutations stay in the text. */
#include "fuzz.h"

#include "base/json.h"
#include "checkpoint/format/safetensors_header.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { DATA = 64 };
    fuzz_begin();
    cJSON_Delete(th__json_parse((const char *)data, size, "input"));
    th_error_clear();
    th__source source;
    th__st_header header;
    uint8_t *file = calloc(1, size + 8 + DATA);
    th__put64(file, size);
    if (size > 0) memcpy(file + 8, data, size);
    if (th__source_memory(&source, file, size + 8 + DATA, "input") == TH_OK) {
        if (th__st_read_header(&header, &source) == TH_OK) th__st_free_header(&header);
        th__source_close(&source);
    }
    free(file);
    return 0;
}
