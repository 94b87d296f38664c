/* progress.h: how far training has come: a bar on a terminal, lines elsewhere; and a file of exact losses. */
#ifndef EXAMPLES_PROGRESS_H
#define EXAMPLES_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool show, terminal;
    long epoch;
    int64_t batches, samples;    /* of one pass */
    double started;
};

/* Begins a pass. Only one rank should show. */
void progress_begin(struct progress *progress, bool show, long epoch, int64_t batches, int64_t samples);
/* After batch `done` (1, 2, ...) of `length` samples. */
void progress_update(struct progress *progress, int64_t done, int64_t length, double loss);
void progress_end(struct progress *progress);

/* Appends a loss to `path` as a hexadecimal number, which keeps every bit. Rank k > 0 writes to "path.k". NULL: nothing. */
void losses_write(const char *path, double loss);

#endif
