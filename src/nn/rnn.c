/* nn/rnn.c: RNN, LSTM, GRU on the fused operators. */
#include <cfabric/nn_modules.h>

#include "nn/module_impl.h"
#include <cfabric/ops.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum mode { RNN_TANH, RNN_RELU, LSTM, GRU } mode;

typedef struct rnn {
    mode mode;
    int64_t input_size, hidden_size, num_layers, proj_size;
    bool bias, batch_first, bidirectional;
    double dropout;
} rnn;

static const th_tensors nothing = {NULL, 0};

static int64_t state_size(const rnn *r) { return r->proj_size > 0 ? r->proj_size : r->hidden_size; }
static int64_t n_states(const rnn *r) { return r->num_layers * (r->bidirectional ? 2 : 1); }

/* ---------------------------------------------------------------- forward */

static bool check_input(th_module *self, const rnn *r, th_tensor *input)
{
    int64_t dims = th_dim(input);
    if (dims < 0) return false;
    if (dims != 2 && dims != 3)
        th__fail(TH_ERR_VALUE, self->name, "the input has %lld dimensions, expected 2 or 3", (long long)dims);
    else if (th_size(input, -1) != r->input_size)
        th__fail(TH_ERR_RUNTIME, self->name, "the input's last size is %lld, expected input_size %lld",
                 (long long)th_size(input, -1), (long long)r->input_size);
    return th__pending() == TH_OK;
}

/* One initial state as (layers * directions, batch, size): the caller's, checked, or zeros. */
static th_tensor *initial_state(th_module *self, const rnn *r, th_tensor *given, th_tensor *input, int64_t size, bool batched)
{
    int64_t batch = th_size(input, r->batch_first ? 0 : 1);
    if (given == NULL)
        return th_zeros(TH_INTS(n_states(r), batch, size), .dtype = th_dtype_of(input), .device = th_device_of(input));
    int64_t expected_dims = batched ? 3 : 2, dims = th_dim(given);
    if (dims == expected_dims && !batched) given = th_unsqueeze(given, 1);
    if (th__pending() != TH_OK) return NULL;
    if (dims != expected_dims || th_size(given, 0) != n_states(r) || th_size(given, 1) != batch || th_size(given, 2) != size) {
        th__fail(TH_ERR_RUNTIME, self->name, "an initial state has the wrong sizes, expected (%lld, %lld, %lld)%s",
                 (long long)n_states(r), (long long)batch, (long long)size, batched ? "" : " without the batch");
        return NULL;
    }
    return given;
}

/* The operator's results, in order. Returns how many. */
static int run(th_module *self, const rnn *r, th_tensor *input, th_tensor *h, th_tensor *c, th_arg results[3])
{
    size_t n_weights = self->parameters.count;
    th_tensor **weights = th__scope_alloc((n_weights + 1) * sizeof(th_tensor *));
    if (weights == NULL) return -1;
    for (size_t i = 0; i < n_weights; i++) weights[i] = th__parameter_at(self, i);
    static const char *const names[] = {"aten::rnn_tanh.input", "aten::rnn_relu.input", "aten::lstm.input", "aten::gru.input"};
    th_tensor *both[2] = {h, c};
    th_arg args[] = {TH_A(input),
                     TH_A(h),
                     TH_A_TENSORS(((th_tensors){weights, n_weights})),
                     TH_A_BOOL(r->bias),
                     TH_A_INT(r->num_layers),
                     TH_A_DOUBLE(r->dropout),
                     TH_A_BOOL(self->training),
                     TH_A_BOOL(r->bidirectional),
                     TH_A_BOOL(r->batch_first)};
    if (r->mode == LSTM) args[1] = (th_arg)TH_A_TENSORS(((th_tensors){both, 2}));
    return th_call_args(names[r->mode], args, sizeof args / sizeof *args, results, 3);
}

static th_tensors forward(th_module *self, th_tensors inputs)
{
    const rnn *r = self->args.data;
    size_t n = r->mode == LSTM ? 3 : 2;
    if (inputs.size != 1 && inputs.size != n) {
        th__fail(TH_ERR_TYPE, "th_forward", "%s takes 1 or %zu inputs, got %zu", self->name, n, inputs.size);
        return nothing;
    }
    th_tensor *input = inputs.data[0];
    if (!check_input(self, r, input)) return nothing;
    bool batched = th_dim(input) == 3;
    int64_t batch_dim = r->batch_first ? 0 : 1;
    if (!batched) input = th_unsqueeze(input, batch_dim);
    th_tensor *h = initial_state(self, r, inputs.size > 1 ? inputs.data[1] : NULL, input, state_size(r), batched), *c = NULL;
    if (r->mode == LSTM) c = initial_state(self, r, inputs.size > 1 ? inputs.data[2] : NULL, input, r->hidden_size, batched);
    if (th__pending() != TH_OK) return nothing;
    th_arg results[3] = {TH_A_NONE, TH_A_NONE, TH_A_NONE};
    if (run(self, r, input, h, c, results) != (int)n) return nothing;
    th_tensor *outputs[3] = {results[0].v.tensor, results[1].v.tensor, results[2].v.tensor};
    if (!batched) {
        outputs[0] = th_squeeze_dim(outputs[0], batch_dim);
        for (size_t i = 1; i < n; i++) outputs[i] = th_squeeze_dim(outputs[i], 1);
    }
    return th_list((th_tensors){outputs, n});
}

