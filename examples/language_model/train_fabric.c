/* train_fabric.c: trains a language model with Fabric. The numbered lines are what differs from train_torch.c. */
#include "../common/progress.h"
#include "corpus.h"
#include "hparams.h"
#include "transformer.h"

#include <math.h>
#include <stdio.h>

enum { BLOCK = 35 };

static void train(fabric *fab, th_module *model, th_optimizer *optimizer, th_dataloader *loader, const struct hparams *hp, long epoch)
{
    struct progress progress;
    progress_begin(&progress, fabric_is_global_zero(fab), epoch, th_dataloader_len(loader), th_dataloader_dataset_len(loader));
    th_train(model, true);
    th_batch batch;
    while (th_dataloader_next(loader, &batch)) {
        TH_SCOPE();
        th_tensor *input = batch.data[0]; /* 4: no device moves */
        th_tensor *target = batch.data[1];
        th_tensor *output = th_forward(model, input, target);
        th_tensor *loss = th_nll_loss(output, th_view(target, TH_INTS(-1)));
        fabric_backward(fab, loss); /* 5 */
        fabric_clip_gradients(fab, model, optimizer, .clip_val = hp->clip_val);
        th_optimizer_step(optimizer);
        th_optimizer_zero_grad(optimizer);
        if (hp->log_losses != NULL) losses_write(hp->log_losses, th_item(loss));
        if (batch.index == 0 || (batch.index + 1) % hp->log_interval == 0)
            progress_update(&progress, batch.index + 1, batch.length, th_item(loss));
        if (hp->dry_run || batch.index + 1 == hp->limit_batches) break;
    }
    th_dataloader_reset(loader);
    progress_end(&progress);
}

static void validate(fabric *fab, th_module *model, th_dataloader *loader, const struct hparams *hp, long epoch)
{
    th_eval(model);
    TH_NO_GRAD();
    double loss = 0, batches = 0;
    th_batch batch;
    while (th_dataloader_next(loader, &batch)) {
        TH_SCOPE();
        th_tensor *input = batch.data[0]; /* 4: no device moves */
        th_tensor *target = batch.data[1];
        th_tensor *output = th_forward(model, input, target);
        loss += th_item(th_nll_loss(output, th_view(target, TH_INTS(-1))));
        batches += 1;
        if (hp->dry_run || batch.index + 1 == hp->limit_batches) break;
    }
    th_dataloader_reset(loader);
    loss = fabric_all_reduce_number(fab, loss, "sum"); /* each process has seen its part of the text */
    batches = fabric_all_reduce_number(fab, batches, "sum");
    if (th_error() == TH_OK)
        fabric_print(fab, "epoch: %ld - val loss %.4f - perplexity %.2f\n", epoch, loss / batches, exp(loss / batches));
}

int main(int argc, char **argv)
{
    struct hparams hp = hparams_parse(argc, argv, true);
    if (hp.threads > 0) th_set_num_threads((int)hp.threads);
    fabric *fab = fabric_new(.accelerator = hp.accelerator, .strategy = hp.strategy, .devices = hp.devices, .precision = hp.precision); /* 1 */
    if (!fabric_is_launched(fab)) fabric_launch(fab); /* 2; `fabric run` has done it already */
    fabric_seed_everything(hp.seed);

    int64_t vocabulary;
    th_dataset *corpus = corpus_new(hp.data, BLOCK, &vocabulary), *parts[3] = {NULL};
    corpus_split(corpus, parts);
    th_dataloader *train_loader = th_dataloader_new(parts[0], hp.batch_size, .shuffle = true);
    th_dataloader *val_loader = th_dataloader_new(parts[1], hp.batch_size);
    th_dataset_free(parts[2]);

    th_module *model = transformer_new(vocabulary);
    th_optimizer *optimizer = th_optim_sgd(th_parameters(model), .lr = hp.lr);
    fabric_setup(fab, model, optimizer); /* 3 */
    fabric_setup_dataloaders(fab, train_loader, val_loader);

    for (long epoch = 0; epoch < hp.epochs && th_error() == TH_OK; epoch++) {
        train(fab, model, optimizer, train_loader, &hp, epoch);
        validate(fab, model, val_loader, &hp, epoch);
        if (hp.dry_run) break;
    }

    th_optimizer_free(optimizer);
    th_module_free(model);
    th_dataloader_free(train_loader);
    th_dataloader_free(val_loader);
    return fabric_finish(fab);
}
