/* cfabric/nn_modules.h: the built-in modules, torch.nn word for word.
 *
 * Every function returns a module that the caller owns [owned] until it is handed to a parent (th_register_module,
 * th_nn_sequential), or NULL with an error. Options are named as PyTorch's and default to the same values; `device` and `dtype` of
 * parameters come last (not given: what fabric_init_module says, else CPU and the default dtype). Parameters are initialised as
 * PyTorch initialises them, consuming the same random numbers.
 *
 * Sizes such as kernel_size are lists: TH_INTS(3) stands for the same number in every dimension, TH_INTS(3, 5) gives each.
 * `th__first` is no option: it lets the keyword macros take positional arguments and none at all. */
#ifndef CFABRIC_NN_MODULES_H
#define CFABRIC_NN_MODULES_H

#include <cfabric/nn.h>
#include <cfabric/nn_init.h>

/* clang-format off: the declarations read as tables */

TH_BEGIN_DECLS

/* ================================================================ linear */

struct th_nn_linear_args { int64_t in_features, out_features; bool bias; th_device device; th_dtype dtype; };
#define TH__NN_LINEAR .bias = true
#define TH_NN_LINEAR_DEFAULTS {TH__NN_LINEAR}
/** y = x A^T + b. Input (*, in_features), output (*, out_features). Parameters weight, bias. */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_linear_call(struct th_nn_linear_args args);
#define th_nn_linear(...) th_nn_linear_call((struct th_nn_linear_args){TH__NN_LINEAR, .in_features = __VA_ARGS__})

/** Returns its input. */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_identity(void);

/* ================================================================ convolution */

