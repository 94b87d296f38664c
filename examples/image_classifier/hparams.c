/* hparams.c: what can be set from the command line. */
#include "hparams.h"

#include "../common/options.h"

struct hparams hparams_parse(int argc, char **argv, bool with_fabric)
{
    struct hparams hp = {
        .batch_size = 64, .epochs = 14, .lr = 1.0, .gamma = 0.7, .seed = 1, .log_interval = 10,
        .data = "/usr/share/datasets/fashion-mnist",
        .device = "cpu", .accelerator = "auto", .strategy = "auto", .devices = "auto",
    };
    const struct option common[] = {
        {"batch-size", OPTION_INT, &hp.batch_size, 1, "samples per step and process"},
        {"epochs", OPTION_INT, &hp.epochs, 0, "passes over the training images"},
        {"lr", OPTION_DOUBLE, &hp.lr, 0, "learning rate"},
        {"gamma", OPTION_DOUBLE, &hp.gamma, 0, "factor of the learning rate after each epoch"},
        {"dry-run", OPTION_FLAG, &hp.dry_run, 0, "one step only"},
        {"seed", OPTION_INT, &hp.seed, 0, "random seed"},
        {"log-interval", OPTION_INT, &hp.log_interval, 1, "steps between two reports"},
        {"save-model", OPTION_FLAG, &hp.save_model, 0, "write mnist_cnn.pt at the end"},
        {"data", OPTION_TEXT, &hp.data, 0, "folder with the four MNIST files"},
        {"num-workers", OPTION_INT, &hp.num_workers, 0, "threads that read ahead"},
        {"threads", OPTION_INT, &hp.threads, 0, "threads of libtorch; 0: its own choice"},
        {"limit-batches", OPTION_INT, &hp.limit_batches, 0, "ends each pass after this many steps; 0: no limit"},
        {"log-losses", OPTION_TEXT, &hp.log_losses, 0, "file for every step's exact loss"},
        {with_fabric ? "accelerator" : "device", OPTION_TEXT, with_fabric ? &hp.accelerator : &hp.device, 0, "hardware to train on"},
        {"strategy", OPTION_TEXT, &hp.strategy, 0, "auto, ddp, ..."},
        {"devices", OPTION_TEXT, &hp.devices, 0, "how many, or which"},
        {"precision", OPTION_TEXT, &hp.precision, 0, "32-true, bf16-mixed, ..."},
    };
    size_t n = sizeof common / sizeof *common;
    options_parse(argc, argv, "Trains a convolutional network on images in the MNIST format.", common, with_fabric ? n : n - 3);
    return hp;
}
