/* train_fabric.c: trains an image classifier with Fabric. The numbered lines are what differs from train_torch.c. */
#include "../common/progress.h"
#include "hparams.h"
#include "net.h"

#include <stdio.h>

static void train(fabric *fab, th_module *model, th_optimizer *optimizer, th_dataloader *loader, const struct hparams *hp, long epoch)
{
    struct progress progress;
    progress_begin(&progress, fabric_is_global_zero(fab), epoch, th_dataloader_len(loader), th_dataloader_dataset_len(loader));
    th_train(model, true);
    th_batch batch;
    while (th_dataloader_next(loader, &batch)) {
        TH_SCOPE();
        th_tensor *data = batch.data[0]; /* 4: no device moves */
        th_tensor *target = batch.data[1];
        th_optimizer_zero_grad(optimizer);
        th_tensor *output = th_forward(model, data);
        th_tensor *loss = th_nll_loss(output, target);
        fabric_backward(fab, loss); /* 5 */
        th_optimizer_step(optimizer);
        if (hp->log_losses != NULL) losses_write(hp->log_losses, th_item(loss));
        if (batch.index == 0 || (batch.index + 1) % hp->log_interval == 0)
            progress_update(&progress, batch.index + 1, batch.length, th_item(loss));
        if (hp->dry_run || batch.index + 1 == hp->limit_batches) break;
    }
    th_dataloader_reset(loader);
    progress_end(&progress);
}

static void test(fabric *fab, th_module *model, th_dataloader *loader, const struct hparams *hp)
{
    th_eval(model);
    TH_NO_GRAD();
    double loss = 0, correct = 0, samples = 0;
    th_batch batch;
    while (th_dataloader_next(loader, &batch)) {
        TH_SCOPE();
        th_tensor *data = batch.data[0]; /* 4 */
        th_tensor *target = batch.data[1];
        th_tensor *output = th_forward(model, data);
        loss += th_item(th_nll_loss(output, target, .reduction = TH_REDUCTION_SUM));
        correct += th_item(th_sum(th_eq(th_argmax(output, TH_INT(1)), target)));
        samples += (double)batch.length;
        if (hp->dry_run || batch.index + 1 == hp->limit_batches) break;
    }
    th_dataloader_reset(loader);
    loss = fabric_all_reduce_number(fab, loss, "sum"); /* each process has seen its part of the images */
    correct = fabric_all_reduce_number(fab, correct, "sum");
    samples = fabric_all_reduce_number(fab, samples, "sum");
    if (th_error() == TH_OK)
        fabric_print(fab, "\nTest set: Average loss: %.4f, Accuracy: %.2f%%\n\n", loss / samples, 100 * correct / samples);
}

int main(int argc, char **argv)
{
    struct hparams hp = hparams_parse(argc, argv, true);
    if (hp.threads > 0) th_set_num_threads((int)hp.threads);
    fabric *fab = fabric_new(.accelerator = hp.accelerator, .strategy = hp.strategy, .devices = hp.devices, .precision = hp.precision); /* 1 */
    if (!fabric_is_launched(fab)) fabric_launch(fab); /* 2; `fabric run` has done it already */
    fabric_seed_everything(hp.seed);

    th_dataset *train_images = images_new(hp.data, true), *test_images = images_new(hp.data, false);
    th_dataloader *train_loader = th_dataloader_new(train_images, hp.batch_size, .shuffle = true, .num_workers = (int)hp.num_workers);
    th_dataloader *test_loader = th_dataloader_new(test_images, hp.batch_size, .num_workers = (int)hp.num_workers);

    th_module *model = net_new();
    th_optimizer *optimizer = th_optim_adadelta(th_parameters(model), .lr = hp.lr);
    th_scheduler *scheduler = th_lr_scheduler_step_lr(optimizer, 1, .gamma = hp.gamma);
    fabric_setup(fab, model, optimizer); /* 3 */
    fabric_setup_dataloaders(fab, train_loader, test_loader);

    for (long epoch = 1; epoch <= hp.epochs && th_error() == TH_OK; epoch++) {
        train(fab, model, optimizer, train_loader, &hp, epoch);
        test(fab, model, test_loader, &hp);
        th_scheduler_step(scheduler);
        if (hp.dry_run) break;
    }
    if (hp.save_model) fabric_save(fab, "mnist_cnn.pt", th_module_state_dict(model));

    th_scheduler_free(scheduler);
    th_optimizer_free(optimizer);
    th_module_free(model);
    th_dataloader_free(train_loader);
    th_dataloader_free(test_loader);
    return fabric_finish(fab);
}