/* ---------------------------------------------------------------- making one */

static th_status reset(th_module *self)
{
    const rnn *r = self->args.data;
    double bound = 1.0 / sqrt((double)r->hidden_size);
    for (size_t i = 0; i < self->parameters.count; i++) th_nn_init_uniform_(th__parameter_at(self, i), -bound, bound);
    return th__pending();
}

static bool check_options(const char *name, const struct th_nn_rnn_args *args)
{
    if (!(args->dropout >= 0 && args->dropout <= 1))
        th__fail(TH_ERR_VALUE, name, "dropout %g, expected a number from 0 to 1", args->dropout);
    else if (args->input_size <= 0 || args->hidden_size <= 0 || args->num_layers <= 0)
        th__fail(TH_ERR_VALUE, name, "input_size %lld, hidden_size %lld, num_layers %lld, expected numbers above zero",
                 (long long)args->input_size, (long long)args->hidden_size, (long long)args->num_layers);
    else if (args->proj_size < 0 || args->proj_size >= args->hidden_size)
        th__fail(TH_ERR_VALUE, name, "proj_size %lld, expected at least 0 and less than hidden_size %lld",
                 (long long)args->proj_size, (long long)args->hidden_size);
    else if (args->proj_size > 0 && strcmp(name, "LSTM") != 0)
        th__fail(TH_ERR_VALUE, name, "proj_size is given, only LSTM has it");
    else if (args->dropout > 0 && args->num_layers == 1)
        th__warn("%s: dropout acts after all but the last layer, so dropout=%g with num_layers=1 does nothing", name,
                 args->dropout);
    return th__pending() == TH_OK;
}

static void describe(const rnn *r, char repr[TH__REPR_MAX])
{
    char number[40];
    th__repr_add(repr, "%lld, %lld", (long long)r->input_size, (long long)r->hidden_size);
    if (r->proj_size != 0) th__repr_add(repr, ", proj_size=%lld", (long long)r->proj_size);
    if (r->num_layers != 1) th__repr_add(repr, ", num_layers=%lld", (long long)r->num_layers);
    if (!r->bias) th__repr_add(repr, ", bias=False");
    if (r->batch_first) th__repr_add(repr, ", batch_first=True");
    if (r->dropout != 0) th__repr_add(repr, ", dropout=%s", th__repr_double(r->dropout, number));
    if (r->bidirectional) th__repr_add(repr, ", bidirectional=True");
}

/* weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_hr_l0 of one layer and direction; the operator wants this order. */
static void add_layer(th_module *module, const rnn *r, int64_t layer, bool reverse, th__factory factory)
{
    static const int64_t gates[] = {1, 1, 4, 3};
    int64_t gate = gates[r->mode] * r->hidden_size, state = state_size(r);
    int64_t input = layer == 0 ? r->input_size : state * (r->bidirectional ? 2 : 1);
    char name[64];
    const char *tail = reverse ? "_reverse" : "";
#define ADD(kind, ...)                                                                                                           \
    snprintf(name, sizeof name, kind "_l%lld%s", (long long)layer, tail);                                                        \
    th__parameter_new(module, name, TH_INTS(__VA_ARGS__), factory)
    ADD("weight_ih", gate, input);
    ADD("weight_hh", gate, state);
    if (r->bias) {
        ADD("bias_ih", gate);
        ADD("bias_hh", gate);
    }
    if (r->proj_size > 0) {
        ADD("weight_hr", r->proj_size, r->hidden_size);
    }
#undef ADD
}

static th_module *build(const char *name, mode kind, const struct th_nn_rnn_args *args)
{
    TH__CHECK_PENDING_NULL();
    if (!check_options(name, args)) return NULL;
    rnn r = {kind,       args->input_size,  args->hidden_size,   args->num_layers, args->proj_size,
             args->bias, args->batch_first, args->bidirectional, args->dropout};
    char repr[TH__REPR_MAX] = "";
    describe(&r, repr);
    th_module *module = TH__BUILTIN(&r, sizeof r, name, .forward_n = forward, .reset_parameters = reset, .extra_repr = repr);
    th__factory factory = th__factory_resolve(args->device, args->dtype);
    for (int64_t layer = 0; layer < r.num_layers; layer++) {
        add_layer(module, &r, layer, false, factory);
        if (r.bidirectional) add_layer(module, &r, layer, true, factory);
    }
    return th__builtin_finish(module);
}

th_module *th_nn_rnn_call(struct th_nn_rnn_args args)
{
    const char *kind = args.nonlinearity != NULL ? args.nonlinearity : "tanh";
    if (strcmp(kind, "tanh") == 0) return build("RNN", RNN_TANH, &args);
    if (strcmp(kind, "relu") == 0) return build("RNN", RNN_RELU, &args);
    TH__CHECK_PENDING_NULL();
    th__fail(TH_ERR_VALUE, "th_nn_rnn", "nonlinearity '%s', expected 'tanh' or 'relu'", kind);
    return NULL;
}

th_module *th_nn_lstm_call(struct th_nn_rnn_args args) { return build("LSTM", LSTM, &args); }
th_module *th_nn_gru_call(struct th_nn_rnn_args args) { return build("GRU", GRU, &args); }
