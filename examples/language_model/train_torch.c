/* train_torch.c: trains a language model with a plain loop. train_fabric.c is the same program with Fabric. */
#include "../common/progress.h"
#include "corpus.h"
#include "hparams.h"
#include "transformer.h"

#include <math.h>
#include <stdio.h>

enum { BLOCK = 35 };

static void train(th_module *model, th_optimizer *optimizer, th_dataloader *loader, th_device device, const struct hparams *hp, long epoch)
{
    struct progress progress;
    progress_begin(&progress, true, epoch, th_dataloader_len(loader), th_dataloader_dataset_len(loader));
    th_train(model, true);
    th_batch batch;
    while (th_dataloader_next(loader, &batch)) {
        TH_SCOPE();
        th_tensor *input = th_to_dtype_layout(batch.data[0], .device = device);
        th_tensor *target = th_to_dtype_layout(batch.data[1], .device = device);
        th_tensor *output = th_forward(model, input, target);
        th_tensor *loss = th_nll_loss(output, th_view(target, TH_INTS(-1)));
        th_backward(loss);
        th_nn_utils_clip_grad_value_(th_parameters(model), hp->clip_val);
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

static void validate(th_module *model, th_dataloader *loader, th_device device, const struct hparams *hp, long epoch)
{
    th_eval(model);
    TH_NO_GRAD();
    double loss = 0, batches = 0;
    th_batch batch;
    while (th_dataloader_next(loader, &batch)) {
        TH_SCOPE();
        th_tensor *input = th_to_dtype_layout(batch.data[0], .device = device);
        th_tensor *target = th_to_dtype_layout(batch.data[1], .device = device);
        th_tensor *output = th_forward(model, input, target);
        loss += th_item(th_nll_loss(output, th_view(target, TH_INTS(-1))));
        batches += 1;
        if (hp->dry_run || batch.index + 1 == hp->limit_batches) break;
    }
    th_dataloader_reset(loader);
    if (th_error() == TH_OK) printf("epoch: %ld - val loss %.4f - perplexity %.2f\n", epoch, loss / batches, exp(loss / batches));
}

int main(int argc, char **argv)
{
    struct hparams hp = hparams_parse(argc, argv, false);
    if (hp.threads > 0) th_set_num_threads((int)hp.threads);
    th_manual_seed((uint64_t)hp.seed);
    th_device device = th_device_parse(hp.device);

    int64_t vocabulary;
    th_dataset *corpus = corpus_new(hp.data, BLOCK, &vocabulary), *parts[3] = {NULL};
    corpus_split(corpus, parts);
    th_dataloader *train_loader = th_dataloader_new(parts[0], hp.batch_size, .shuffle = true);
    th_dataloader *val_loader = th_dataloader_new(parts[1], hp.batch_size);
    th_dataset_free(parts[2]);

    th_module *model = transformer_new(vocabulary);
    th_module_to(model, device, TH_DTYPE_NONE);
    th_optimizer *optimizer = th_optim_sgd(th_parameters(model), .lr = hp.lr);

    for (long epoch = 0; epoch < hp.epochs && th_error() == TH_OK; epoch++) {
        train(model, optimizer, train_loader, device, &hp, epoch);
        validate(model, val_loader, device, &hp, epoch);
        if (hp.dry_run) break;
    }

    th_optimizer_free(optimizer);
    th_module_free(model);
    th_dataloader_free(train_loader);
    th_dataloader_free(val_loader);
    return th_error() == TH_OK ? 0 : 1;
}
