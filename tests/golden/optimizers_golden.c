/* golden/optimizers_golden.c: 20 steps of every optimizer with many options; prints the weights after each step as bits, and the
 * form of the state dict at the end. Gradients are random numbers from PyTorch's generator, the same in both programs. */
#include <cfabric/autograd.h>
#include <cfabric/error.h>
#include <cfabric/ops.h>
#include <cfabric/optimizers.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { N_PARAMS = 3, STEPS = 20 };
static th_tensor *params[N_PARAMS];

#define FIRST ((th_tensors){params, 2})
#define SECOND ((th_tensors){params + 2, 1})
#define ALL ((th_tensors){params, 3})
#define YES TH_SOME_BOOL(true)

/* One optimizer per name, so that the list of cases is the list of names. */
#define OPTIMIZERS(CASE)                                                                                                         \
    CASE(sgd, th_optim_sgd(ALL, .lr = 0.1))                                                                                      \
    CASE(sgd_default, th_optim_sgd(ALL))                                                                                         \
    CASE(sgd_decay, th_optim_sgd(ALL, .lr = 0.1, .weight_decay = 0.01))                                                          \
    CASE(sgd_momentum, th_optim_sgd(ALL, .lr = 0.1, .momentum = 0.9))                                                            \
    CASE(sgd_dampening, th_optim_sgd(ALL, .lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1))                    \
    CASE(sgd_nesterov, th_optim_sgd(ALL, .lr = 0.1, .momentum = 0.9, .nesterov = true, .maximize = true))                        \
    CASE(adam, th_optim_adam(ALL))                                                                                               \
    CASE(adam_betas, th_optim_adam(ALL, .lr = 0.01, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.1))                     \
    CASE(adam_amsgrad, th_optim_adam(ALL, .amsgrad = true, .maximize = true))                                                    \
    CASE(adamw, th_optim_adamw(ALL))                                                                                             \
    CASE(adamw_amsgrad, th_optim_adamw(ALL, .lr = 0.02, .weight_decay = 0.3, .amsgrad = true))                                   \
    CASE(adadelta, th_optim_adadelta(ALL))                                                                                       \
    CASE(adadelta_options, th_optim_adadelta(ALL, .lr = 0.7, .rho = 0.8, .eps = 1e-5, .weight_decay = 0.1, .maximize = true))    \
    CASE(adagrad, th_optim_adagrad(ALL))                                                                                         \
    CASE(adagrad_options, th_optim_adagrad(ALL, .lr = 0.1, .lr_decay = 0.1, .weight_decay = 0.1,                                 \
                                           .initial_accumulator_value = 0.5, .maximize = true))                                  \
    CASE(rmsprop, th_optim_rmsprop(ALL))                                                                                         \
    CASE(rmsprop_centered, th_optim_rmsprop(ALL, .centered = true))                                                              \
    CASE(rmsprop_options,                                                                                                        \
         th_optim_rmsprop(ALL, .alpha = 0.9, .momentum = 0.9, .centered = true, .weight_decay = 0.1, .maximize = true))

/* Those that the libtorch must be new enough for. */
#define NEWER(CASE)                                                                                                              \
    CASE(adam_decoupled, th_optim_adam(ALL, .weight_decay = 0.1, .decoupled_weight_decay = true))                                \
    CASE(sgd_foreach, th_optim_sgd(ALL, .lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .foreach = YES))                       \
    CASE(adam_foreach, th_optim_adam(ALL, .amsgrad = true, .weight_decay = 0.1, .foreach = YES))                                 \
    CASE(adamw_foreach, th_optim_adamw(ALL, .maximize = true, .foreach = YES))                                                   \
    CASE(adadelta_foreach, th_optim_adadelta(ALL, .weight_decay = 0.1, .foreach = YES))                                          \
    CASE(adagrad_foreach, th_optim_adagrad(ALL, .lr_decay = 0.1, .foreach = YES))                                                \
    CASE(rmsprop_foreach, th_optim_rmsprop(ALL, .centered = true, .momentum = 0.9, .foreach = YES))                              \
    CASE(sgd_fused, th_optim_sgd(ALL, .lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true, .fused = YES))         \
    CASE(sgd_fused_plain, th_optim_sgd(ALL, .lr = 0.1, .fused = YES))                                                            \
    CASE(adam_fused, th_optim_adam(ALL, .amsgrad = true, .weight_decay = 0.1, .fused = YES))                                     \
    CASE(adamw_fused, th_optim_adamw(ALL, .maximize = true, .fused = YES))                                                       \
    CASE(adagrad_fused, th_optim_adagrad(ALL, .lr_decay = 0.1, .weight_decay = 0.1, .fused = YES))

