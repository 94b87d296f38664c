/* bench/files.c: saving, loading, saving in the background. */
#include "bench.h"

#include <stdio.h>
#include <sys/stat.h>

enum { TENSORS = 16, ELEMENTS = 16 * 1024 * 1024 }; /* 16 x 64 MiB */

static th_value *big_state(void)
{
    th_value *model = th_value_dict();
    for (int i = 0; i < TENSORS; i++) {
        TH_SCOPE();
        char key[16];
        snprintf(key, sizeof key, "layer%d", i);
        th_value_set(model, key, th_value_tensor(th_full(TH_INTS(ELEMENTS), TH_S((double)i), .dtype = TH_FLOAT32)));
    }
    return TH_STATE({"model", model});
}

int bench_save(const bench_args *args)
{
    fabric *fab = bench_fabric(args);
    for (int i = 0; i < args->steps && th_error() == TH_OK; i++) {
        th_value *state = big_state();
        double start = bench_now();
        fabric_save(fab, args->path, state);
        printf("seconds %.6f\n", bench_now() - start);
    }
    return bench_end(fab);
}

int bench_load(const bench_args *args)
{
    fabric *fab = bench_fabric(args);
    for (int i = 0; i < args->steps && th_error() == TH_OK; i++) {
        double start = bench_now();
        th_value *state = fabric_load(fab, args->path, NULL);
        printf("seconds %.6f\n", bench_now() - start);
        th_value_free(state);
    }
    return bench_end(fab);
}

/* Steps of the image classifier, alone and while a checkpoint of 256 MiB is written in the background. */
int bench_async(const bench_args *args)
{
    TH_SCOPE();
    fabric *fab = bench_fabric(args);
    th_module *model = bench_image_net();
    th_optimizer *opt = th_optim_adadelta(th_parameters(model));
    th_tensor *ballast = th_zeros(TH_INTS(64, 1024, 1024)), *x = th_randn(TH_INTS(args->batch, 1, 28, 28));
    th_tensor *y = th_randint(10, TH_INTS(args->batch));
    fabric_setup(fab, model, opt);
    for (int saving = 0; saving < 2; saving++) {
        double start = 0;
        for (int i = -3; i < args->steps && th_error() == TH_OK; i++) {
            TH_SCOPE();
            if (i == 0) {
                start = bench_now();
                if (saving)
                    fabric_save(fab, args->path, TH_STATE({"model", th_state(model)}, {"ballast", th_state(ballast)}),
                                .async = true);
            }
            th_optimizer_zero_grad(opt);
            fabric_backward(fab, th_nll_loss(th_forward(model, x), y));
            th_optimizer_step(opt);
        }
        printf("%s %.9f\n", saving ? "seconds_saving" : "seconds_alone", (bench_now() - start) / args->steps);
    }
    fabric_save_wait(fab);
    th_optimizer_free(opt);
    th_module_free(model);
    return bench_end(fab);
}
