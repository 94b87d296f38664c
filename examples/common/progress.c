/* progress.c: see progress.h. */
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BAR = 30 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void progress_begin(struct progress *progress, bool show, long epoch, int64_t batches, int64_t samples)
{
    *progress = (struct progress){show, isatty(STDOUT_FILENO), epoch, batches, samples, now()};
}

static void draw_bar(const struct progress *p, int64_t done, double loss)
{
    double part = p->batches > 0 ? (double)done / (double)p->batches : 0, elapsed = now() - p->started;
    int full = (int)(part * BAR);
    char bar[BAR + 1];
    for (int i = 0; i < BAR; i++) bar[i] = i < full ? '=' : i == full ? '>' : '.';
    bar[BAR] = '\0';
    printf("\rEpoch %ld [%s] %3.0f%%  %lld/%lld batches  loss %.4f  %.0f s, %.0f s left   ", p->epoch, bar, 100 * part, (long long)done,
           (long long)p->batches, loss, elapsed, part > 0 ? elapsed / part - elapsed : 0.0);
}

void progress_update(struct progress *p, int64_t done, int64_t length, double loss)
{
    if (!p->show) return;
    if (p->terminal)
        draw_bar(p, done, loss);
    else
        printf("Train Epoch: %ld [%lld/%lld (%.0f%%)]\tLoss: %.6f\n", p->epoch, (long long)((done - 1) * length),
               (long long)p->samples, p->batches > 0 ? 100.0 * (double)(done - 1) / (double)p->batches : 0.0, loss);
    fflush(stdout);
}

void progress_end(struct progress *p)
{
    if (p->show && p->terminal) putchar('\n');
}

void losses_write(const char *path, double loss)
{
    static FILE *file;
    if (path == NULL) return;
    if (file == NULL) {
        const char *rank = getenv("RANK");
        char name[4096];
        if (rank != NULL && atoi(rank) > 0) snprintf(name, sizeof name, "%s.%d", path, atoi(rank));
        else snprintf(name, sizeof name, "%s", path);
        file = fopen(name, "w");
        if (file == NULL) {
            perror(name);
            exit(1);
        }
        setvbuf(file, NULL, _IOLBF, 0);
    }
    fprintf(file, "%a\n", loss);
}
