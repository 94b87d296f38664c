/* bench/small.c: the loader, the cost of one operator call, the peak memory of a deep step. */
#include "bench.h"

#include <stdio.h>

/* Samples per second over whole passes of an IDX data set, normalised and shuffled. `path` is its folder. */
int bench_loader(const bench_args *args)
{
    char images[512], labels[512];
    snprintf(images, sizeof images, "%s/train-images-idx3-ubyte.gz", args->path);
    snprintf(labels, sizeof labels, "%s/train-labels-idx1-ubyte.gz", args->path);
    th_dataset *data = th_dataset_idx(images, labels, .mean = TH_DOUBLES(0.1307), .std = TH_DOUBLES(0.3081));
    th_dataloader *loader = th_dataloader_new(data, .batch_size = args->batch, .shuffle = true, .num_workers = args->workers);
    int64_t samples = 0;
    double start = 0;
    th_batch batch;
    for (int pass = 0; pass <= args->steps && th_error() == TH_OK; pass++) {
        if (pass == 1) start = bench_now(); /* the first pass warms up */
        while (th_dataloader_next(loader, &batch))
            if (pass > 0) samples += batch.length;
    }
    printf("samples_per_second %.3f\n", (double)samples / (bench_now() - start));
    th_dataloader_free(loader);
    return bench_end(NULL);
}

int bench_op_call(const bench_args *args)
{
    TH_SCOPE();
    th_tensor *x = th_ones(TH_INTS(1)), *y = th_ones(TH_INTS(1));
    double best = 1e9;
    for (int round = 0; round < 7; round++) {
        double start = bench_now();
        for (int i = 0; i < args->steps; i++) {
            TH_SCOPE();
            th_add(x, y);
        }
        double seconds = (bench_now() - start) / args->steps;
        if (seconds < best) best = seconds;
    }
    printf("seconds_per_call %.12f\n", best);
    return bench_end(NULL);
}

/* The height of the memory over three steps of 20 layers, above what was there before them. */
int bench_peak_memory(const bench_args *args)
{
    TH_SCOPE();
    enum { LAYERS = 20, WIDTH = 512 };
    th_module *model = th_nn_sequential();
    for (int i = 0; i < LAYERS; i++) {
        th_nn_append(model, th_nn_linear(WIDTH, WIDTH));
        th_nn_append(model, th_nn_relu());
    }
    th_optimizer *opt = th_optim_sgd(th_parameters(model), .lr = 0.01);
    double before = 0;
    for (int i = 0; i < 4 && th_error() == TH_OK; i++) {
        TH_SCOPE();
        /* The first step is tiny: it loads code, it does not count. */
        if (i == 1) before = bench_memory("VmRSS");
        th_tensor *x = th_randn(TH_INTS(i == 0 ? 2 : args->batch, WIDTH));
        th_optimizer_zero_grad(opt);
        th_backward(th_mean(th_forward(model, x)));
        th_optimizer_step(opt);
    }
    printf("peak_bytes %.0f\n", bench_memory("VmHWM") - before);
    th_optimizer_free(opt);
    th_module_free(model);
    return bench_end(NULL);
}
