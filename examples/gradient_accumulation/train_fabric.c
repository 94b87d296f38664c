/* train_fabric.c: several small batches make one optimizer step, and processes exchange gradients only once per step. */
#include "../common/options.h"
#include "../common/progress.h"

#include <cfabric/cfabric.h>
#include <stdio.h>

struct hparams {
    long batch_size, epochs, accumulate, seed, limit_batches;
    double lr;
    const char *data, *accelerator, *strategy, *devices, *precision, *log_losses;
};

static struct hparams hparams_parse(int argc, char **argv)
{
    struct hparams hp = {.batch_size = 32, .epochs = 2, .accumulate = 4, .seed = 1, .lr = 1e-3,
                         .data = "/usr/share/datasets/fashion-mnist", .accelerator = "auto", .strategy = "auto", .devices = "auto"};
    const struct option options[] = {
        {"batch-size", OPTION_INT, &hp.batch_size, 1, "samples per backward and process"},
        {"accumulate", OPTION_INT, &hp.accumulate, 1, "backwards per optimizer step"},
        {"epochs", OPTION_INT, &hp.epochs, 0, "passes over the training images"},
        {"lr", OPTION_DOUBLE, &hp.lr, 0, "learning rate"},
        {"seed", OPTION_INT, &hp.seed, 0, "random seed"},
        {"data", OPTION_TEXT, &hp.data, 0, "folder with the MNIST files"},
        {"limit-batches", OPTION_INT, &hp.limit_batches, 0, "ends each pass after this many batches; 0: no limit"},
        {"log-losses", OPTION_TEXT, &hp.log_losses, 0, "file for every batch's exact loss"},
        {"accelerator", OPTION_TEXT, &hp.accelerator, 0, "hardware to train on"},
        {"strategy", OPTION_TEXT, &hp.strategy, 0, "auto, ddp, ..."},
        {"devices", OPTION_TEXT, &hp.devices, 0, "how many, or which"},
        {"precision", OPTION_TEXT, &hp.precision, 0, "32-true, bf16-mixed, ..."},
    };
    options_parse(argc, argv, "Trains a small network with gradient accumulation.", options, sizeof options / sizeof *options);
    return hp;
}

static th_module *net_new(void)
{
    return th_nn_sequential(th_nn_flatten(), th_nn_linear(784, 128), th_nn_relu(), th_nn_linear(128, 10));
}

static th_dataloader *loader_new(const struct hparams *hp)
{
    char images[4096], labels[4096];
    snprintf(images, sizeof images, "%s/train-images-idx3-ubyte.gz", hp->data);
    snprintf(labels, sizeof labels, "%s/train-labels-idx1-ubyte.gz", hp->data);
    return th_dataloader_new(th_dataset_idx(images, labels, .mean = TH_DOUBLES(0.5), .std = TH_DOUBLES(0.5)), hp->batch_size,
                             .shuffle = true);
}

static void train(fabric *fab, th_module *model, th_optimizer *optimizer, th_dataloader *loader, const struct hparams *hp, long epoch)
{
    struct progress progress;
    int64_t batches = th_dataloader_len(loader);
    progress_begin(&progress, fabric_is_global_zero(fab), epoch, batches, th_dataloader_dataset_len(loader));
    th_batch batch;
    while (th_dataloader_next(loader, &batch)) {
        TH_SCOPE();
        bool last = batch.index + 1 == batches || batch.index + 1 == hp->limit_batches;
        bool accumulating = (batch.index + 1) % hp->accumulate != 0 && !last;
        th_tensor *loss;
        {
            FABRIC_NO_BACKWARD_SYNC(fab, model, accumulating); /* forward and backward both belong inside */
            loss = th_cross_entropy_loss(th_forward(model, batch.data[0]), batch.data[1]);
            fabric_backward(fab, th_div_scalar(loss, TH_S((double)hp->accumulate)));
        }
        if (hp->log_losses != NULL) losses_write(hp->log_losses, th_item(loss));
        if (!accumulating) {
            th_optimizer_step(optimizer);
            th_optimizer_zero_grad(optimizer);
        }
        if (batch.index % 100 == 0) progress_update(&progress, batch.index + 1, batch.length, th_item(loss));
        if (last) break;
    }
    th_dataloader_reset(loader);
    progress_end(&progress);
}

int main(int argc, char **argv)
{
    struct hparams hp = hparams_parse(argc, argv);
    fabric *fab = fabric_new(.accelerator = hp.accelerator, .strategy = hp.strategy, .devices = hp.devices, .precision = hp.precision);
    if (!fabric_is_launched(fab)) fabric_launch(fab);
    fabric_seed_everything(hp.seed);

    th_dataloader *loader = loader_new(&hp);
    th_module *model = net_new();
    th_optimizer *optimizer = th_optim_adam(th_parameters(model), .lr = hp.lr);
    fabric_setup(fab, model, optimizer);
    fabric_setup_dataloaders(fab, loader);
    for (long epoch = 1; epoch <= hp.epochs && th_error() == TH_OK; epoch++) train(fab, model, optimizer, loader, &hp, epoch);

    th_optimizer_free(optimizer);
    th_module_free(model);
    th_dataloader_free(loader);
    return fabric_finish(fab);
}
