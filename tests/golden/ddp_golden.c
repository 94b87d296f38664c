/* Two ranks under strategy "ddp": losses of both ranks and final weights, as lines. ddp_golden.py runs the same in Lightning Fabric.
 *
 *     plain: convolutional classifier with dropout, Adadelta, 100 steps    accumulate: 3 micro-batches per step without averaging
 *     norm: batch normalisation (buffers follow rank 0)                    buckets: many small buckets, gradients as their views */
#include <cfabric/cfabric.h>
#include <cfabric/strategies.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 1600, BATCH = 8 };

typedef struct variant {
    const char *name;
    int steps, accumulate;
    bool norm, adamw;
} variant;

static th_module *net(const variant *v)
{
    if (v->norm)
        return th_nn_sequential(th_nn_conv2d(1, 8, TH_INTS(3, 3)), th_nn_batch_norm2d(8), th_nn_relu(), th_nn_max_pool2d(TH_INTS(4, 4)),
                                th_nn_flatten(), th_nn_linear(288, 10));
    return th_nn_sequential(th_nn_conv2d(1, 8, TH_INTS(3, 3)), th_nn_relu(), th_nn_max_pool2d(TH_INTS(2, 2)), th_nn_dropout(.p = 0.25),
                            th_nn_flatten(), th_nn_linear(1352, 64), th_nn_relu(), th_nn_linear(64, 10));
}

static void show_losses(fabric *fab, const char *name, int step, th_tensor *loss)
{
    th_tensor *all = fabric_all_gather(fab, th_detach(loss));
    if (fabric_global_rank(fab) != 0) return;
    printf("%s.loss.%d", name, step);
    for (int64_t i = 0; i < th_numel(all); i++) printf(" %a", th_item(th_select_int(all, 0, i)));
    printf("\n");
}

static const char *variant_name;

static int show_tensor(const char *name, th_tensor *tensor, void *user)
{
    fabric *fab = user;
    uint64_t hash = 14695981039346656037u;
    const unsigned char *bytes = th_data_ptr(tensor);
    for (size_t i = 0; i < th_nbytes(tensor); i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    if (fabric_global_rank(fab) == 0) printf("%s.%s %016llx\n", variant_name, name, (unsigned long long)hash);
    return 0;
}

static void train(fabric *fab, const variant *v)
{
    fabric_seed_everything(1);
    th_tensor *images = th_keep(th_randn(TH_INTS(SAMPLES, 1, 28, 28)));
    th_tensor *labels = th_keep(th_randint(10, TH_INTS(SAMPLES), .dtype = TH_INT64));
    th_dataset *data = th_dataset_tensor(TH_TENSORS(images, labels));
    th_dataloader *loader = th_dataloader_new(data, BATCH, .shuffle = true);
    th_module *model = net(v);
    th_optimizer *optimizer = v->adamw ? th_optim_adamw(th_parameters(model), .lr = 1e-3)
                                       : th_optim_adadelta(th_parameters(model), .lr = 1.0);
    fabric_setup(fab, model, optimizer);
    fabric_setup_dataloaders(fab, loader);
    th_batch batch;
    while (th_dataloader_next(loader, &batch)) {
        TH_SCOPE();
        bool last = (batch.index + 1) % v->accumulate == 0;
        FABRIC_NO_BACKWARD_SYNC(fab, model, !last);
        th_tensor *loss = th_cross_entropy_loss(th_forward(model, batch.data[0]), batch.data[1]);
        fabric_backward(fab, loss);
        if (last) {
            th_optimizer_step(optimizer);
            th_optimizer_zero_grad(optimizer);
        }
        show_losses(fab, v->name, (int)batch.index, loss);
        if (batch.index + 1 == v->steps) break;
    }
    th_dataloader_reset(loader);
    variant_name = v->name;
    th_named_parameters(model, show_tensor, fab);
    th_named_buffers(model, show_tensor, fab);
    th_optimizer_free(optimizer);
    th_module_free(model);
    th_dataloader_free(loader);
    th_free(images);
    th_free(labels);
}

int main(int argc, char **argv)
{
    static const variant variants[] = {
        {"plain", 100, 1, false, false}, {"accumulate", 30, 3, false, true}, {"norm", 30, 1, true, true}, {"buckets", 30, 1, false, true}};
    th_set_num_threads(1);
    bool buckets = argc > 1 && strcmp(argv[1], "buckets") == 0;
    fabric *fab = fabric_new(.accelerator = "cpu", .devices = "2",
                             .strategy_object = buckets ? fabric_strategy_ddp_new(.bucket_cap_mb = 0.01, .gradient_as_bucket_view = true)
                                                        : fabric_strategy_ddp_new());
    fabric_launch(fab);
    th_set_num_threads(1);
    for (int i = 0; i < 4 && th_error() == TH_OK; i++)
        if ((strcmp(variants[i].name, "buckets") == 0) == buckets) train(fab, &variants[i]);
    return fabric_finish(fab);
}
