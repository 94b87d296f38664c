/* nn/transformer.c: TransformerEncoder, TransformerDecoder, Transformer. */
#include <cfabric/nn_modules.h>

#include "nn/attention.h"
#include <cfabric/ops.h>
#include <math.h>
#include <string.h>

static const th_tensors nothing = {NULL, 0};

th_tensor *th_nn_generate_square_subsequent_mask(int64_t size, th_device device, th_dtype dtype)
{
    TH__CHECK_PENDING_NULL();
    TH_SCOPE();
    th__factory factory = th__factory_resolve(device, dtype);
    return th_escape(th_triu(th_full(TH_INTS(size, size), TH_S(-INFINITY), .dtype = factory.dtype, .device = factory.device), 1));
}

/* PyTorch 2's _detect_is_causal_mask with is_causal=None: the mask is exactly the causal one. */
static bool is_causal(th_tensor *mask, int64_t length)
{
    if (mask == NULL || !th_has_op("aten::scaled_dot_product_attention")) return false;
    if (th_dim(mask) != 2 || th_size(mask, 0) != length || th_size(mask, 1) != length) return false;
    TH_SCOPE();
    th_tensor *causal = th_nn_generate_square_subsequent_mask(length, th_device_of(mask), th_dtype_of(mask));
    return th_item(th_all(th_eq(mask, causal))) != 0.0;
}

/* ---------------------------------------------------------------- stacks of layers */

typedef struct stack {
    bool decoder, batch_first, nested;
    size_t max_inputs;
} stack;

enum { LAYERS = 0, NORM = 1 }; /* children */

static int64_t length_of(const stack *s, th_tensor *x) { return th_size(x, th_dim(x) == 3 && s->batch_first ? 1 : 0); }

/* PyTorch leaves out the padded positions in inference: the batch as a nested tensor. NULL when it would not do that here. */
static th_tensor *as_nested(const stack *s, const th_module *first, th_tensor *src, th_tensor *mask, th_tensor *padding)
{
    if (!s->nested || first->training || th_dim(src) != 3 || padding == NULL || mask != NULL) return NULL;
    th_tensor *used[13] = {src};
    th__encoder_layer_tensors(first, used + 1);
    if (!th__fused_allowed(used, 13)) return NULL;
    th_tensor *kept = th_logical_not(padding);
    if (!th__nested_tensor_from_mask_left_aligned(src, kept)) return NULL;
    return th__nested_tensor_from_mask(src, kept, .mask_check = false);
}

static th_tensor *from_nested(th_tensor *nested, th_tensor *like)
{
    if (th_has_op("aten::scaled_dot_product_attention")) return th_to_padded_tensor(nested, 0.0, th_sizes(like));
    return th_to_padded_tensor(nested, 0.0);
}

static th_tensors stack_forward(th_module *self, th_tensors inputs)
{
    const stack *s = self->args.data;
    size_t min_inputs = s->decoder ? 2 : 1, mask_at = s->decoder ? 2 : 1;
    if (inputs.size < min_inputs || inputs.size > s->max_inputs) {
        th__fail(TH_ERR_TYPE, "th_forward", "%s takes %zu to %zu inputs, got %zu", self->name, min_inputs, s->max_inputs,
                 inputs.size);
        return nothing;
    }
    th_tensor *args[6] = {NULL};
    for (size_t i = 0; i < inputs.size; i++) args[i] = inputs.data[i];
    if (!th__tensor_check(args[0], "th_forward", s->decoder ? "tgt" : "src")) return nothing;
    /* PyTorch 1 hands masks to the layers as they are. */
    if (!s->decoder && th_has_op("aten::scaled_dot_product_attention")) {
        args[1] = th__canonical_mask(args[1], th_dtype_of(args[0]), "mask");
        args[2] = th__canonical_mask(args[2], th_dtype_of(args[0]), "src_key_padding_mask");
    }
    bool causal = is_causal(args[mask_at], length_of(s, args[0]));
    th_module *layers = self->children[LAYERS].module;
    th_tensor *nested = s->decoder ? NULL : as_nested(s, layers->children[0].module, args[0], args[1], args[2]);
    if (nested != NULL) {
        args[0] = nested;
        args[2] = NULL;
    }
    for (size_t i = 0; i < layers->n_children && th__pending() == TH_OK; i++) {
        th_module *layer = layers->children[i].module;
        th__call_flags_set((th__call_flags){layer, false, causal, false});
        th_tensor *next = th_forward_call(layer, (th_tensors){args, s->max_inputs});
        if (args[0] != inputs.data[0] && next != args[0]) th_drop(args[0]);
        args[0] = next;
    }
    if (nested != NULL) args[0] = from_nested(args[0], inputs.data[0]);
    if (self->n_children > NORM && th__pending() == TH_OK) {
        th_tensor *before = args[0];
        args[0] = th_forward(self->children[NORM].module, before);
        if (before != inputs.data[0]) th_drop(before);
    }
    return th__pending() == TH_OK ? th_list(TH_TENSORS(args[0])) : nothing;
}

static bool is_batch_first(const th_module *layer)
{
    const char *name = layer->name;
    if (strcmp(name, "TransformerEncoderLayer") != 0 && strcmp(name, "TransformerDecoderLayer") != 0) return false;
    return layer->n_children > 0 && th__mha_look(layer->children[0].module).batch_first;
}

