/* hparams.h: what can be set from the command line. */
#ifndef IMAGE_CLASSIFIER_HPARAMS_H
#define IMAGE_CLASSIFIER_HPARAMS_H

#include <stdbool.h>

struct hparams {
    long batch_size, epochs, seed, log_interval, threads, limit_batches, num_workers;
    double lr, gamma;
    int dry_run, save_model;
    const char *data, *log_losses;
    const char *device;                                      /* train_torch */
    const char *accelerator, *strategy, *devices, *precision; /* train_fabric */
};

/* Ends the program with 2 when an option is wrong. */
struct hparams hparams_parse(int argc, char **argv, bool with_fabric);

#endif
