/* golden/schedulers_golden.c: prints the rates (and momenta) of every scheduler over 50 steps, as bits. */
#include <cfabric/autograd.h>
#include <cfabric/error.h>
#include <cfabric/ops.h>
#include <cfabric/optimizers.h>
#include <cfabric/schedulers.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef th_scheduler *(*maker)(th_optimizer *opt);

static double decay(int64_t epoch, void *user)
{
    (void)user;
    return pow(0.95, (double)epoch);
}
static double shrink(int64_t epoch, void *user)
{
    (void)user;
    return epoch % 2 == 0 ? 0.97 : 0.99;
}
static double wave(double x, void *user)
{
    (void)user;
    return 0.5 * (1 + sin(x * 3.14159265358979323846 / 2.0));
}

static th_scheduler *lambda(th_optimizer *o) { return th_lr_scheduler_lambda_lr(o, decay); }
static th_scheduler *multiplicative(th_optimizer *o) { return th_lr_scheduler_multiplicative_lr(o, shrink); }
static th_scheduler *step(th_optimizer *o) { return th_lr_scheduler_step_lr(o, 7); }
static th_scheduler *step_gamma(th_optimizer *o) { return th_lr_scheduler_step_lr(o, .step_size = 1, .gamma = 0.7); }
static th_scheduler *multi_step(th_optimizer *o)
{
    return th_lr_scheduler_multi_step_lr(o, TH_INTS(3, 10, 10, 30), .gamma = 0.3);
}
static th_scheduler *constant(th_optimizer *o) { return th_lr_scheduler_constant_lr(o); }
static th_scheduler *constant_long(th_optimizer *o) { return th_lr_scheduler_constant_lr(o, .factor = 0.7, .total_iters = 20); }
static th_scheduler *linear(th_optimizer *o) { return th_lr_scheduler_linear_lr(o); }
static th_scheduler *linear_down(th_optimizer *o)
{
    return th_lr_scheduler_linear_lr(o, .start_factor = 0.9, .end_factor = 0.1, .total_iters = 33);
}
static th_scheduler *exponential(th_optimizer *o) { return th_lr_scheduler_exponential_lr(o, 0.93); }
static th_scheduler *polynomial(th_optimizer *o) { return th_lr_scheduler_polynomial_lr(o, 40, .power = 1.7); }
static th_scheduler *cosine(th_optimizer *o) { return th_lr_scheduler_cosine_annealing_lr(o, 10); }
static th_scheduler *cosine_min(th_optimizer *o) { return th_lr_scheduler_cosine_annealing_lr(o, 17, .eta_min = 0.003); }
static th_scheduler *restarts(th_optimizer *o) { return th_lr_scheduler_cosine_annealing_warm_restarts(o, 10); }
static th_scheduler *restarts_longer(th_optimizer *o)
{
    return th_lr_scheduler_cosine_annealing_warm_restarts(o, 4, .T_mult = 2, .eta_min = 0.001);
}
static th_scheduler *one_cycle(th_optimizer *o) { return th_lr_scheduler_one_cycle_lr(o, 1.0, .total_steps = 60); }
static th_scheduler *one_cycle_three(th_optimizer *o)
{
    return th_lr_scheduler_one_cycle_lr(o, 0.7, .epochs = 6, .steps_per_epoch = 10, .three_phase = true,
                                        .anneal_strategy = "linear");
}
static th_scheduler *one_cycle_rate_only(th_optimizer *o)
{
    return th_lr_scheduler_one_cycle_lr(o, 0.7, .total_steps = 55, .pct_start = 0.45, .cycle_momentum = false);
}
static th_scheduler *cyclic(th_optimizer *o) { return th_lr_scheduler_cyclic_lr(o, 0.01, 0.9, .step_size_up = 6); }
static th_scheduler *cyclic2(th_optimizer *o)
{
    return th_lr_scheduler_cyclic_lr(o, 0.01, 0.9, .step_size_up = 5, .step_size_down = TH_INT(9), .mode = "triangular2");
}
static th_scheduler *cyclic_exp(th_optimizer *o)
{
    return th_lr_scheduler_cyclic_lr(o, 0.01, 0.9, .step_size_up = 5, .mode = "exp_range", .gamma = 0.98,
                                     .cycle_momentum = false);
}
static th_scheduler *cyclic_own(th_optimizer *o)
{
    return th_lr_scheduler_cyclic_lr(o, 0.01, 0.9, .step_size_up = 5, .scale_fn = wave, .scale_mode = "iterations");
}
static th_scheduler *plateau(th_optimizer *o)
{
    return th_lr_scheduler_reduce_lr_on_plateau(o, .patience = 3, .factor = 0.4, .cooldown = 2, .min_lr = 0.0005);
}
static th_scheduler *plateau_max(th_optimizer *o)
{
    return th_lr_scheduler_reduce_lr_on_plateau(o, .mode = "max", .patience = 2, .factor = 0.5, .threshold = 0.05,
                                                .threshold_mode = "abs");
}
static th_scheduler *sequential(th_optimizer *o)
{
    return th_lr_scheduler_sequential_lr(o,
                                         TH_SCHEDULERS(th_lr_scheduler_constant_lr(o, .factor = 0.1, .total_iters = 20),
                                                       th_lr_scheduler_exponential_lr(o, 0.9),
                                                       th_lr_scheduler_step_lr(o, 3, .gamma = 0.5)),
                                         TH_INTS(8, 24));
}
static th_scheduler *sequential_warmup(th_optimizer *o)
{
    return th_lr_scheduler_sequential_lr(o,
                                         TH_SCHEDULERS(th_lr_scheduler_linear_lr(o, .start_factor = 0.01, .total_iters = 10),
                                                       th_lr_scheduler_cosine_annealing_lr(o, 30)),
                                         TH_INTS(10));
}
static th_scheduler *chained(th_optimizer *o)
{
    return th_lr_scheduler_chained_scheduler(
        TH_SCHEDULERS(th_lr_scheduler_constant_lr(o, .factor = 0.1, .total_iters = 15), th_lr_scheduler_exponential_lr(o, 0.9)));
}

