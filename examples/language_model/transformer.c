/* transformer.c: see transformer.h. */
#include "transformer.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 200, HEADS = 2, LAYERS = 2, POSITIONS = 5000 };

struct transformer {
    th_module *dropout, *embedding, *transformer, *decoder;
    th_tensor *positions;    /* (1, 5000, 200), made at the first forward on its device */
    th_tensor *mask;         /* (T, T), likewise */
    int64_t vocabulary;
};

/* Sines and cosines of different frequencies, one row per position. */
static th_tensor *position_table(th_device device)
{
    th_tensor *position = th_unsqueeze(th_arange(TH_S(POSITIONS), .dtype = TH_FLOAT32, .device = device), 1);
    th_tensor *step = th_arange_start_step(TH_S(0), TH_S(WIDTH), TH_S(2), .device = device);
    step = th_exp(th_mul_scalar(th_to_dtype(step, TH_FLOAT32), TH_S(-log(10000.0) / WIDTH)));
    th_tensor *angle = th_mul(position, step);
    th_tensor *pairs = th_stack(TH_TENSORS(th_sin(angle), th_cos(angle)), -1);
    return th_reshape(pairs, TH_INTS(1, POSITIONS, WIDTH));
}

static th_tensor *embed(struct transformer *net, th_tensor *words)
{
    th_tensor *x = th_mul_scalar(th_forward(net->embedding, words), TH_S(sqrt(WIDTH)));
    th_tensor *positions = th_slice(net->positions, 1, TH_INT(0), TH_INT(th_size(words, 1)));
    return th_forward(net->dropout, th_add(x, positions));
}

static th_tensors forward(th_module *self, th_tensors inputs)
{
    struct transformer *net = th_module_data(self);
    th_tensor *words = inputs.data[0], *target = inputs.data[1];
    th_device device = th_device_of(words);
    if (net->positions == NULL || th_device_of(net->positions).type != device.type) th_assign(&net->positions, position_table(device));
    if (net->mask == NULL || th_size(net->mask, 0) != th_size(words, 1) || th_device_of(net->mask).type != device.type)
        th_assign(&net->mask, th_nn_generate_square_subsequent_mask(th_size(words, 1), device, TH_FLOAT32));
    th_tensor *source = embed(net, words);
    th_tensor *shifted = embed(net, target);
    th_tensor *x = th_forward(net->transformer, source, shifted, NULL, net->mask);
    x = th_log_softmax_int(th_forward(net->decoder, x), -1);
    return th_list(TH_TENSORS(th_view(x, TH_INTS(-1, net->vocabulary))));
}

static void free_data(void *data)
{
    struct transformer *net = data;
    th_free(net->positions);
    th_free(net->mask);
    free(net);
}

th_module *transformer_new(int64_t vocabulary)
{
    struct transformer *net = calloc(1, sizeof *net);
    th_module *module = th_module_new("Transformer", .data = net, .forward_n = forward, .free_data = free_data);
    if (module == NULL) {
        free(net);
        return NULL;
    }
    net->vocabulary = vocabulary;
    net->dropout = th_register_module(module, "dropout", th_nn_dropout(.p = 0.2));
    net->embedding = th_register_module(module, "embedding", th_nn_embedding(vocabulary, WIDTH));
    net->transformer = th_register_module(module, "transformer",
                                          th_nn_transformer(.d_model = WIDTH, .nhead = HEADS, .num_encoder_layers = LAYERS,
                                                            .num_decoder_layers = LAYERS, .dim_feedforward = WIDTH, .dropout = 0.2,
                                                            .batch_first = true));
    net->decoder = th_register_module(module, "decoder", th_nn_linear(WIDTH, vocabulary));
    return module;
}
