/* replay.c: runs a fuzz target over the files of its corpus, each also cut short and with bytes changed. For machines without
 * libFuzzer. */
#include "fuzz.h"

#include "base/fs.h"
#include <stdio.h>

/* A fixed sequence, so that a failure can be repeated. */
static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static size_t replay(const uint8_t *data, size_t size)
{
    enum { CUTS = 64, CHANGES = 200 };
    size_t runs = 1;
    uint64_t seed = 88172645463325252u;
    LLVMFuzzerTestOneInput(data, size);
    for (size_t i = 0; i < CUTS && size > 0; i++, runs++) {
        uint8_t *copy = malloc(size); /* exactly sized, so that a read past the end is seen by the address sanitizer */
        size_t n = random_next(&seed) % size;
        memcpy(copy, data, n);
        copy = realloc(copy, n + (n == 0));
        LLVMFuzzerTestOneInput(copy, n);
        free(copy);
    }
    for (size_t i = 0; i < CHANGES && size > 0; i++, runs++) {
        uint8_t *copy = malloc(size);
        memcpy(copy, data, size);
        for (uint64_t n = random_next(&seed) % 4 + 1; n > 0; n--) copy[random_next(&seed) % size] = (uint8_t)random_next(&seed);
        LLVMFuzzerTestOneInput(copy, size);
        free(copy);
    }
    return runs;
}

int main(int argc, char **argv)
{
    size_t files = 0, runs = 0;
    for (int i = 1; i < argc; i++) {
        th__strings names = {0};
        th_error_clear();
        if (th__list_dir(argv[i], &names) != TH_OK) return 1;
        for (size_t k = 0; k < names.count; k++) {
            size_t size;
            th_error_clear(); /* of the input before */
            char *path = th__path_join(argv[i], names.items[k]), *data = th__read_file(path, &size);
            if (data == NULL) return 1;
            runs += replay((const uint8_t *)data, size);
            files++;
            free(data);
            free(path);
        }
        th__strings_free(&names);
    }
    printf("%zu files, %zu executions\n", files, runs);
    return files > 0 ? 0 : 1;
}
