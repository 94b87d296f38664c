/* Trains the image classifier's network under every precision and prints losses and weights: see precision_golden.py. */
#include <cfabric/error.h>
#include <cfabric/fabric.h>
#include <cfabric/nn_modules.h>
#include <cfabric/ops.h>
#include <cfabric/optimizers.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct training {
    const char *name;
    int steps;
    const char *precision;
    bool clip, sgd, init;
    double init_scale;
} training;

static const training trainings[] = {
    {"bf16_mixed", 100, "bf16-mixed", false, false, false, 0}, {"full", 10, "32-true", false, false, false, 0},
    {"double", 5, "64-true", false, false, false, 0},          {"double_init", 3, "64-true", false, false, true, 0},
    {"bf16_true", 10, "bf16-true", false, false, false, 0},    {"bf16_init", 3, "bf16-true", false, false, true, 0},
    {"fallback", 3, "16-mixed", true, false, false, 0}, /* by name: bf16-mixed with a warning */
    {"half_mixed", 20, "16-mixed", false, true, false, 65536}, {"half_mixed_clip", 5, "16-mixed", true, true, false, 64},
    {"half_true", 5, "16-true", false, true, false, 0},
};

static th_module *network(void)
{
    return th_nn_sequential(th_nn_conv2d(1, 32, TH_INTS(3)), th_nn_relu(), th_nn_conv2d(32, 64, TH_INTS(3)), th_nn_relu(),
                            th_nn_max_pool2d(TH_INTS(2)), th_nn_dropout(.p = 0.25), th_nn_flatten(), th_nn_linear(9216, 128),
                            th_nn_relu(), th_nn_dropout(.p = 0.5), th_nn_linear(128, 10), th_nn_log_softmax(.dim = TH_INT(1)));
}

static fabric *fabric_for(const training *t)
{
    if (t->init_scale == 0) return fabric_new(.accelerator = "cpu", .devices = "1", .precision = t->precision);
    th_grad_scaler *scaler = th_grad_scaler_new(.init_scale = t->init_scale, .growth_interval = 3);
    fabric_precision *mixed = fabric_precision_mixed("16-mixed", .device = TH_DEVICE_CPU, .scaler = scaler);
    return fabric_new(.accelerator = "cpu", .devices = "1", .plugins = FABRIC_PLUGINS(fabric_plugin(mixed)));
}

static void one_step(fabric *fab, const training *t, int step, th_module *model, th_optimizer *optimizer)
{
    TH_SCOPE();
    th_tensor *images = th_randn(TH_INTS(8, 1, 28, 28));
    th_tensor *labels = th_randint(10, TH_INTS(8), .dtype = TH_INT64);
    th_optimizer_zero_grad(optimizer);
    th_tensor *loss = th_nll_loss(th_forward(model, images), labels);
    fabric_backward(fab, loss);
    if (t->clip)
        printf("%s.norm.%d %.9g\n", t->name, step, th_item(fabric_clip_gradients(fab, model, optimizer, .max_norm = 1.0)));
    th_optimizer_step(optimizer);
    printf("%s.loss.%d %.9g\n", t->name, step, th_item(loss));
}

static void run(const training *t)
{
    TH_SCOPE();
    th_manual_seed(1);
    fabric *fab = fabric_for(t);
    th_module *model;
    if (t->init) {
        FABRIC_INIT_MODULE(fab, -1);
        model = network();
    } else {
        model = network();
    }
    th_tensors params = th_parameters(model);
    th_optimizer *optimizer = t->sgd ? th_optim_sgd(params, .lr = 0.01) : th_optim_adadelta(params, .lr = 1.0);
    fabric_setup(fab, model, optimizer);
    for (int step = 0; step < t->steps && th_error() == TH_OK; step++) one_step(fab, t, step, model, optimizer);
    params = th_parameters(model);
    for (size_t i = 0; i < params.size && th_error() == TH_OK; i++)
        printf("%s.weight.%zu %s %.17g\n", t->name, i, th_dtype_name(th_dtype_of(params.data[i])),
               th_item(th_sum(th_to_dtype(params.data[i], TH_FLOAT64))));
    fabric_finish(fab);
    th_optimizer_free(optimizer);
    th_module_free(model);
}

int main(int argc, char **argv)
{
    bool half = argc > 1 && strcmp(argv[1], "half") == 0;
    for (size_t i = 0; i < sizeof trainings / sizeof trainings[0]; i++)
        if (half || strncmp(trainings[i].name, "half", 4) != 0) run(&trainings[i]);
    return th_error() == TH_OK ? 0 : 1;
}
