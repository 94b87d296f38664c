/* nn/loss.c: losses as modules with the inputs (input, target). */
#include <cfabric/nn_modules.h>

#include "nn/module_impl.h"
#include <cfabric/ops.h>
#include <string.h>

typedef struct loss {
    int64_t reduction, ignore_index;
    bool batchmean, log_target;
    double label_smoothing, beta, delta;
} loss;

typedef th_tensor *loss_fn(th_module *self, const loss *l, th_tensor *input, th_tensor *target);

/* The buffers "weight" and "pos_weight", NULL when absent. */
static th_tensor *weight_of(const th_module *self) { return self->buffers.count > 0 ? th__buffer_at(self, 0) : NULL; }
static th_tensor *pos_weight_of(const th_module *self) { return self->buffers.count > 1 ? th__buffer_at(self, 1) : NULL; }

static bool same_size(th_module *self, th_tensor *input, th_tensor *target)
{
    th_ints a = th_sizes(input), b = th_sizes(target);
    if (th__pending() != TH_OK) return false;
    if (a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size * sizeof *a.data) == 0)) return true;
    th__fail(TH_ERR_VALUE, self->name, "target and input have different sizes, expected the same");
    return false;
}

static th_tensor *mse(th_module *self, const loss *l, th_tensor *input, th_tensor *target)
{
    (void)self;
    th_tensors both = th_broadcast_tensors(TH_TENSORS(input, target));
    return both.size == 2 ? th_mse_loss(both.data[0], both.data[1], l->reduction) : NULL;
}

static th_tensor *l1(th_module *self, const loss *l, th_tensor *input, th_tensor *target)
{
    (void)self;
    th_tensors both = th_broadcast_tensors(TH_TENSORS(input, target));
    return both.size == 2 ? th_l1_loss(both.data[0], both.data[1], l->reduction) : NULL;
}

static th_tensor *smooth_l1(th_module *self, const loss *l, th_tensor *input, th_tensor *target)
{
    (void)self;
    th_tensors both = th_broadcast_tensors(TH_TENSORS(input, target));
    if (both.size != 2) return NULL;
    if (l->beta == 0.0) return th_l1_loss(both.data[0], both.data[1], l->reduction);
    return th_smooth_l1_loss(both.data[0], both.data[1], l->reduction, l->beta);
}

static th_tensor *huber(th_module *self, const loss *l, th_tensor *input, th_tensor *target)
{
    (void)self;
    th_tensors both = th_broadcast_tensors(TH_TENSORS(input, target));
    return both.size == 2 ? th_huber_loss(both.data[0], both.data[1], l->reduction, l->delta) : NULL;
}

static th_tensor *nll(th_module *self, const loss *l, th_tensor *input, th_tensor *target)
{
    return th_nll_loss_nd(input, target, weight_of(self), l->reduction, l->ignore_index);
}

static th_tensor *cross_entropy(th_module *self, const loss *l, th_tensor *input, th_tensor *target)
{
    return th_cross_entropy_loss(input, target, weight_of(self), l->reduction, l->ignore_index, l->label_smoothing);
}

static th_tensor *bce(th_module *self, const loss *l, th_tensor *input, th_tensor *target)
{
    if (!same_size(self, input, target)) return NULL;
    th_tensor *weight = weight_of(self);
    if (weight != NULL) weight = th_expand(weight, th_sizes(target));
    return th_binary_cross_entropy(input, target, weight, l->reduction);
}

static th_tensor *bce_with_logits(th_module *self, const loss *l, th_tensor *input, th_tensor *target)
{
    if (!same_size(self, input, target)) return NULL;
    return th_binary_cross_entropy_with_logits(input, target, weight_of(self), pos_weight_of(self), l->reduction);
}

static th_tensor *kl_div(th_module *self, const loss *l, th_tensor *input, th_tensor *target)
{
    (void)self;
    th_tensor *sum = th_kl_div(input, target, l->reduction, .log_target = l->log_target);
    return l->batchmean && th_dim(input) > 0 ? th_div_scalar(sum, TH_S(th_size(input, 0))) : sum;
}

