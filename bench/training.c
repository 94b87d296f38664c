/* bench/training.c: steps of the multilayer perceptron, the image classifier and the language model. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct training {
    fabric *fab;
    th_module *model;
    th_optimizer *opt;
    th_tensor *x, *y;
    bool clip;
} training;

static int finish(training *t, int code)
{
    th_optimizer_free(t->opt);
    th_module_free(t->model);
    th_free(t->x);
    th_free(t->y);
    return bench_end(t->fab) != 0 ? 1 : code;
}

/* ---------------------------------------------------------------- multilayer perceptron 784-128-10 */

static th_status mlp_step(void *data, int i)
{
    training *t = data;
    (void)i;
    TH_SCOPE();
    th_optimizer_zero_grad(t->opt);
    th_tensor *loss = th_cross_entropy_loss(th_forward(t->model, t->x), t->y);
    bench_backward(t->fab, loss);
    return th_optimizer_step(t->opt);
}

int bench_mlp(const bench_args *args)
{
    TH_SCOPE();
    th_manual_seed(1);
    training t = {.fab = bench_fabric(args)};
    t.model = th_nn_sequential(th_nn_linear(784, 128), th_nn_relu(), th_nn_linear(128, 10));
    t.opt = th_optim_sgd(th_parameters(t.model), .lr = 0.01);
    t.x = th_keep(th_randn(TH_INTS(args->batch, 784)));
    t.y = th_keep(th_randint(10, TH_INTS(args->batch)));
    bench_setup(t.fab, t.model, t.opt);
    return finish(&t, bench_loop(mlp_step, &t, 100, args->steps));
}

/* ---------------------------------------------------------------- image classifier */

static th_tensor *log_softmax_forward(th_module *self, th_tensor *x)
{
    (void)self;
    return th_log_softmax_int(x, 1);
}

th_module *bench_image_net(void)
{
    return th_nn_sequential(th_nn_conv2d(1, 32, TH_INTS(3), .stride = TH_INTS(1)), th_nn_relu(),
                            th_nn_conv2d(32, 64, TH_INTS(3), .stride = TH_INTS(1)), th_nn_relu(), th_nn_max_pool2d(TH_INTS(2)),
                            th_nn_dropout(.p = 0.25), th_nn_flatten(), th_nn_linear(9216, 128), th_nn_relu(),
                            th_nn_dropout(.p = 0.5), th_nn_linear(128, 10),
                            th_module_new("LogSoftmax", .forward = log_softmax_forward));
}

static th_status image_step(void *data, int i)
{
    training *t = data;
    (void)i;
    TH_SCOPE();
    th_optimizer_zero_grad(t->opt);
    th_tensor *loss = th_nll_loss(th_forward(t->model, t->x), t->y);
    bench_backward(t->fab, loss);
    return th_optimizer_step(t->opt);
}

static training image_training(const bench_args *args)
{
    th_manual_seed(1);
    training t = {.fab = bench_fabric(args)};
    t.model = bench_image_net();
    t.opt = th_optim_adadelta(th_parameters(t.model), .lr = 1.0);
    t.x = th_keep(th_randn(TH_INTS(args->batch, 1, 28, 28)));
    t.y = th_keep(th_randint(10, TH_INTS(args->batch)));
    bench_setup(t.fab, t.model, t.opt);
    return t;
}

int bench_image(const bench_args *args)
{
    TH_SCOPE();
    training t = image_training(args);
    return finish(&t, bench_loop(image_step, &t, 3, args->steps));
}

/* From exec to the end of the first step; run.py holds the clock. */
int bench_first_step(const bench_args *args)
{
    TH_SCOPE();
    training t = image_training(args);
    int code = image_step(&t, 0) != TH_OK;
    if (code == 0) printf("first_step 1\n");
    fflush(stdout);
    for (int i = 1; i < 5 && code == 0; i++) code = image_step(&t, i) != TH_OK;
    printf("peak_rss %.0f\n", bench_memory("VmHWM"));
    return finish(&t, code);
}

