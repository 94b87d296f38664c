/* train_torch.c: trains an image classifier with a plain loop. train_fabric.c is the same program with Fabric. */
#include "../common/progress.h"
#include "hparams.h"
#include "net.h"

#include <stdio.h>

static void train(th_module *model, th_optimizer *optimizer, th_dataloader *loader, th_device device, const struct hparams *hp, long epoch)
{
    struct progress progress;
    progress_begin(&progress, true, epoch, th_dataloader_len(loader), th_dataloader_dataset_len(loader));
    th_train(model, true);
    th_batch batch;
    while (th_dataloader_next(loader, &batch)) {
        TH_SCOPE();
        th_tensor *data = th_to_dtype_layout(batch.data[0], .device = device);
        th_tensor *target = th_to_dtype_layout(batch.data[1], .device = device);
        th_optimizer_zero_grad(optimizer);
        th_tensor *output = th_forward(model, data);
        th_tensor *loss = th_nll_loss(output, target);
        th_backward(loss);
        th_optimizer_step(optimizer);
        if (hp->log_losses != NULL) losses_write(hp->log_losses, th_item(loss));
        if (batch.index == 0 || (batch.index + 1) % hp->log_interval == 0)
            progress_update(&progress, batch.index + 1, batch.length, th_item(loss));
        if (hp->dry_run || batch.index + 1 == hp->limit_batches) break;
    }
    th_dataloader_reset(loader);
    progress_end(&progress);
}

static void test(th_module *model, th_dataloader *loader, th_device device, const struct hparams *hp)
{
    th_eval(model);
    TH_NO_GRAD();
    double loss = 0, correct = 0, samples = 0;
    th_batch batch;
    while (th_dataloader_next(loader, &batch)) {
        TH_SCOPE();
        th_tensor *data = th_to_dtype_layout(batch.data[0], .device = device);
        th_tensor *target = th_to_dtype_layout(batch.data[1], .device = device);
        th_tensor *output = th_forward(model, data);
        loss += th_item(th_nll_loss(output, target, .reduction = TH_REDUCTION_SUM));
        correct += th_item(th_sum(th_eq(th_argmax(output, TH_INT(1)), target)));
        samples += (double)batch.length;
        if (hp->dry_run || batch.index + 1 == hp->limit_batches) break;
    }
    th_dataloader_reset(loader);
    if (th_error() == TH_OK)
        printf("\nTest set: Average loss: %.4f, Accuracy: %.2f%%\n\n", loss / samples, 100 * correct / samples);
}

int main(int argc, char **argv)
{
    struct hparams hp = hparams_parse(argc, argv, false);
    if (hp.threads > 0) th_set_num_threads((int)hp.threads);
    th_device device = th_device_parse(hp.device);
    th_manual_seed((uint64_t)hp.seed);

    th_dataset *train_images = images_new(hp.data, true), *test_images = images_new(hp.data, false);
    th_dataloader *train_loader = th_dataloader_new(train_images, hp.batch_size, .shuffle = true, .num_workers = (int)hp.num_workers);
    th_dataloader *test_loader = th_dataloader_new(test_images, hp.batch_size, .num_workers = (int)hp.num_workers);

    th_module *model = net_new();
    th_module_to(model, device, TH_DTYPE_NONE);
    th_optimizer *optimizer = th_optim_adadelta(th_parameters(model), .lr = hp.lr);
    th_scheduler *scheduler = th_lr_scheduler_step_lr(optimizer, 1, .gamma = hp.gamma);

    for (long epoch = 1; epoch <= hp.epochs && th_error() == TH_OK; epoch++) {
        train(model, optimizer, train_loader, device, &hp, epoch);
        test(model, test_loader, device, &hp);
        th_scheduler_step(scheduler);
        if (hp.dry_run) break;
    }
    if (hp.save_model) {
        th_value *state = th_module_state_dict(model);
        th_save(state, "mnist_cnn.pt");
        th_value_free(state);
    }

    th_scheduler_free(scheduler);
    th_optimizer_free(optimizer);
    th_module_free(model);
    th_dataloader_free(train_loader);
    th_dataloader_free(test_loader);
    return th_error() == TH_OK ? 0 : 1;
}
