/* cfabric/nn_init.h: torch.nn.init. Each fills its tensor in place without recording gradients and returns it. [borrowed]
 *
 * With the same seed they draw the same numbers as PyTorch. Inside fabric_init_module(empty_init) uniform_, normal_, constant_ and
 * kaiming_uniform_ do nothing, as in Lightning. */
#ifndef CFABRIC_NN_INIT_H
#define CFABRIC_NN_INIT_H

#include <cfabric/tensor.h>

/* clang-format off: the declarations read as tables */

TH_BEGIN_DECLS

struct th_nn_init_uniform__args { th_tensor *tensor; double a, b; th_generator *generator; };
#define TH__NN_INIT_UNIFORM_ .b = 1.0
#define TH_NN_INIT_UNIFORM__DEFAULTS {TH__NN_INIT_UNIFORM_}
/** U(a, b). */
FABRIC_API th_tensor *th_nn_init_uniform__call(struct th_nn_init_uniform__args args);
#define th_nn_init_uniform_(...) \
    th_nn_init_uniform__call((struct th_nn_init_uniform__args){TH__NN_INIT_UNIFORM_, .tensor = __VA_ARGS__})

struct th_nn_init_normal__args { th_tensor *tensor; double mean, std; th_generator *generator; };
#define TH__NN_INIT_NORMAL_ .std = 1.0
#define TH_NN_INIT_NORMAL__DEFAULTS {TH__NN_INIT_NORMAL_}
/** N(mean, std^2). */
FABRIC_API th_tensor *th_nn_init_normal__call(struct th_nn_init_normal__args args);
#define th_nn_init_normal_(...) \
    th_nn_init_normal__call((struct th_nn_init_normal__args){TH__NN_INIT_NORMAL_, .tensor = __VA_ARGS__})

struct th_nn_init_trunc_normal__args { th_tensor *tensor; double mean, std, a, b; th_generator *generator; };
#define TH__NN_INIT_TRUNC_NORMAL_ .std = 1.0, .a = -2.0, .b = 2.0
#define TH_NN_INIT_TRUNC_NORMAL__DEFAULTS {TH__NN_INIT_TRUNC_NORMAL_}
/** N(mean, std^2) within [a, b], by the method of the linked PyTorch (it changed in 2.13). */
FABRIC_API th_tensor *th_nn_init_trunc_normal__call(struct th_nn_init_trunc_normal__args args);
#define th_nn_init_trunc_normal_(...) \
    th_nn_init_trunc_normal__call( \
        (struct th_nn_init_trunc_normal__args){TH__NN_INIT_TRUNC_NORMAL_, .tensor = __VA_ARGS__})

FABRIC_API th_tensor *th_nn_init_constant_(th_tensor *tensor, double value);
FABRIC_API th_tensor *th_nn_init_ones_(th_tensor *tensor);
FABRIC_API th_tensor *th_nn_init_zeros_(th_tensor *tensor);

struct th_nn_init_xavier_uniform__args { th_tensor *tensor; double gain; th_generator *generator; };
#define TH__NN_INIT_XAVIER_UNIFORM_ .gain = 1.0
#define TH_NN_INIT_XAVIER_UNIFORM__DEFAULTS {TH__NN_INIT_XAVIER_UNIFORM_}
/** U(-x, x) with x = gain * sqrt(6 / (fan_in + fan_out)). The tensor needs two dimensions or more. */
FABRIC_API th_tensor *th_nn_init_xavier_uniform__call(struct th_nn_init_xavier_uniform__args args);
#define th_nn_init_xavier_uniform_(...) \
    th_nn_init_xavier_uniform__call( \
        (struct th_nn_init_xavier_uniform__args){TH__NN_INIT_XAVIER_UNIFORM_, .tensor = __VA_ARGS__})