static th_optimizer *make(const char *name)
{
#define CASE(id, maker)                                                                                                          \
    if (strcmp(name, #id) == 0) return maker;
    OPTIMIZERS(CASE)
    NEWER(CASE)
#undef CASE
    th_optimizer *opt = NULL;
    if (strcmp(name, "sgd_groups") == 0) {
        opt = th_optim_sgd(FIRST, .lr = 0.1, .momentum = 0.9);
        if (th_optimizer_add_param_group(opt, SECOND, TH_OPTIONS({"lr", 0.01}, {"weight_decay", 0.1})) != TH_OK) return NULL;
    } else if (strcmp(name, "adam_groups") == 0) {
        opt = th_optim_adam(FIRST, .lr = 0.01, .weight_decay = 0.1);
        if (th_optimizer_add_param_group(opt, SECOND, TH_OPTIONS({"betas.0", 0.5}, {"betas.1", 0.9}, {"amsgrad", true})) != TH_OK)
            return NULL;
    }
    return opt;
}

static void print_weights(const char *label, int step)
{
    printf("%s.%d", label, step);
    for (size_t i = 0; i < N_PARAMS; i++) {
        TH_SCOPE();
        const unsigned char *data = th_data_ptr(params[i]);
        size_t bytes = th_nbytes(params[i]);
        printf(" %08lx:", crc32(0, data, (unsigned)bytes));
        for (size_t k = 0; k < 8 && k < bytes; k++) printf("%02x", data[k]);
    }
    printf("\n");
}

static void print_tensor_form(const th_value *value)
{
    th_tensor *tensor = th_value_as_tensor(value);
    if (tensor == NULL) {
        printf("%s", th_value_kind_name(th_value_kind_of(value)));
        return;
    }
    printf("%s[", th_dtype_name(th_dtype_of(tensor)));
    for (int64_t d = 0; d < th_dim(tensor); d++) printf("%s%lld", d > 0 ? "," : "", (long long)th_size(tensor, d));
    printf("]");
}

static void print_form(const char *label, th_optimizer *opt)
{
    th_value *dict = th_optimizer_state_dict(opt);
    th_value *states = th_value_get(dict, "state"), *groups = th_value_get(dict, "param_groups");
    for (size_t i = 0; i < th_value_size(states); i++) {
        int64_t id = -1;
        th_value_key_at(states, i, &id);
        printf("%s.state%lld", label, (long long)id);
        th_value *entry = th_value_at(states, i);
        for (size_t k = 0; k < th_value_size(entry); k++) {
            printf(" %s=", th_value_key_at(entry, k, NULL));
            print_tensor_form(th_value_at(entry, k));
        }
        printf("\n");
    }
    for (size_t g = 0; g < th_value_size(groups); g++) {
        printf("%s.group%zu", label, g);
        th_value *group = th_value_at(groups, g);
        for (size_t k = 0; k < th_value_size(group); k++) {
            char *text = th_value_to_string(th_value_at(group, k));
            printf(" %s=%s", th_value_key_at(group, k, NULL), th_value_kind_name(th_value_kind_of(th_value_at(group, k))));
            free(text);
        }
        printf("\n");
    }
    th_value_free(dict);
}

static void new_params(th_dtype dtype)
{
    static const int64_t sizes[N_PARAMS][2] = {{37, 0}, {12, 7}, {3, 0}};
    th_manual_seed(1);
    for (size_t i = 0; i < N_PARAMS; i++) {
        th_ints shape = {sizes[i], sizes[i][1] > 0 ? 2 : 1};
        th_assign(&params[i], th_requires_grad_(th_randn(shape, .dtype = dtype), true));
    }
}

static void random_grads(int step, bool late)
{
    for (size_t i = 0; i < N_PARAMS; i++) {
        TH_SCOPE();
        /* The last one has no gradient at first: it is skipped and its state begins later. */
        if (i == 2 && step < 2 && late) continue;
        th_set_grad(params[i], th_randn(th_sizes(params[i]), .dtype = th_dtype_of(params[i])));
    }
}

static void run(const char *name, th_dtype dtype, const char *dtype_name)
{
    TH_SCOPE();
    char label[80];
    snprintf(label, sizeof label, "%s.%s", name, dtype_name);
    new_params(dtype);
    th_optimizer *opt = make(name);
    for (int step = 0; step < STEPS && th_error() == TH_OK; step++) {
        random_grads(step, strcmp(name, "sgd_fused") != 0); /* PyTorch's cannot begin late */
        th_optimizer_step(opt);
        print_weights(label, step);
    }
    print_form(label, opt);
    th_optimizer_free(opt);
}

/* ---------------------------------------------------------------- LBFGS: fits a small network */

typedef struct problem {
    th_tensor *x, *y;
    th_optimizer *opt;
} problem;

static th_tensor *closure(void *user)
{
    problem *p = user;
    th_optimizer_zero_grad(p->opt);
    th_tensor *hidden = th_tanh(th_add(th_matmul(p->x, th_t(params[1])), th_narrow(params[0], 0, 0, 12)));
    th_tensor *out = th_add(th_sum_dim_intlist(hidden, TH_INTS(1)), th_sum(params[2]));
    th_tensor *loss = th_mse_loss(out, p->y);
    th_backward(loss);
    return loss;
}

static void run_lbfgs(const char *name, th_dtype dtype, const char *dtype_name)
{
    TH_SCOPE();
    char label[80];
    snprintf(label, sizeof label, "%s.%s", name, dtype_name);
    new_params(dtype);
    problem p = {th_randn(TH_INTS(16, 7), .dtype = dtype), th_randn(TH_INTS(16), .dtype = dtype), NULL};
    if (strcmp(name, "lbfgs") == 0) p.opt = th_optim_lbfgs(ALL, .lr = 0.1, .max_iter = 4);
    if (strcmp(name, "lbfgs_default") == 0) p.opt = th_optim_lbfgs(ALL);
    if (strcmp(name, "lbfgs_history") == 0) p.opt = th_optim_lbfgs(ALL, .lr = 0.5, .max_iter = 5, .history_size = 3);
    if (strcmp(name, "lbfgs_wolfe") == 0) p.opt = th_optim_lbfgs(ALL, .max_iter = 6, .line_search_fn = "strong_wolfe");
    for (int step = 0; step < STEPS && th_error() == TH_OK; step++) {
        TH_SCOPE();
        th_optimizer_step_closure(p.opt, closure, &p);
        print_weights(label, step);
    }
    print_form(label, p.opt);
    th_optimizer_free(p.opt);
}

/* ---------------------------------------------------------------- sparse gradients */

static void run_sparse(const char *name)
{
    TH_SCOPE();
    char label[80];
    snprintf(label, sizeof label, "%s.sparse", name);
    new_params(TH_FLOAT32);
    th_optimizer *opt = strcmp(name, "sgd_momentum") == 0 ? th_optim_sgd(TH_TENSORS(params[1]), .lr = 0.1, .momentum = 0.9)
                        : strcmp(name, "sgd") == 0        ? th_optim_sgd(TH_TENSORS(params[1]), .lr = 0.1)
                                                          : th_optim_adagrad(TH_TENSORS(params[1]), .lr = 0.1, .lr_decay = 0.01);
    for (int step = 0; step < STEPS && th_error() == TH_OK; step++) {
        TH_SCOPE();
        th_tensor *index = th_randint(12, TH_INTS(5));
        th_tensor *loss = th_sum(th_pow_tensor_scalar(th_embedding(params[1], index, .sparse = true), TH_S(2)));
        th_optimizer_zero_grad(opt);
        th_backward(loss);
        th_optimizer_step(opt);
        print_weights(label, step);
    }
    th_optimizer_free(opt);
}

int main(int argc, char **argv)
{
    bool newer = argc > 1 && strcmp(argv[1], "newer") == 0;
#define CASE(id, maker) run(#id, TH_FLOAT32, "float32"), run(#id, TH_FLOAT64, "float64"), run(#id, TH_BFLOAT16, "bfloat16");
    OPTIMIZERS(CASE)
#undef CASE
    run("sgd_groups", TH_FLOAT32, "float32");
    run("adam_groups", TH_FLOAT32, "float32");
    run("sgd_dampening", TH_COMPLEX64, "complex64");
    run("adadelta_options", TH_COMPLEX64, "complex64");
    run("rmsprop_options", TH_COMPLEX64, "complex64");
    run("adagrad", TH_COMPLEX64, "complex64");
    if (newer) {
        run("adam_amsgrad", TH_COMPLEX64, "complex64");
#define CASE(id, maker) run(#id, TH_FLOAT32, "float32"), run(#id, TH_FLOAT64, "float64");
        NEWER(CASE)
#undef CASE
    }
    const char *const lbfgs[] = {"lbfgs", "lbfgs_default", "lbfgs_history", "lbfgs_wolfe"};
    for (size_t i = 0; i < 4; i++) run_lbfgs(lbfgs[i], TH_FLOAT32, "float32"), run_lbfgs(lbfgs[i], TH_FLOAT64, "float64");
    run_sparse("sgd");
    run_sparse("sgd_momentum");
    run_sparse("adagrad");
    for (size_t i = 0; i < N_PARAMS; i++) th_assign(&params[i], NULL);
    return th_error() == TH_OK ? 0 : 1;
}
