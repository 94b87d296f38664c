/* net.c: the convolutional network of PyTorch's MNIST example, and its data. */
#include "net.h"

#include <stdio.h>
#include <stdlib.h>

struct net {
    th_module *conv1, *conv2, *dropout1, *dropout2, *fc1, *fc2;
};

static th_tensor *forward(th_module *self, th_tensor *x)
{
    struct net *net = th_module_data(self);
    x = th_relu(th_forward(net->conv1, x));
    x = th_relu(th_forward(net->conv2, x));
    x = th_max_pool2d(x, TH_INTS(2, 2));
    x = th_forward(net->dropout1, x);
    x = th_flatten_using_ints(x, .start_dim = 1);
    x = th_relu(th_forward(net->fc1, x));
    x = th_forward(net->dropout2, x);
    return th_log_softmax_int(th_forward(net->fc2, x), 1);
}

th_module *net_new(void)
{
    struct net *net = calloc(1, sizeof *net);
    th_module *module = th_module_new("Net", .data = net, .forward = forward, .free_data = free);
    if (module == NULL) {
        free(net);
        return NULL;
    }
    net->conv1 = th_register_module(module, "conv1", th_nn_conv2d(1, 32, TH_INTS(3)));
    net->conv2 = th_register_module(module, "conv2", th_nn_conv2d(32, 64, TH_INTS(3)));
    net->dropout1 = th_register_module(module, "dropout1", th_nn_dropout(.p = 0.25));
    net->dropout2 = th_register_module(module, "dropout2", th_nn_dropout(.p = 0.5));
    net->fc1 = th_register_module(module, "fc1", th_nn_linear(9216, 128));
    net->fc2 = th_register_module(module, "fc2", th_nn_linear(128, 10));
    return module;
}

th_dataset *images_new(const char *folder, bool train)
{
    const char *part = train ? "train" : "t10k";
    char images[4096], labels[4096];
    snprintf(images, sizeof images, "%s/%s-images-idx3-ubyte.gz", folder, part);
    snprintf(labels, sizeof labels, "%s/%s-labels-idx1-ubyte.gz", folder, part);
    return th_dataset_idx(images, labels, .mean = TH_DOUBLES(0.1307), .std = TH_DOUBLES(0.3081));
}
