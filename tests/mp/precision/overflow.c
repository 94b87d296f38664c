/* BC-049: two ranks under 16-mixed, an infinite gradient on rank 1 only (after the gradients were averaged, as a shard of its own
 * could have it). Both must skip that step, lower the scale and go on with equal weights. Exits with 1 and says what was
 * different otherwise. */
#include <cfabric/cfabric.h>
#include <cfabric/ops.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 6, BAD_STEP = 3 };

/* True when both ranks hold the same number; says so otherwise. */
static bool agree(fabric *fab, const char *what, int step, double mine)
{
    TH_SCOPE();
    th_tensor *all = fabric_all_gather(fab, th_tensor_scalar(TH_S(mine), TH_FLOAT64));
    double both[2] = {0, 1};
    if (th_copy_to(all, both, sizeof both, TH_FLOAT64) != TH_OK) return false;
    if (both[0] == both[1]) return true;
    fprintf(stderr, "step %d: %s is %.17g on rank 0 and %.17g on rank 1\n", step, what, both[0], both[1]);
    return false;
}

static double total(th_module *model)
{
    TH_SCOPE();
    return th_item(th_sum(th_to_dtype(th_module_parameter(model, "weight"), TH_FLOAT64)));
}

static int train(fabric *fab, th_grad_scaler *scaler, bool clip)
{
    th_manual_seed(7);
    th_module *model = th_nn_linear(16, 4);
    th_optimizer *sgd = th_optim_sgd(th_parameters(model), .lr = 0.05);
    fabric_setup(fab, model, sgd);
    bool fine = true;
    for (int step = 0; step < STEPS && th_error() == TH_OK; step++) {
        TH_SCOPE();
        double before = total(model), scale = th_grad_scaler_get_scale(scaler);
        th_optimizer_zero_grad(sgd);
        th_tensor *out = th_forward(model, th_randn(TH_INTS(8, 16)));
        fabric_backward(fab, th_mean(th_mul(out, out)));
        th_tensor *grad = th_grad(th_module_parameter(model, "weight"));
        if (step == BAD_STEP && fabric_global_rank(fab) == 1) th_fill_scalar_(grad, TH_S((double)NAN));
        if (clip) fabric_clip_gradients(fab, model, sgd, .max_norm = 1.0);
        th_optimizer_step(sgd);
        bool skipped = total(model) == before, lowered = th_grad_scaler_get_scale(scaler) == scale / 2;
        if (skipped != (step == BAD_STEP) || lowered != (step == BAD_STEP)) {
            fprintf(stderr, "rank %d, step %d: skipped %d, lowered %d\n", fabric_global_rank(fab), step, skipped, lowered);
            fine = false;
        }
        fine = agree(fab, "the weights' sum", step, total(model)) && fine;
        fine = agree(fab, "the scale", step, th_grad_scaler_get_scale(scaler)) && fine;
    }
    th_optimizer_free(sgd);
    th_module_free(model);
    return fine && th_error() == TH_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    th_grad_scaler *scaler = th_grad_scaler_new(.init_scale = 256.0);
    fabric_precision *mixed =
        fabric_precision_mixed("16-mixed", .device = TH_DEVICE_CPU, .scaler = th_grad_scaler_retain(scaler));
    if (th_error() == TH_ERR_UNAVAILABLE) {
        printf("skipped: %s\n", th_error_message());
        th_grad_scaler_free(scaler);
        return 77;
    }
    fabric *fab =
        fabric_new(.accelerator = "cpu", .devices = "2", .strategy = "ddp", .plugins = FABRIC_PLUGINS(fabric_plugin(mixed)));
    fabric_launch(fab);
    int code = train(fab, scaler, argc > 1 && strcmp(argv[1], "clip") == 0);
    if (code == 0) printf("rank %d of %d: skipped and went on\n", fabric_global_rank(fab), fabric_world_size(fab));
    th_grad_scaler_free(scaler);
    return fabric_finish(fab) != 0 ? 1 : code;
}