struct th_nn_conv_args {
    int64_t in_channels, out_channels;
    th_ints kernel_size, stride, padding, dilation; /* not given: -, 1, 0, 1 */
    int64_t groups;
    bool bias;
    const char *padding_mode;   /**< "zeros", "reflect", "replicate", "circular" */
    th_device device;
    th_dtype dtype;
    const char *padding_string; /**< "same" or "valid" instead of `padding` */
};
#define TH__NN_CONV .groups = 1, .bias = true, .padding_mode = "zeros"
#define TH_NN_CONV_DEFAULTS {TH__NN_CONV}
/** Input (N, in_channels, spatial...) or without N. Parameters weight, bias. */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_conv1d_call(struct th_nn_conv_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_conv2d_call(struct th_nn_conv_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_conv3d_call(struct th_nn_conv_args args);
#define th_nn_conv1d(...) th_nn_conv1d_call((struct th_nn_conv_args){TH__NN_CONV, .in_channels = __VA_ARGS__})
#define th_nn_conv2d(...) th_nn_conv2d_call((struct th_nn_conv_args){TH__NN_CONV, .in_channels = __VA_ARGS__})
#define th_nn_conv3d(...) th_nn_conv3d_call((struct th_nn_conv_args){TH__NN_CONV, .in_channels = __VA_ARGS__})

struct th_nn_conv_transpose_args {
    int64_t in_channels, out_channels;
    th_ints kernel_size, stride, padding, output_padding; /* not given: -, 1, 0, 0 */
    int64_t groups;
    bool bias;
    th_ints dilation;           /* not given: 1 */
    const char *padding_mode;   /**< only "zeros" */
    th_device device;
    th_dtype dtype;
};
#define TH__NN_CONV_TRANSPOSE .groups = 1, .bias = true, .padding_mode = "zeros"
#define TH_NN_CONV_TRANSPOSE_DEFAULTS {TH__NN_CONV_TRANSPOSE}
FABRIC_API FABRIC_NODISCARD th_module *th_nn_conv_transpose1d_call(struct th_nn_conv_transpose_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_conv_transpose2d_call(struct th_nn_conv_transpose_args args);
#define th_nn_conv_transpose1d(...) \
    th_nn_conv_transpose1d_call((struct th_nn_conv_transpose_args){TH__NN_CONV_TRANSPOSE, .in_channels = __VA_ARGS__})
#define th_nn_conv_transpose2d(...) \
    th_nn_conv_transpose2d_call((struct th_nn_conv_transpose_args){TH__NN_CONV_TRANSPOSE, .in_channels = __VA_ARGS__})

/* ================================================================ pooling */

struct th_nn_max_pool_args {
    th_ints kernel_size, stride, padding, dilation; /* not given: -, kernel_size, 0, 1 */
    bool return_indices;                            /**< a second output with int64 positions */
    bool ceil_mode;
};
FABRIC_API FABRIC_NODISCARD th_module *th_nn_max_pool1d_call(struct th_nn_max_pool_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_max_pool2d_call(struct th_nn_max_pool_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_max_pool3d_call(struct th_nn_max_pool_args args);
#define th_nn_max_pool1d(...) th_nn_max_pool1d_call((struct th_nn_max_pool_args){.kernel_size = __VA_ARGS__})
#define th_nn_max_pool2d(...) th_nn_max_pool2d_call((struct th_nn_max_pool_args){.kernel_size = __VA_ARGS__})
#define th_nn_max_pool3d(...) th_nn_max_pool3d_call((struct th_nn_max_pool_args){.kernel_size = __VA_ARGS__})

struct th_nn_avg_pool_args {
    th_ints kernel_size, stride, padding; /* not given: -, kernel_size, 0 */
    bool ceil_mode, count_include_pad;
    th_opt_int divisor_override;          /**< not for 1d */
};
#define TH__NN_AVG_POOL .count_include_pad = true
#define TH_NN_AVG_POOL_DEFAULTS {TH__NN_AVG_POOL}
FABRIC_API FABRIC_NODISCARD th_module *th_nn_avg_pool1d_call(struct th_nn_avg_pool_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_avg_pool2d_call(struct th_nn_avg_pool_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_avg_pool3d_call(struct th_nn_avg_pool_args args);
#define th_nn_avg_pool1d(...) th_nn_avg_pool1d_call((struct th_nn_avg_pool_args){TH__NN_AVG_POOL, .kernel_size = __VA_ARGS__})
#define th_nn_avg_pool2d(...) th_nn_avg_pool2d_call((struct th_nn_avg_pool_args){TH__NN_AVG_POOL, .kernel_size = __VA_ARGS__})

#define th_nn_avg_pool3d(...) th_nn_avg_pool3d_call((struct th_nn_avg_pool_args){TH__NN_AVG_POOL, .kernel_size = __VA_ARGS__})

/** -1 in output_size keeps the input's size (Python's None). */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_adaptive_avg_pool1d(th_ints output_size);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_adaptive_avg_pool2d(th_ints output_size);

/* ================================================================ normalisation */

struct th_nn_batch_norm_args {
    int64_t num_features;
    double eps, momentum;  /**< momentum NAN (Python's None): a cumulative average */
    bool affine, track_running_stats;
    th_device device;
    th_dtype dtype;
    bool bias;             /**< false: only a weight */
};
#define TH__NN_BATCH_NORM .eps = 1e-5, .momentum = 0.1, .affine = true, .track_running_stats = true, .bias = true
#define TH_NN_BATCH_NORM_DEFAULTS {TH__NN_BATCH_NORM}
/** Input (N, C) or (N, C, L). Parameters weight, bias; buffers running_mean, running_var, num_batches_tracked. */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_batch_norm1d_call(struct th_nn_batch_norm_args args);
/** Input (N, C, H, W). */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_batch_norm2d_call(struct th_nn_batch_norm_args args);
#define th_nn_batch_norm1d(...) \
    th_nn_batch_norm1d_call((struct th_nn_batch_norm_args){TH__NN_BATCH_NORM, .num_features = __VA_ARGS__})
#define th_nn_batch_norm2d(...) \
    th_nn_batch_norm2d_call((struct th_nn_batch_norm_args){TH__NN_BATCH_NORM, .num_features = __VA_ARGS__})

struct th_nn_group_norm_args {
    int64_t num_groups, num_channels;
    double eps;
    bool affine;
    th_device device;
    th_dtype dtype;
    bool bias;
};
#define TH__NN_GROUP_NORM .eps = 1e-5, .affine = true, .bias = true
#define TH_NN_GROUP_NORM_DEFAULTS {TH__NN_GROUP_NORM}
/** Input (N, C, *). */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_group_norm_call(struct th_nn_group_norm_args args);
#define th_nn_group_norm(...) \
    th_nn_group_norm_call((struct th_nn_group_norm_args){TH__NN_GROUP_NORM, .num_groups = __VA_ARGS__})

struct th_nn_layer_norm_args {
    th_ints normalized_shape; /**< the last dimensions of the input */
    double eps;
    bool elementwise_affine, bias;
    th_device device;
    th_dtype dtype;
};
#define TH__NN_LAYER_NORM .eps = 1e-5, .elementwise_affine = true, .bias = true
#define TH_NN_LAYER_NORM_DEFAULTS {TH__NN_LAYER_NORM}
FABRIC_API FABRIC_NODISCARD th_module *th_nn_layer_norm_call(struct th_nn_layer_norm_args args);
#define th_nn_layer_norm(...) \
    th_nn_layer_norm_call((struct th_nn_layer_norm_args){TH__NN_LAYER_NORM, .normalized_shape = __VA_ARGS__})

/* ================================================================ dropout, embedding */

struct th_nn_dropout_args { char th__first; double p; bool inplace; };
#define TH__NN_DROPOUT .p = 0.5
#define TH_NN_DROPOUT_DEFAULTS {TH__NN_DROPOUT}
/** Zeroes elements (dropout), whole channels (dropout2d), or keeps mean and variance (alpha_dropout), in training mode only. */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_dropout_call(struct th_nn_dropout_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_dropout2d_call(struct th_nn_dropout_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_alpha_dropout_call(struct th_nn_dropout_args args);
#define th_nn_dropout(...) \
    th_nn_dropout_call((struct th_nn_dropout_args){TH__NN_DROPOUT, .th__first = 0, __VA_ARGS__})
#define th_nn_dropout2d(...) \
    th_nn_dropout2d_call((struct th_nn_dropout_args){TH__NN_DROPOUT, .th__first = 0, __VA_ARGS__})
#define th_nn_alpha_dropout(...) \
    th_nn_alpha_dropout_call((struct th_nn_dropout_args){TH__NN_DROPOUT, .th__first = 0, __VA_ARGS__})

struct th_nn_embedding_args {
    int64_t num_embeddings, embedding_dim;
    th_opt_int padding_idx;   /**< TH_INT(0): this row is zero and gets no gradient */
    th_opt_double max_norm;   /**< TH_DOUBLE(1): rows are scaled down to this norm when looked up */
    double norm_type;
    bool scale_grad_by_freq, sparse;
    th_tensor *weight;        /**< from_pretrained: used instead of a new one (retained) */
    bool freeze;              /**< the weight needs no gradient */
    th_device device;
    th_dtype dtype;
};
#define TH__NN_EMBEDDING .norm_type = 2.0
#define TH_NN_EMBEDDING_DEFAULTS {TH__NN_EMBEDDING}
/** Input: integers of any shape (*); output (*, embedding_dim). */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_embedding_call(struct th_nn_embedding_args args);
#define th_nn_embedding(...) \
    th_nn_embedding_call((struct th_nn_embedding_args){TH__NN_EMBEDDING, .num_embeddings = __VA_ARGS__})

/* ================================================================ activations */

struct th_nn_inplace_args { char th__first; bool inplace; };
FABRIC_API FABRIC_NODISCARD th_module *th_nn_relu_call(struct th_nn_inplace_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_relu6_call(struct th_nn_inplace_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_selu_call(struct th_nn_inplace_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_silu_call(struct th_nn_inplace_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_mish_call(struct th_nn_inplace_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_hardswish_call(struct th_nn_inplace_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_hardsigmoid_call(struct th_nn_inplace_args args);
#define th_nn_relu(...) th_nn_relu_call((struct th_nn_inplace_args){.th__first = 0, __VA_ARGS__})
#define th_nn_relu6(...) th_nn_relu6_call((struct th_nn_inplace_args){.th__first = 0, __VA_ARGS__})
#define th_nn_selu(...) th_nn_selu_call((struct th_nn_inplace_args){.th__first = 0, __VA_ARGS__})
#define th_nn_silu(...) th_nn_silu_call((struct th_nn_inplace_args){.th__first = 0, __VA_ARGS__})
#define th_nn_mish(...) th_nn_mish_call((struct th_nn_inplace_args){.th__first = 0, __VA_ARGS__})
#define th_nn_hardswish(...) th_nn_hardswish_call((struct th_nn_inplace_args){.th__first = 0, __VA_ARGS__})
#define th_nn_hardsigmoid(...) th_nn_hardsigmoid_call((struct th_nn_inplace_args){.th__first = 0, __VA_ARGS__})

FABRIC_API FABRIC_NODISCARD th_module *th_nn_sigmoid(void);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_tanh(void);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_logsigmoid(void);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_softsign(void);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_tanhshrink(void);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_softmax2d(void);

struct th_nn_leaky_relu_args { char th__first; double negative_slope; bool inplace; };
FABRIC_API FABRIC_NODISCARD th_module *th_nn_leaky_relu_call(struct th_nn_leaky_relu_args args);
#define TH__NN_LEAKY_RELU .negative_slope = 0.01
#define TH_NN_LEAKY_RELU_DEFAULTS {TH__NN_LEAKY_RELU}
#define th_nn_leaky_relu(...) \
    th_nn_leaky_relu_call((struct th_nn_leaky_relu_args){TH__NN_LEAKY_RELU, .th__first = 0, __VA_ARGS__})

struct th_nn_elu_args { char th__first; double alpha; bool inplace; };
FABRIC_API FABRIC_NODISCARD th_module *th_nn_elu_call(struct th_nn_elu_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_celu_call(struct th_nn_elu_args args);
#define TH__NN_ELU .alpha = 1.0
#define TH_NN_ELU_DEFAULTS {TH__NN_ELU}
#define th_nn_elu(...) th_nn_elu_call((struct th_nn_elu_args){TH__NN_ELU, .th__first = 0, __VA_ARGS__})
#define th_nn_celu(...) th_nn_celu_call((struct th_nn_elu_args){TH__NN_ELU, .th__first = 0, __VA_ARGS__})

struct th_nn_gelu_args { char th__first; const char *approximate; };
/** approximate: "none" or "tanh". */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_gelu_call(struct th_nn_gelu_args args);
#define TH__NN_GELU .approximate = "none"
#define TH_NN_GELU_DEFAULTS {TH__NN_GELU}
#define th_nn_gelu(...) th_nn_gelu_call((struct th_nn_gelu_args){TH__NN_GELU, .th__first = 0, __VA_ARGS__})

struct th_nn_softplus_args { char th__first; double beta, threshold; };
FABRIC_API FABRIC_NODISCARD th_module *th_nn_softplus_call(struct th_nn_softplus_args args);
#define TH__NN_SOFTPLUS .beta = 1.0, .threshold = 20.0
#define TH_NN_SOFTPLUS_DEFAULTS {TH__NN_SOFTPLUS}
#define th_nn_softplus(...) th_nn_softplus_call((struct th_nn_softplus_args){TH__NN_SOFTPLUS, .th__first = 0, __VA_ARGS__})

struct th_nn_shrink_args { char th__first; double lambd; };
FABRIC_API FABRIC_NODISCARD th_module *th_nn_softshrink_call(struct th_nn_shrink_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_hardshrink_call(struct th_nn_shrink_args args);
#define TH__NN_SHRINK .lambd = 0.5
#define TH_NN_SHRINK_DEFAULTS {TH__NN_SHRINK}
#define th_nn_softshrink(...) th_nn_softshrink_call((struct th_nn_shrink_args){TH__NN_SHRINK, .th__first = 0, __VA_ARGS__})
#define th_nn_hardshrink(...) th_nn_hardshrink_call((struct th_nn_shrink_args){TH__NN_SHRINK, .th__first = 0, __VA_ARGS__})

struct th_nn_hardtanh_args { char th__first; double min_val, max_val; bool inplace; };
FABRIC_API FABRIC_NODISCARD th_module *th_nn_hardtanh_call(struct th_nn_hardtanh_args args);
#define TH__NN_HARDTANH .min_val = -1.0, .max_val = 1.0
#define TH_NN_HARDTANH_DEFAULTS {TH__NN_HARDTANH}
#define th_nn_hardtanh(...) th_nn_hardtanh_call((struct th_nn_hardtanh_args){TH__NN_HARDTANH, .th__first = 0, __VA_ARGS__})

struct th_nn_threshold_args { double threshold, value; bool inplace; };
FABRIC_API FABRIC_NODISCARD th_module *th_nn_threshold_call(struct th_nn_threshold_args args);
#define th_nn_threshold(...) th_nn_threshold_call((struct th_nn_threshold_args){.threshold = __VA_ARGS__})

struct th_nn_rrelu_args { char th__first; double lower, upper; bool inplace; };
FABRIC_API FABRIC_NODISCARD th_module *th_nn_rrelu_call(struct th_nn_rrelu_args args);
#define TH__NN_RRELU .lower = 1.0 / 8, .upper = 1.0 / 3
#define TH_NN_RRELU_DEFAULTS {TH__NN_RRELU}
#define th_nn_rrelu(...) th_nn_rrelu_call((struct th_nn_rrelu_args){TH__NN_RRELU, .th__first = 0, __VA_ARGS__})

struct th_nn_prelu_args { char th__first; int64_t num_parameters; double init; th_device device; th_dtype dtype; };
/** Parameter weight. */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_prelu_call(struct th_nn_prelu_args args);
#define TH__NN_PRELU .num_parameters = 1, .init = 0.25
#define TH_NN_PRELU_DEFAULTS {TH__NN_PRELU}
#define th_nn_prelu(...) th_nn_prelu_call((struct th_nn_prelu_args){TH__NN_PRELU, .th__first = 0, __VA_ARGS__})

struct th_nn_glu_args { char th__first; int64_t dim; };
FABRIC_API FABRIC_NODISCARD th_module *th_nn_glu_call(struct th_nn_glu_args args);
#define TH__NN_GLU .dim = -1
#define TH_NN_GLU_DEFAULTS {TH__NN_GLU}
#define th_nn_glu(...) th_nn_glu_call((struct th_nn_glu_args){TH__NN_GLU, .th__first = 0, __VA_ARGS__})

/** dim as TH_INT(1); not given: PyTorch's implicit choice. */
struct th_nn_softmax_args { char th__first; th_opt_int dim; };
FABRIC_API FABRIC_NODISCARD th_module *th_nn_softmax_call(struct th_nn_softmax_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_log_softmax_call(struct th_nn_softmax_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_softmin_call(struct th_nn_softmax_args args);
#define th_nn_softmax(...) th_nn_softmax_call((struct th_nn_softmax_args){.th__first = 0, __VA_ARGS__})
#define th_nn_log_softmax(...) th_nn_log_softmax_call((struct th_nn_softmax_args){.th__first = 0, __VA_ARGS__})
#define th_nn_softmin(...) th_nn_softmin_call((struct th_nn_softmax_args){.th__first = 0, __VA_ARGS__})

/* ================================================================ shape */

struct th_nn_flatten_args { char th__first; int64_t start_dim, end_dim; };
FABRIC_API FABRIC_NODISCARD th_module *th_nn_flatten_call(struct th_nn_flatten_args args);
#define TH__NN_FLATTEN .start_dim = 1, .end_dim = -1
#define TH_NN_FLATTEN_DEFAULTS {TH__NN_FLATTEN}
#define th_nn_flatten(...) th_nn_flatten_call((struct th_nn_flatten_args){TH__NN_FLATTEN, .th__first = 0, __VA_ARGS__})
/** Splits dimension `dim` into `unflattened_size`. */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_unflatten(int64_t dim, th_ints unflattened_size);

/* ================================================================ containers: they take over the modules given to them */

typedef struct th_modules { th_module *const *data; size_t size; } th_modules;

/** Feeds each module's result to the next and ends it as soon as the next has used it. Children are named "0", "1", ...; names of
 * your own: make an empty one and th_register_module. One module that is NULL frees all and returns NULL. */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_sequential_call(th_modules modules);
/** A list that registers its modules; it has no forward. */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_module_list_call(th_modules modules);
#ifndef __cplusplus
#define TH__MODULES(...)                                                \
    ((th_modules){&((th_module *const[]){NULL, __VA_ARGS__})[1],        \
                  sizeof((th_module *const[]){NULL, __VA_ARGS__}) / sizeof(th_module *) - 1})
#define th_nn_sequential(...) th_nn_sequential_call(TH__MODULES(__VA_ARGS__))
#define th_nn_module_list(...) th_nn_module_list_call(TH__MODULES(__VA_ARGS__))
#endif
/** Adds a module at the end of a Sequential or ModuleList under the next number. Returns it. [borrowed] */
FABRIC_API th_module *th_nn_append(th_module *container, th_module *module);

/* ================================================================ recurrent */

struct th_nn_rnn_args {
    int64_t input_size, hidden_size, num_layers;
    const char *nonlinearity; /**< rnn only: "tanh" or "relu" */
    bool bias, batch_first;
    double dropout;
    bool bidirectional;
    int64_t proj_size;        /**< lstm only */
    th_device device;
    th_dtype dtype;
};
#define TH__NN_RNN .num_layers = 1, .nonlinearity = "tanh", .bias = true
#define TH_NN_RNN_DEFAULTS {TH__NN_RNN}
/** Inputs (input[, h0]), with th_nn_lstm (input[, h0, c0]); outputs (output, h_n), with th_nn_lstm (output, h_n, c_n), by th_forward_n.
 * input (L, N, input_size), (N, L, input_size) with batch_first, or (L, input_size). h0 not given: zeros. */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_rnn_call(struct th_nn_rnn_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_lstm_call(struct th_nn_rnn_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_gru_call(struct th_nn_rnn_args args);
#define th_nn_rnn(...) th_nn_rnn_call((struct th_nn_rnn_args){TH__NN_RNN, .input_size = __VA_ARGS__})
#define th_nn_lstm(...) th_nn_lstm_call((struct th_nn_rnn_args){TH__NN_RNN, .input_size = __VA_ARGS__})
#define th_nn_gru(...) th_nn_gru_call((struct th_nn_rnn_args){TH__NN_RNN, .input_size = __VA_ARGS__})

/* ================================================================ attention */

struct th_nn_multihead_attention_args {
    int64_t embed_dim, num_heads;
    double dropout;
    bool bias, add_bias_kv, add_zero_attn;
    int64_t kdim, vdim;        /**< 0 (Python's None): embed_dim */
    bool batch_first;
    th_device device;
    th_dtype dtype;
    bool need_weights;         /**< arguments of forward() in Python; part of the module here */
    bool average_attn_weights;
};
#define TH__NN_MULTIHEAD_ATTENTION .bias = true, .need_weights = true, .average_attn_weights = true
#define TH_NN_MULTIHEAD_ATTENTION_DEFAULTS {TH__NN_MULTIHEAD_ATTENTION}
/** Inputs (query, key, value[, key_padding_mask[, attn_mask]]); a NULL mask is absent. Outputs by th_forward_n: the result, and the
 * attention weights, NULL without need_weights. In evaluation without gradients PyTorch's fast path is taken where it takes it. */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_multihead_attention_call(struct th_nn_multihead_attention_args args);
#define th_nn_multihead_attention(...)     th_nn_multihead_attention_call(         (struct th_nn_multihead_attention_args){TH__NN_MULTIHEAD_ATTENTION, .embed_dim = __VA_ARGS__})

struct th_nn_transformer_layer_args {
    int64_t d_model, nhead, dim_feedforward;
    double dropout;
    const char *activation;                      /**< "relu" or "gelu"... */
    double layer_norm_eps;
    bool batch_first, norm_first, bias;
    th_device device;
    th_dtype dtype;
    th_tensor *(*activation_fn)(th_tensor *x);   /**< ...or a function, instead of `activation` */
};
#define TH__NN_TRANSFORMER_LAYER     .dim_feedforward = 2048, .dropout = 0.1, .activation = "relu", .layer_norm_eps = 1e-5, .bias = true
#define TH_NN_TRANSFORMER_LAYER_DEFAULTS {TH__NN_TRANSFORMER_LAYER}
/** Inputs (src[, src_mask[, src_key_padding_mask]]). */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_transformer_encoder_layer_call(struct th_nn_transformer_layer_args args);
/** Inputs (tgt, memory[, tgt_mask[, memory_mask[, tgt_key_padding_mask[, memory_key_padding_mask]]]]). */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_transformer_decoder_layer_call(struct th_nn_transformer_layer_args args);
#define th_nn_transformer_encoder_layer(...)     th_nn_transformer_encoder_layer_call(         (struct th_nn_transformer_layer_args){TH__NN_TRANSFORMER_LAYER, .d_model = __VA_ARGS__})
#define th_nn_transformer_decoder_layer(...)     th_nn_transformer_decoder_layer_call(         (struct th_nn_transformer_layer_args){TH__NN_TRANSFORMER_LAYER, .d_model = __VA_ARGS__})

struct th_nn_transformer_stack_args {
    th_module *layer;       /**< taken over; copied num_layers times (th_module_clone), all with the same values */
    int64_t num_layers;
    th_module *norm;        /**< taken over; NULL: none */
    bool enable_nested_tensor; /**< encoder only: evaluation leaves out padded positions, whose results are then 0 */
};
#define TH__NN_TRANSFORMER_STACK .enable_nested_tensor = true
#define TH_NN_TRANSFORMER_STACK_DEFAULTS {TH__NN_TRANSFORMER_STACK}
/** Inputs (src[, mask[, src_key_padding_mask]]). A causal mask is noticed and lets the kernels skip half of the work, as in PyTorch 2. */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_transformer_encoder_call(struct th_nn_transformer_stack_args args);
/** Inputs as the decoder layer's. */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_transformer_decoder_call(struct th_nn_transformer_stack_args args);
#define th_nn_transformer_encoder(...)     th_nn_transformer_encoder_call((struct th_nn_transformer_stack_args){TH__NN_TRANSFORMER_STACK, .layer = __VA_ARGS__})
#define th_nn_transformer_decoder(...)     th_nn_transformer_decoder_call((struct th_nn_transformer_stack_args){TH__NN_TRANSFORMER_STACK, .layer = __VA_ARGS__})

struct th_nn_transformer_args {
    char th__first;
    int64_t d_model, nhead, num_encoder_layers, num_decoder_layers, dim_feedforward;
    double dropout;
    const char *activation;
    th_module *custom_encoder, *custom_decoder; /**< taken over; NULL: built from the other options */
    double layer_norm_eps;
    bool batch_first, norm_first, bias;
    th_device device;
    th_dtype dtype;
};
#define TH__NN_TRANSFORMER                                                                                      .d_model = 512, .nhead = 8, .num_encoder_layers = 6, .num_decoder_layers = 6, .dim_feedforward = 2048,              .dropout = 0.1, .activation = "relu", .layer_norm_eps = 1e-5, .bias = true
#define TH_NN_TRANSFORMER_DEFAULTS {TH__NN_TRANSFORMER}
/** Inputs (src, tgt[, src_mask[, tgt_mask[, memory_mask[, src_key_padding_mask[, tgt_key_padding_mask[,
 * memory_key_padding_mask]]]]]]). */
FABRIC_API FABRIC_NODISCARD th_module *th_nn_transformer_call(struct th_nn_transformer_args args);
#define th_nn_transformer(...)     th_nn_transformer_call((struct th_nn_transformer_args){TH__NN_TRANSFORMER, .th__first = 0, __VA_ARGS__})
/** Transformer.generate_square_subsequent_mask: (size, size), -inf above the diagonal, 0 elsewhere. [scoped] */
FABRIC_API th_tensor *th_nn_generate_square_subsequent_mask(int64_t size, th_device device, th_dtype dtype);

/* ================================================================ losses: modules with the inputs (input, target) */

/** The `reduction` of the generated loss operators. */
enum { TH_REDUCTION_NONE = 0, TH_REDUCTION_MEAN = 1, TH_REDUCTION_SUM = 2 };

/** reduction: "none", "mean", "sum" (and "batchmean" for kl_div_loss). Fields that a loss does not have must not be set. */
struct th_nn_loss_args {
    char th__first;
    const char *reduction;
    th_tensor *weight;      /**< nll, cross_entropy, bce, bce_with_logits: rescaling (retained, a buffer) */
    th_tensor *pos_weight;  /**< bce_with_logits */
    int64_t ignore_index;   /**< nll, cross_entropy */
    double label_smoothing; /**< cross_entropy */
    double beta;            /**< smooth_l1 */
    double delta;           /**< huber */
    bool log_target;        /**< kl_div */
};
#define TH__NN_LOSS .reduction = "mean", .ignore_index = -100, .beta = 1.0, .delta = 1.0
#define TH_NN_LOSS_DEFAULTS {TH__NN_LOSS}
FABRIC_API FABRIC_NODISCARD th_module *th_nn_mse_loss_call(struct th_nn_loss_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_l1_loss_call(struct th_nn_loss_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_smooth_l1_loss_call(struct th_nn_loss_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_huber_loss_call(struct th_nn_loss_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_nll_loss_call(struct th_nn_loss_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_cross_entropy_loss_call(struct th_nn_loss_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_bce_loss_call(struct th_nn_loss_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_bce_with_logits_loss_call(struct th_nn_loss_args args);
FABRIC_API FABRIC_NODISCARD th_module *th_nn_kl_div_loss_call(struct th_nn_loss_args args);
#define TH__LOSS_ARGS(...) ((struct th_nn_loss_args){TH__NN_LOSS, .th__first = 0, __VA_ARGS__})
#define th_nn_mse_loss(...) th_nn_mse_loss_call(TH__LOSS_ARGS(__VA_ARGS__))
#define th_nn_l1_loss(...) th_nn_l1_loss_call(TH__LOSS_ARGS(__VA_ARGS__))
#define th_nn_smooth_l1_loss(...) th_nn_smooth_l1_loss_call(TH__LOSS_ARGS(__VA_ARGS__))
#define th_nn_huber_loss(...) th_nn_huber_loss_call(TH__LOSS_ARGS(__VA_ARGS__))
#define th_nn_nll_loss(...) th_nn_nll_loss_call(TH__LOSS_ARGS(__VA_ARGS__))
#define th_nn_cross_entropy_loss(...) th_nn_cross_entropy_loss_call(TH__LOSS_ARGS(__VA_ARGS__))
#define th_nn_bce_loss(...) th_nn_bce_loss_call(TH__LOSS_ARGS(__VA_ARGS__))
#define th_nn_bce_with_logits_loss(...) th_nn_bce_with_logits_loss_call(TH__LOSS_ARGS(__VA_ARGS__))
#define th_nn_kl_div_loss(...) th_nn_kl_div_loss_call(TH__LOSS_ARGS(__VA_ARGS__))

TH_END_DECLS
#endif