/* Steps of every rank, for scaling. */
int bench_ddp(const bench_args *args)
{
    TH_SCOPE();
    training t = image_training(args);
    return finish(&t, bench_loop(image_step, &t, 5, args->steps));
}

/* ---------------------------------------------------------------- language model */

enum { VOCABULARY = 33278, WIDTH = 200, BLOCK = 35 };

typedef struct language_model {
    th_tensor *positions, *mask;
} language_model;

static void free_language_model(void *data)
{
    language_model *m = data;
    th_free(m->positions);
    th_free(m->mask);
    free(m);
}

/* The sines and cosines that tell places apart: (BLOCK, WIDTH). */
static th_tensor *position_table(void)
{
    static float table[BLOCK][WIDTH];
    for (int p = 0; p < BLOCK; p++)
        for (int k = 0; k < WIDTH; k += 2) {
            double angle = p * exp(k * (-log(10000.0) / WIDTH));
            table[p][k] = (float)sin(angle);
            table[p][k + 1] = (float)cos(angle);
        }
    return th_tensor_from(table, TH_INTS(BLOCK, WIDTH), TH_FLOAT32);
}

static th_tensor *embed(th_module *self, th_tensor *tokens)
{
    language_model *m = th_module_data(self);
    th_tensor *x = th_mul_scalar(th_forward(th_module_get(self, "embedding"), tokens), TH_S(sqrt((double)WIDTH)));
    return th_forward(th_module_get(self, "dropout"), th_add(x, m->positions));
}

static th_tensors language_forward(th_module *self, th_tensors inputs)
{
    language_model *m = th_module_data(self);
    th_tensor *out =
        th_forward(th_module_get(self, "transformer"), embed(self, inputs.data[0]), embed(self, inputs.data[1]), NULL, m->mask);
    out = th_log_softmax_int(th_forward(th_module_get(self, "decoder"), out), -1);
    return th_list(TH_TENSORS(th_view(out, TH_INTS(-1, VOCABULARY))));
}

static th_module *new_language_model(void)
{
    language_model *m = calloc(1, sizeof *m);
    m->positions = th_keep(position_table());
    m->mask = th_keep(th_nn_generate_square_subsequent_mask(BLOCK, TH_CPU, TH_FLOAT32));
    th_module *self = th_module_new("Transformer", .data = m, .forward_n = language_forward, .free_data = free_language_model);
    th_register_module(self, "embedding", th_nn_embedding(VOCABULARY, WIDTH));
    th_register_module(self, "dropout", th_nn_dropout(.p = 0.2));
    th_register_module(self, "transformer",
                       th_nn_transformer(.d_model = WIDTH, .nhead = 2, .num_encoder_layers = 2, .num_decoder_layers = 2,
                                         .dim_feedforward = 200, .dropout = 0.2, .batch_first = true));
    th_register_module(self, "decoder", th_nn_linear(WIDTH, VOCABULARY));
    return self;
}

static th_status language_step(void *data, int i)
{
    training *t = data;
    (void)i;
    TH_SCOPE();
    th_optimizer_zero_grad(t->opt);
    th_tensor *out = th_forward(t->model, t->x, t->y);
    bench_backward(t->fab, th_nll_loss(out, th_view(t->y, TH_INTS(-1))));
    fabric_clip_gradients(t->fab, t->model, t->opt, .clip_val = 0.25);
    return th_optimizer_step(t->opt);
}

int bench_language(const bench_args *args)
{
    TH_SCOPE();
    th_manual_seed(1);
    training t = {.fab = bench_fabric(args)};
    t.model = new_language_model();
    t.opt = th_optim_sgd(th_parameters(t.model), .lr = 0.1);
    t.x = th_keep(th_randint(VOCABULARY, TH_INTS(20, BLOCK)));
    t.y = th_keep(th_randint(VOCABULARY, TH_INTS(20, BLOCK)));
    bench_setup(t.fab, t.model, t.opt);
    return finish(&t, bench_loop(language_step, &t, 1, args->steps));
}