static const struct {
    const char *name;
    maker make;
    bool adam;
} cases[] = {
    {"lambda", lambda, false},
    {"multiplicative", multiplicative, false},
    {"step", step, false},
    {"step_gamma", step_gamma, false},
    {"multi_step", multi_step, false},
    {"constant", constant, false},
    {"constant_long", constant_long, false},
    {"linear", linear, false},
    {"linear_down", linear_down, false},
    {"exponential", exponential, false},
    {"polynomial", polynomial, false},
    {"cosine", cosine, false},
    {"cosine_min", cosine_min, false},
    {"restarts", restarts, false},
    {"restarts_longer", restarts_longer, false},
    {"one_cycle", one_cycle, false},
    {"one_cycle_three", one_cycle_three, true},
    {"one_cycle_rate_only", one_cycle_rate_only, false},
    {"cyclic", cyclic, false},
    {"cyclic2", cyclic2, true},
    {"cyclic_exp", cyclic_exp, false},
    {"cyclic_own", cyclic_own, false},
    {"plateau", plateau, false},
    {"plateau_max", plateau_max, false},
    {"sequential", sequential, false},
    {"sequential_warmup", sequential_warmup, false},
    {"chained", chained, false},
};

static uint64_t bits(double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

/* A metric that falls, stalls and falls again. */
static double metric(int i) { return i < 6 ? 1.0 / (1 + i) : i < 30 ? 0.2 - 1e-6 * i : 0.1 - 1e-3 * i; }

static void print_state(const char *name, th_scheduler *scheduler)
{
    th_value *state = th_scheduler_state_dict(scheduler);
    printf("%s.keys", name);
    for (size_t i = 0; i < th_value_size(state); i++)
        printf(" %s=%s", th_value_key_at(state, i, NULL), th_value_kind_name(th_value_kind_of(th_value_at(state, i))));
    printf("\n");
    th_value_free(state);
}

static void run(size_t index)
{
    TH_SCOPE();
    const char *name = cases[index].name;
    th_tensor *first = th_requires_grad_(th_ones(TH_INTS(2)), true), *second = th_requires_grad_(th_ones(TH_INTS(3)), true);
    th_optimizer *opt = cases[index].adam ? th_optim_adam(TH_TENSORS(first), .lr = 0.1)
                                          : th_optim_sgd(TH_TENSORS(first), .lr = 0.1, .momentum = 0.9);
    if (th_optimizer_add_param_group(opt, TH_TENSORS(second), TH_OPTIONS({"lr", 0.03})) != TH_OK) return;
    th_scheduler *scheduler = cases[index].make(opt);
    bool with_metric = strncmp(name, "plateau", 7) == 0;
    for (int i = 0; i < 50 && th_error() == TH_OK; i++) {
        printf("%s.%d", name, i);
        for (size_t g = 0; g < 2; g++)
            printf(" %016" PRIx64 " %016" PRIx64, bits(th_optimizer_get(opt, g, "lr")),
                   bits(th_optimizer_get(opt, g, cases[index].adam ? "betas.0" : "momentum")));
        printf(" %016" PRIx64 "\n", bits(th_scheduler_last_lr(scheduler)));
        if (th_optimizer_step(opt) != TH_OK) break;
        if ((with_metric ? th_scheduler_step_metric(scheduler, metric(i)) : th_scheduler_step(scheduler)) != TH_OK) break;
    }
    print_state(name, scheduler);
    th_scheduler_free(scheduler);
    th_optimizer_free(opt);
}

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run(i);
    return th_error() == TH_OK ? 0 : 1;
}