static th_module *build_stack(const char *name, bool decoder, struct th_nn_transformer_stack_args args)
{
    th_module *layers = NULL, *module = NULL;
    if (th__pending() == TH_OK && args.layer == NULL) th__fail(TH_ERR_TYPE, name, "layer is NULL, expected a module");
    if (th__pending() == TH_OK && args.num_layers <= 0)
        th__fail(TH_ERR_VALUE, name, "num_layers %lld, expected a number above zero", (long long)args.num_layers);
    if (th__pending() == TH_OK && th__module_check(args.layer, name)) {
        bool nested = !decoder && args.enable_nested_tensor && th__encoder_layer_fuses(args.layer, true);
        stack s = {decoder, is_batch_first(args.layer), nested, decoder ? 6 : 3};
        module = TH__BUILTIN(&s, sizeof s, name, .forward_n = stack_forward);
        layers = th_nn_module_list();
        for (int64_t i = 0; i < args.num_layers && th__pending() == TH_OK; i++) th_nn_append(layers, th_module_clone(args.layer));
    }
    th_module_free(args.layer);
    if (module != NULL)
        th_register_module(module, "layers", layers);
    else
        th_module_free(layers);
    if (module != NULL && args.norm != NULL)
        th_register_module(module, "norm", args.norm);
    else
        th_module_free(args.norm);
    return th__builtin_finish(module);
}

th_module *th_nn_transformer_encoder_call(struct th_nn_transformer_stack_args args)
{
    return build_stack("TransformerEncoder", false, args);
}

th_module *th_nn_transformer_decoder_call(struct th_nn_transformer_stack_args args)
{
    return build_stack("TransformerDecoder", true, args);
}

/* ---------------------------------------------------------------- Transformer */

typedef struct transformer {
    int64_t d_model;
    bool batch_first;
} transformer;

enum { ENCODER = 0, DECODER = 1 };

static bool check_inputs(const transformer *t, th_tensor *src, th_tensor *tgt)
{
    if (!th__tensor_check(src, "th_forward", "src") || !th__tensor_check(tgt, "th_forward", "tgt")) return false;
    int64_t dims = th_dim(src), batch = t->batch_first ? 0 : 1;
    if (dims == 3 && th_dim(tgt) == 3 && th_size(src, batch) != th_size(tgt, batch))
        th__fail(TH_ERR_RUNTIME, "th_forward", "src and tgt have %lld and %lld batches, expected the same number",
                 (long long)th_size(src, batch), (long long)th_size(tgt, batch));
    else if (th_size(src, -1) != t->d_model || th_size(tgt, -1) != t->d_model)
        th__fail(TH_ERR_RUNTIME, "th_forward", "src and tgt have %lld and %lld features, expected d_model %lld",
                 (long long)th_size(src, -1), (long long)th_size(tgt, -1), (long long)t->d_model);
    return th__pending() == TH_OK;
}

static th_tensors transformer_forward(th_module *self, th_tensors inputs)
{
    if (inputs.size < 2 || inputs.size > 8) {
        th__fail(TH_ERR_TYPE, "th_forward", "%s takes src, tgt and up to 6 masks, got %zu inputs", self->name, inputs.size);
        return nothing;
    }
    th_tensor *in[8] = {NULL};
    for (size_t i = 0; i < inputs.size; i++) in[i] = inputs.data[i];
    if (!check_inputs(self->args.data, in[0], in[1])) return nothing;
    th_tensor *memory = th_forward_call(self->children[ENCODER].module, TH_TENSORS(in[0], in[2], in[5]));
    th_tensor *out = th_forward_call(self->children[DECODER].module, TH_TENSORS(in[1], memory, in[3], in[4], in[6], in[7]));
    return th__pending() == TH_OK ? th_list(TH_TENSORS(out)) : nothing;
}

static int xavier(const char *name, th_tensor *tensor, void *user)
{
    (void)name;
    (void)user;
    if (th_dim(tensor) > 1) th_nn_init_xavier_uniform_(tensor);
    return th__pending();
}

static th_status reset(th_module *self)
{
    th_named_parameters(self, xavier, NULL);
    return th__pending();
}

static th_module *make_stack(const struct th_nn_transformer_args *a, bool decoder)
{
    struct th_nn_transformer_layer_args layer = {.d_model = a->d_model,
                                                 .nhead = a->nhead,
                                                 .dim_feedforward = a->dim_feedforward,
                                                 .dropout = a->dropout,
                                                 .activation = a->activation,
                                                 .layer_norm_eps = a->layer_norm_eps,
                                                 .batch_first = a->batch_first,
                                                 .norm_first = a->norm_first,
                                                 .bias = a->bias,
                                                 .device = a->device,
                                                 .dtype = a->dtype};
    struct th_nn_transformer_stack_args parts = {TH__NN_TRANSFORMER_STACK,
                                                 .num_layers = decoder ? a->num_decoder_layers : a->num_encoder_layers};
    parts.layer = decoder ? th_nn_transformer_decoder_layer_call(layer) : th_nn_transformer_encoder_layer_call(layer);
    parts.norm =
        th_nn_layer_norm(TH_INTS(a->d_model), .eps = a->layer_norm_eps, .bias = a->bias, .device = a->device, .dtype = a->dtype);
    return decoder ? th_nn_transformer_decoder_call(parts) : th_nn_transformer_encoder_call(parts);
}

th_module *th_nn_transformer_call(struct th_nn_transformer_args args)
{
    transformer t = {args.d_model, args.batch_first};
    th_module *module = TH__BUILTIN(&t, sizeof t, "Transformer", .forward_n = transformer_forward, .reset_parameters = reset);
    if (module == NULL) {
        th_module_free(args.custom_encoder);
        th_module_free(args.custom_decoder);
        return NULL;
    }
    th_register_module(module, "encoder", args.custom_encoder != NULL ? args.custom_encoder : make_stack(&args, false));
    th_register_module(module, "decoder", args.custom_decoder != NULL ? args.custom_decoder : make_stack(&args, true));
    return th__builtin_finish(module);
}
