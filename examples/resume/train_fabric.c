/* train_fabric.c: a run that can stop at any step and go on later, bit for bit. The convention: `--resume FILE` goes on from FILE if it is
 * there and saves into it; `fabric run --max-restarts N` starts the same line again after a failure, which then resumes by itself. */
#include "../common/options.h"
#include "../common/progress.h"

#include <cfabric/cfabric.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct hparams {
    long batch_size, epochs, samples, seed, save_every, fail_at, num_workers;
    double lr, gamma;
    const char *data, *resume, *accelerator, *strategy, *devices;
};

/* Everything that decides the next step. */
struct run {
    fabric *fab;
    th_module *model;
    th_optimizer *optimizer;
    th_scheduler *scheduler;
    th_dataloader *loader;
    int64_t step;
};

static struct hparams hparams_parse(int argc, char **argv)
{
    struct hparams hp = {.batch_size = 32, .epochs = 2, .samples = 60000, .seed = 1, .save_every = 100, .lr = 1e-3, .gamma = 0.7,
                         .data = "/usr/share/datasets/fashion-mnist", .accelerator = "auto", .strategy = "auto", .devices = "auto"};
    const struct option options[] = {
        {"batch-size", OPTION_INT, &hp.batch_size, 1, "samples per step and process"},
        {"epochs", OPTION_INT, &hp.epochs, 1, "passes over the training images"},
        {"samples", OPTION_INT, &hp.samples, 1, "how many of the training images to use"},
        {"lr", OPTION_DOUBLE, &hp.lr, 0, "learning rate"},
        {"gamma", OPTION_DOUBLE, &hp.gamma, 0, "the rate is multiplied by this after each epoch"},
        {"seed", OPTION_INT, &hp.seed, 0, "random seed"},
        {"data", OPTION_TEXT, &hp.data, 0, "folder with the MNIST files"},
        {"num-workers", OPTION_INT, &hp.num_workers, 0, "threads that read batches ahead"},
        {"resume", OPTION_TEXT, &hp.resume, 0, "checkpoint to go on from, if it is there, and to save into"},
        {"save-every", OPTION_INT, &hp.save_every, 1, "steps between checkpoints"},
        {"fail-at", OPTION_INT, &hp.fail_at, 0, "fails once at this step, to show a restart; 0: never"},
        {"accelerator", OPTION_TEXT, &hp.accelerator, 0, "hardware to train on"},
        {"strategy", OPTION_TEXT, &hp.strategy, 0, "auto, ddp, ..."},
        {"devices", OPTION_TEXT, &hp.devices, 0, "how many, or which"},
    };
    options_parse(argc, argv, "Trains a small network; can be stopped and resumed.", options, sizeof options / sizeof *options);
    return hp;
}

static th_dataloader *loader_new(const struct hparams *hp)
{
    char images[4096], labels[4096];
    snprintf(images, sizeof images, "%s/train-images-idx3-ubyte.gz", hp->data);
    snprintf(labels, sizeof labels, "%s/train-labels-idx1-ubyte.gz", hp->data);
    th_dataset *all = th_dataset_idx(images, labels, .mean = TH_DOUBLES(0.5), .std = TH_DOUBLES(0.5));
    long n = hp->samples < 60000 ? hp->samples : 60000;
    int64_t *first = malloc((size_t)n * sizeof *first);
    for (long i = 0; first != NULL && i < n; i++) first[i] = i;
    th_dataset *part = th_dataset_subset(all, (th_ints){first, (size_t)n});
    free(first);
    return th_dataloader_new(part, hp->batch_size, .shuffle = true, .num_workers = (int)hp->num_workers);
}

/* The values are borrowed objects: saving asks them for their state, loading puts it back into them. */
static th_value *state_of(const struct run *r)
{
    return TH_STATE({"model", th_state(r->model)}, {"optimizer", th_state(r->optimizer)}, {"scheduler", th_state(r->scheduler)},
                    {"loader", th_state(r->loader)}, {"rng", th_state(th_default_generator())}, {"step", th_state(r->step)});
}

