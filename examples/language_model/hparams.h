/* hparams.h: what can be set from the command line. */
#ifndef LANGUAGE_MODEL_HPARAMS_H
#define LANGUAGE_MODEL_HPARAMS_H

#include <stdbool.h>

struct hparams {
    long batch_size, epochs, seed, log_interval, threads, limit_batches;
    double lr, clip_val;
    int dry_run;
    const char *data, *log_losses;
    const char *device;                                      /* train_torch */
    const char *accelerator, *strategy, *devices, *precision; /* train_fabric */
};

/* Ends the program with 2 when an option is wrong. */
struct hparams hparams_parse(int argc, char **argv, bool with_fabric);

#endif
