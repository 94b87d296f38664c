/* net.h: the convolutional network of PyTorch's MNIST example, and its data. */
#ifndef IMAGE_CLASSIFIER_NET_H
#define IMAGE_CLASSIFIER_NET_H

#include <cfabric/cfabric.h>

/* Input (N, 1, 28, 28), output (N, 10): logarithms of probabilities. [owned] */
th_module *net_new(void);

/* The training or test images below a folder of MNIST files, normalised. [owned] */
th_dataset *images_new(const char *folder, bool train);

#endif