static void resume(struct run *r, const char *path)
{
    th_value *state = state_of(r);
    th_value_free(fabric_load(r->fab, path, state));
    r->step = th_value_as_int(th_value_get(state, "step"), 0);
    th_value_free(state);
    fabric_print(r->fab, "resumed at step %lld\n", (long long)r->step);
}

static void step(struct run *r, const th_batch *batch)
{
    TH_SCOPE();
    th_optimizer_zero_grad(r->optimizer);
    th_tensor *loss = th_cross_entropy_loss(th_forward(r->model, batch->data[0]), batch->data[1]);
    fabric_backward(r->fab, loss);
    th_optimizer_step(r->optimizer);
    r->step++;
    if (r->step % 10 == 0) fabric_print(r->fab, "step %lld loss %a\n", (long long)r->step, th_item(loss));
}

static void train(struct run *r, const struct hparams *hp)
{
    const char *restarts = getenv("TORCHELASTIC_RESTART_COUNT"); /* set by `fabric run`; a restarted job does not fail again */
    bool may_fail = hp->fail_at > 0 && (restarts == NULL || atoi(restarts) == 0);
    do {
        th_batch batch;
        while (th_dataloader_next(r->loader, &batch)) {
            step(r, &batch);
            if (hp->resume != NULL && r->step % hp->save_every == 0) fabric_save(r->fab, hp->resume, state_of(r), .async = true);
            if (may_fail && r->step == hp->fail_at) {
                fabric_save_wait(r->fab);
                _exit(3); /* as a crash would */
            }
        }
        th_scheduler_step(r->scheduler);
    } while (th_error() == TH_OK && th_dataloader_epoch(r->loader) < hp->epochs);
}

/* One number that differs if any bit of any weight does. */
static unsigned long long digest(th_module *model)
{
    TH_SCOPE();
    unsigned long long hash = 1469598103934665603u;
    th_tensors parameters = th_parameters(model);
    for (size_t i = 0; i < parameters.size; i++) {
        const unsigned char *bytes = th_data_ptr(parameters.data[i]);
        for (size_t k = 0; bytes != NULL && k < th_nbytes(parameters.data[i]); k++) hash = (hash ^ bytes[k]) * 1099511628211u;
    }
    return hash;
}

int main(int argc, char **argv)
{
    struct hparams hp = hparams_parse(argc, argv);
    fabric *fab = fabric_new(.accelerator = hp.accelerator, .strategy = hp.strategy, .devices = hp.devices);
    if (!fabric_is_launched(fab)) fabric_launch(fab);
    fabric_seed_everything(hp.seed);

    struct run r = {.fab = fab, .loader = loader_new(&hp)};
    r.model = th_nn_sequential(th_nn_flatten(), th_nn_linear(784, 128), th_nn_relu(), th_nn_dropout(.p = 0.2), th_nn_linear(128, 10));
    r.optimizer = th_optim_adamw(th_parameters(r.model), .lr = hp.lr);
    r.scheduler = th_lr_scheduler_step_lr(r.optimizer, 1, .gamma = hp.gamma);
    fabric_setup(fab, r.model, r.optimizer);
    fabric_setup_dataloaders(fab, r.loader);
    if (hp.resume != NULL && access(hp.resume, F_OK) == 0) resume(&r, hp.resume);
    if (th_error() == TH_OK) train(&r, &hp);
    if (th_error() == TH_OK) fabric_print(fab, "weights %016llx after %lld steps\n", digest(r.model), (long long)r.step);

    th_scheduler_free(r.scheduler);
    th_optimizer_free(r.optimizer);
    th_module_free(r.model);
    th_dataloader_free(r.loader);
    return fabric_finish(fab);
}
