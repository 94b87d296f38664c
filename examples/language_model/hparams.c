/* hparams.c: what can be set from the command line. */
#include "hparams.h"

#include "../common/options.h"

struct hparams hparams_parse(int argc, char **argv, bool with_fabric)
{
    struct hparams hp = {
        .batch_size = 20, .epochs = 20, .lr = 0.1, .clip_val = 0.25, .seed = 42, .log_interval = 200,
        .data = "wikitext-2.txt",
        .device = "cpu", .accelerator = "auto", .strategy = "auto", .devices = "auto",
    };
    const struct option options[] = {
        {"data", OPTION_TEXT, &hp.data, 0, "text file, for example WikiText-2"},
        {"batch-size", OPTION_INT, &hp.batch_size, 1, "blocks of 35 words per step and process"},
        {"epochs", OPTION_INT, &hp.epochs, 0, "passes over the training part"},
        {"lr", OPTION_DOUBLE, &hp.lr, 0, "learning rate"},
        {"clip-val", OPTION_DOUBLE, &hp.clip_val, 0, "largest absolute value of a gradient's element"},
        {"dry-run", OPTION_FLAG, &hp.dry_run, 0, "one step only"},
        {"seed", OPTION_INT, &hp.seed, 0, "random seed"},
        {"log-interval", OPTION_INT, &hp.log_interval, 1, "steps between two reports"},
        {"threads", OPTION_INT, &hp.threads, 0, "threads of libtorch; 0: its own choice"},
        {"limit-batches", OPTION_INT, &hp.limit_batches, 0, "ends each pass after this many steps; 0: no limit"},
        {"log-losses", OPTION_TEXT, &hp.log_losses, 0, "file for every step's exact loss"},
        {with_fabric ? "accelerator" : "device", OPTION_TEXT, with_fabric ? &hp.accelerator : &hp.device, 0, "hardware to train on"},
        {"strategy", OPTION_TEXT, &hp.strategy, 0, "auto, ddp, ..."},
        {"devices", OPTION_TEXT, &hp.devices, 0, "how many, or which"},
        {"precision", OPTION_TEXT, &hp.precision, 0, "32-true, bf16-mixed, ..."},
    };
    size_t n = sizeof options / sizeof *options;
    options_parse(argc, argv, "Trains a Transformer to predict the next word of a text.", options, with_fabric ? n : n - 3);
    return hp;
}
