/* bench/main.c: the commands of bench_cfabric, and the clock. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int bench_loop(bench_step step, void *data, int warmup, int steps)
{
    enum { BLOCKS = 10 };
    double seconds[BLOCKS];
    int i = 0, per_block = steps / BLOCKS > 0 ? steps / BLOCKS : 1;
    for (; i < warmup; i++)
        if (step(data, i) != TH_OK) return 1;
    for (int b = 0; b < BLOCKS; b++) {
        double start = bench_now();
        for (int k = 0; k < per_block; k++, i++)
            if (step(data, i) != TH_OK) return 1;
        seconds[b] = (bench_now() - start) / per_block;
    }
    qsort(seconds, BLOCKS, sizeof *seconds, by_value);
    printf("seconds_per_step %.9f\n", (seconds[BLOCKS / 2 - 1] + seconds[BLOCKS / 2]) / 2);
    return 0;
}

double bench_memory(const char *key)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    double bytes = -1;
    size_t length = strlen(key);
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, length) == 0 && line[length] == ':') bytes = 1024.0 * strtod(line + length + 1, NULL);
    if (file != NULL) fclose(file);
    return bytes;
}

int bench_end(fabric *fab)
{
    int code = th_error() != TH_OK;
    if (fab != NULL && fabric_finish(fab) != 0) code = 1;
    return code;
}

fabric *bench_fabric(const bench_args *args)
{
    if (strcmp(args->mode, "fabric") != 0) return NULL;
    const char *precision = args->precision;
    /* Under `fabric run` the number of processes comes from outside. */
    fabric *fab = getenv("LT_CLI_USED") != NULL ? fabric_new(.precision = precision)
                                                : fabric_new(.accelerator = "cpu", .devices = "1", .precision = precision);
    if (fab != NULL && getenv("LT_CLI_USED") == NULL) fabric_launch(fab);
    return fab;
}

th_status bench_setup(fabric *fab, th_module *model, th_optimizer *opt)
{
    return fab != NULL ? fabric_setup(fab, model, opt) : th_error();
}

th_status bench_backward(fabric *fab, th_tensor *loss) { return fab != NULL ? fabric_backward(fab, loss) : th_backward(loss); }

static const struct {
    const char *name;
    int (*run)(const bench_args *args);
} commands[] = {
    {"mlp", bench_mlp},
    {"image", bench_image},
    {"language", bench_language},
    {"loader", bench_loader},
    {"peak_memory", bench_peak_memory},
    {"first_step", bench_first_step},
    {"op_call", bench_op_call},
    {"ddp", bench_ddp},
    {"all_reduce", bench_all_reduce},
    {"save", bench_save},
    {"load", bench_load},
    {"async", bench_async},
};

int main(int argc, char **argv)
{
    bench_args args = {.mode = "fabric", .batch = 32, .steps = 200, .precision = "32-true", .path = "", .workers = 0};
    for (int i = 2; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (value == NULL) continue;
        *value++ = '\0';
        if (strcmp(argv[i], "mode") == 0) args.mode = value;
        if (strcmp(argv[i], "batch") == 0) args.batch = atoi(value);
        if (strcmp(argv[i], "steps") == 0) args.steps = atoi(value);
        if (strcmp(argv[i], "precision") == 0) args.precision = value;
        if (strcmp(argv[i], "path") == 0) args.path = value;
        if (strcmp(argv[i], "workers") == 0) args.workers = atoi(value);
    }
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(&args);
    fprintf(stderr, "usage: %s COMMAND [mode=fabric|plain] [batch=N] [steps=N] [precision=P] [path=P] [workers=N]\n", argv[0]);
    return 2;
}
