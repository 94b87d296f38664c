/* bench/bench.h: what the benchmark programs share. Every command prints lines "name value", which run.py reads. */
#ifndef BENCH_H
#define BENCH_H

#include <cfabric/cfabric.h>
#include <cfabric/dataloader.h>
#include <cfabric/dataset.h>
#include <cfabric/nn_modules.h>

typedef struct bench_args {
    const char *mode; /* "fabric" or "plain" */
    int batch, steps;
    const char *precision;
    const char *path;
    int workers;
} bench_args;

/* Seconds on the monotonic clock. */
double bench_now(void);
/* Runs `step` `warmup` times, then `steps` times, and prints "seconds_per_step": the median of ten blocks. */
typedef th_status (*bench_step)(void *data, int i);
int bench_loop(bench_step step, void *data, int warmup, int steps);
/* A value of /proc/self/status in bytes ("VmRSS", "VmHWM"), -1 without one. */
double bench_memory(const char *key);
/* Prints the pending error; the exit code of the command. */
int bench_end(fabric *fab);

/* A fabric when mode is "fabric", NULL for "plain". */
fabric *bench_fabric(const bench_args *args);
/* Set-up, backward and step, with a fabric or without. */
th_status bench_setup(fabric *fab, th_module *model, th_optimizer *opt);
th_status bench_backward(fabric *fab, th_tensor *loss);

/* The convolutional network of the image classifier example. */
th_module *bench_image_net(void);

int bench_mlp(const bench_args *args);
int bench_image(const bench_args *args);
int bench_language(const bench_args *args);
int bench_loader(const bench_args *args);
int bench_peak_memory(const bench_args *args);
int bench_first_step(const bench_args *args);
int bench_op_call(const bench_args *args);
int bench_ddp(const bench_args *args);
int bench_all_reduce(const bench_args *args);
int bench_save(const bench_args *args);
int bench_load(const bench_args *args);
int bench_async(const bench_args *args);

#endif