struct th_nn_init_xavier_normal__args { th_tensor *tensor; double gain; th_generator *generator; };
#define TH__NN_INIT_XAVIER_NORMAL_ .gain = 1.0
#define TH_NN_INIT_XAVIER_NORMAL__DEFAULTS {TH__NN_INIT_XAVIER_NORMAL_}
/** N(0, gain^2 * 2 / (fan_in + fan_out)). */
FABRIC_API th_tensor *th_nn_init_xavier_normal__call(struct th_nn_init_xavier_normal__args args);
#define th_nn_init_xavier_normal_(...) \
    th_nn_init_xavier_normal__call( \
        (struct th_nn_init_xavier_normal__args){TH__NN_INIT_XAVIER_NORMAL_, .tensor = __VA_ARGS__})

/** `mode` is "fan_in" or "fan_out"; `nonlinearity` as in th_nn_init_calculate_gain, `a` its parameter. */
struct th_nn_init_kaiming_uniform__args {
    th_tensor *tensor;
    double a;
    const char *mode, *nonlinearity;
    th_generator *generator;
};
#define TH__NN_INIT_KAIMING_UNIFORM_ .mode = "fan_in", .nonlinearity = "leaky_relu"
#define TH_NN_INIT_KAIMING_UNIFORM__DEFAULTS {TH__NN_INIT_KAIMING_UNIFORM_}
/** U(-x, x) with x = gain * sqrt(3 / fan). */
FABRIC_API th_tensor *th_nn_init_kaiming_uniform__call(struct th_nn_init_kaiming_uniform__args args);
#define th_nn_init_kaiming_uniform_(...) \
    th_nn_init_kaiming_uniform__call( \
        (struct th_nn_init_kaiming_uniform__args){TH__NN_INIT_KAIMING_UNIFORM_, .tensor = __VA_ARGS__})

struct th_nn_init_kaiming_normal__args {
    th_tensor *tensor;
    double a;
    const char *mode, *nonlinearity;
    th_generator *generator;
};
#define TH__NN_INIT_KAIMING_NORMAL_ .mode = "fan_in", .nonlinearity = "leaky_relu"
#define TH_NN_INIT_KAIMING_NORMAL__DEFAULTS {TH__NN_INIT_KAIMING_NORMAL_}
/** N(0, gain^2 / fan). */
FABRIC_API th_tensor *th_nn_init_kaiming_normal__call(struct th_nn_init_kaiming_normal__args args);
#define th_nn_init_kaiming_normal_(...) \
    th_nn_init_kaiming_normal__call( \
        (struct th_nn_init_kaiming_normal__args){TH__NN_INIT_KAIMING_NORMAL_, .tensor = __VA_ARGS__})

struct th_nn_init_orthogonal__args { th_tensor *tensor; double gain; th_generator *generator; };
#define TH__NN_INIT_ORTHOGONAL_ .gain = 1.0
#define TH_NN_INIT_ORTHOGONAL__DEFAULTS {TH__NN_INIT_ORTHOGONAL_}
/** A (semi-)orthogonal matrix; dimensions after the first are flattened. */
FABRIC_API th_tensor *th_nn_init_orthogonal__call(struct th_nn_init_orthogonal__args args);
#define th_nn_init_orthogonal_(...) \
    th_nn_init_orthogonal__call((struct th_nn_init_orthogonal__args){TH__NN_INIT_ORTHOGONAL_, .tensor = __VA_ARGS__})

struct th_nn_init_calculate_gain_args { const char *nonlinearity; th_opt_double param; };
/** The recommended gain of a nonlinearity ("relu", "tanh", "leaky_relu", ...). NaN with an error for an unknown one. */
FABRIC_API double th_nn_init_calculate_gain_call(struct th_nn_init_calculate_gain_args args);
#define th_nn_init_calculate_gain(...) \
    th_nn_init_calculate_gain_call((struct th_nn_init_calculate_gain_args){.nonlinearity = __VA_ARGS__})

/** Fan in and fan out of a weight. False with an error for fewer than two dimensions. */
FABRIC_API bool th_nn_init_fans(th_tensor *tensor, int64_t *fan_in, int64_t *fan_out);

TH_END_DECLS
#endif