/* ---------------------------------------------------------------- making one */

typedef struct loss_module {
    loss options;
    loss_fn *call;
} loss_module;

static th_tensors loss_forward(th_module *self, th_tensors inputs)
{
    const loss_module *m = self->args.data;
    if (inputs.size != 2) {
        th__fail(TH_ERR_TYPE, "th_forward", "%s takes 2 inputs (input, target), got %zu", self->name, inputs.size);
        return (th_tensors){NULL, 0};
    }
    th_tensor *result = m->call(self, &m->options, inputs.data[0], inputs.data[1]);
    return th__pending() == TH_OK ? th_list(TH_TENSORS(result)) : (th_tensors){NULL, 0};
}

static bool read_reduction(const char *name, const char *reduction, bool batchmean, loss *l)
{
    const char *text = reduction != NULL ? reduction : "mean";
    static const char *const names[] = {"none", "mean", "sum"};
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            l->reduction = i;
            return true;
        }
    if (batchmean && strcmp(text, "batchmean") == 0) {
        l->reduction = TH_REDUCTION_SUM;
        l->batchmean = true;
        return true;
    }
    th__fail(TH_ERR_VALUE, name, "reduction '%s', expected none, mean%s or sum", text, batchmean ? ", batchmean" : "");
    return false;
}

enum { TAKES_WEIGHT = 1, TAKES_POS_WEIGHT = 2, TAKES_BATCHMEAN = 4 };

static th_module *build(const char *name, loss_fn *call, int takes, const struct th_nn_loss_args *args)
{
    TH__CHECK_PENDING_NULL();
    loss_module m = {{.ignore_index = args->ignore_index,
                      .log_target = args->log_target,
                      .label_smoothing = args->label_smoothing,
                      .beta = args->beta,
                      .delta = args->delta},
                     call};
    if (!read_reduction(name, args->reduction, (takes & TAKES_BATCHMEAN) != 0, &m.options)) return NULL;
    if ((args->weight != NULL && !(takes & TAKES_WEIGHT)) || (args->pos_weight != NULL && !(takes & TAKES_POS_WEIGHT))) {
        th__fail(TH_ERR_VALUE, name, "%s is given, this loss has none", args->weight != NULL ? "weight" : "pos_weight");
        return NULL;
    }
    th_module *module = TH__BUILTIN(&m, sizeof m, name, .forward_n = loss_forward);
    if (module == NULL) return NULL;
    if (takes & TAKES_WEIGHT) th_register_buffer(module, "weight", args->weight, true);
    if (takes & TAKES_POS_WEIGHT) th_register_buffer(module, "pos_weight", args->pos_weight, true);
    return th__builtin_finish(module);
}

th_module *th_nn_mse_loss_call(struct th_nn_loss_args args) { return build("MSELoss", mse, 0, &args); }
th_module *th_nn_l1_loss_call(struct th_nn_loss_args args) { return build("L1Loss", l1, 0, &args); }
th_module *th_nn_smooth_l1_loss_call(struct th_nn_loss_args args) { return build("SmoothL1Loss", smooth_l1, 0, &args); }
th_module *th_nn_huber_loss_call(struct th_nn_loss_args args) { return build("HuberLoss", huber, 0, &args); }
th_module *th_nn_nll_loss_call(struct th_nn_loss_args args) { return build("NLLLoss", nll, TAKES_WEIGHT, &args); }
th_module *th_nn_bce_loss_call(struct th_nn_loss_args args) { return build("BCELoss", bce, TAKES_WEIGHT, &args); }
th_module *th_nn_kl_div_loss_call(struct th_nn_loss_args args) { return build("KLDivLoss", kl_div, TAKES_BATCHMEAN, &args); }

th_module *th_nn_cross_entropy_loss_call(struct th_nn_loss_args args)
{
    return build("CrossEntropyLoss", cross_entropy, TAKES_WEIGHT, &args);
}

th_module *th_nn_bce_with_logits_loss_call(struct th_nn_loss_args args)
{
    return build("BCEWithLogitsLoss", bce_with_logits, TAKES_WEIGHT | TAKES_POS_WEIGHT, &args);
}
