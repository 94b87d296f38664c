/* nn/transformer_layer.c: TransformerEncoderLayer and TransformerDecoderLayer. */
#include <cfabric/nn_modules.h>

#include "nn/attention.h"
#include <cfabric/ops.h>
#include <string.h>

typedef struct layer {
    struct th_nn_transformer_layer_args args; /* `activation` is resolved into activation_fn */
    bool decoder;
    int fused_activation; /* 1 relu, 2 gelu, 0 neither */
} layer;

/* The children, in PyTorch's order. */
enum encoder_child { E_SELF_ATTN, E_LINEAR1, E_DROPOUT, E_LINEAR2, E_NORM1, E_NORM2, E_DROPOUT1, E_DROPOUT2 };
enum decoder_child {
    D_SELF_ATTN,
    D_MULTIHEAD_ATTN,
    D_LINEAR1,
    D_DROPOUT,
    D_LINEAR2,
    D_NORM1,
    D_NORM2,
    D_NORM3,
    D_DROPOUT1,
    D_DROPOUT2,
    D_DROPOUT3
};

static const th_tensors nothing = {NULL, 0};
static th_tensors encoder_forward(th_module *self, th_tensors inputs);

static th_tensor *relu(th_tensor *x) { return th_relu(x); }
static th_tensor *gelu(th_tensor *x) { return th_gelu(x); }

static th_tensor *run(const th_module *self, int child, th_tensor *x)
{
    return th_forward_call(self->children[child].module, (th_tensors){&x, 1});
}

/* Attention without weights, then its dropout. */
static th_tensor *attention_block(const th_module *self, int attention, int dropout, th_tensor *x, th_tensor *memory,
                                  th_tensor *mask, th_tensor *padding, bool causal)
{
    if (th__pending() != TH_OK) return NULL;
    th_module *module = self->children[attention].module;
    th__call_flags_set((th__call_flags){module, false, causal, false});
    th_tensors outputs = th_forward_n(module, TH_TENSORS(x, memory, memory, padding, mask));
    if (outputs.size == 0) return NULL;
    th_tensor *result = run(self, dropout, outputs.data[0]);
    if (result != outputs.data[0]) th_drop(outputs.data[0]);
    return result;
}

static th_tensor *feed_forward_block(const th_module *self, int linear1, int dropout, int linear2, int last_dropout, th_tensor *x)
{
    const layer *l = self->args.data;
    th_tensor *hidden = run(self, linear1, x), *active = hidden != NULL ? l->args.activation_fn(hidden) : NULL;
    if (active != hidden) th_drop(hidden);
    th_tensor *dropped = run(self, dropout, active);
    th_tensor *out = run(self, linear2, dropped);
    if (dropped != active) th_drop(active);
    th_drop(dropped);
    th_tensor *result = run(self, last_dropout, out);
    if (result != out) th_drop(out);
    return result;
}

/* x + block, both dropped where this scope made them. */
static th_tensor *residual(th_tensor *x, th_tensor *block, const th_tensor *input)
{
    th_tensor *sum = th_add(x, block);
    th_drop(block);
    if (x != input) th_drop(x);
    return sum;
}

static th_tensor *normalised(const th_module *self, int norm, th_tensor *x)
{
    th_tensor *result = run(self, norm, x);
    th_drop(x);
    return result;
}

/* ---------------------------------------------------------------- encoder layer */

static bool has_hooks(const th_module *module)
{
    if (module->n_pre_hooks + module->n_post_hooks > 0) return true;
    for (size_t i = 0; i < module->n_children; i++)
        if (has_hooks(module->children[i].module)) return true;
    return false;
}

bool th__encoder_layer_fuses(const th_module *self, bool nested)
{
    if (strcmp(self->name, "TransformerEncoderLayer") != 0 || self->args.forward_n != encoder_forward) return false;
    const layer *l = self->args.data;
    th__mha_view v = th__mha_look(self->children[E_SELF_ATTN].module);
    return v.batch_first && v.has_bias && v.same_embed_dim && l->fused_activation != 0 && v.num_heads % 2 == 0 &&
           !(nested && l->args.norm_first);
}

void th__encoder_layer_tensors(const th_module *self, th_tensor *tensors[12])
{
    static const int children[] = {E_NORM1, E_NORM2, E_LINEAR1, E_LINEAR2};
    th__mha_view v = th__mha_look(self->children[E_SELF_ATTN].module);
    th_tensor *attention[] = {v.in_weight, v.in_bias, v.out_weight, v.out_bias};
    memcpy(tensors, attention, sizeof attention);
    for (int i = 0; i < 8; i++) tensors[4 + i] = th__parameter_at(self->children[children[i / 2]].module, (size_t)i % 2);
}

/* Inference in one operator where PyTorch does that too. NULL without an error when it does not apply. */
static th_tensor *encoder_fused(const th_module *self, th_tensor *src, th_tensor *mask, th_tensor *padding,
                                th_tensor *raw_padding)
{
    const layer *l = self->args.data;
    bool modern = th_has_op("aten::scaled_dot_product_attention");
    if (th_dim(src) != 3 || self->training || !th__encoder_layer_fuses(self, false) || (modern ? has_hooks(self) : mask != NULL))
        return NULL;
    th_tensor *used[13] = {src};
    th__encoder_layer_tensors(self, used + 1);
    if (!th__fused_allowed(used, 13)) return NULL;
    th__mha_view v = th__mha_look(self->children[E_SELF_ATTN].module);
    int64_t type = 1;
    th_tensor *merged = modern ? th__mha_merge_masks(&v, mask, padding, src, &type) : raw_padding;
    th_arg args[21] = {TH_A(src),
                       TH_A_INT(v.embed_dim),
                       TH_A_INT(v.num_heads),
                       TH_A(v.in_weight),
                       TH_A(v.in_bias),
                       TH_A(v.out_weight),
                       TH_A(v.out_bias),
                       TH_A_BOOL(l->fused_activation == 2),
                       TH_A_BOOL(l->args.norm_first),
                       TH_A_DOUBLE(l->args.layer_norm_eps)};
    for (size_t i = 0; i < 8; i++) args[10 + i] = (th_arg)TH_A(used[5 + i]);
    args[18] = (th_arg)TH_A_NONE;
    args[19] = (th_arg)TH_A_NONE;
    if (merged != NULL) {
        args[18] = (th_arg)TH_A(merged);
        args[19] = (th_arg)TH_A_INT(type);
    }
    return th_call_one("aten::_transformer_encoder_layer_fwd", args, 20);
}

static th_tensors encoder_forward(th_module *self, th_tensors inputs)
{
    const layer *l = self->args.data;
    if (inputs.size < 1 || inputs.size > 3) {
        th__fail(TH_ERR_TYPE, "th_forward", "%s takes src[, src_mask[, src_key_padding_mask]], got %zu inputs", self->name,
                 inputs.size);
        return nothing;
    }
    th__call_flags flags = {self, false, false, false};
    th__call_flags_take(self, &flags);
    th_tensor *src = inputs.data[0];
    if (!th__tensor_check(src, "th_forward", "src")) return nothing;
    th_tensor *mask = th__canonical_mask(th__input_at(inputs, 1), th_dtype_of(src), "src_mask");
    th_tensor *padding = th__canonical_mask(th__input_at(inputs, 2), th_dtype_of(src), "src_key_padding_mask");
    th_tensor *x = th__pending() == TH_OK ? encoder_fused(self, src, mask, padding, th__input_at(inputs, 2)) : NULL;
    if (x != NULL || th__pending() != TH_OK) return th__pending() == TH_OK ? th_list(TH_TENSORS(x)) : nothing;
    if (l->args.norm_first) {
        th_tensor *n = run(self, E_NORM1, src);
        x = residual(src, attention_block(self, E_SELF_ATTN, E_DROPOUT1, n, n, mask, padding, flags.is_causal), src);
        th_drop(n);
        n = run(self, E_NORM2, x);
        x = residual(x, feed_forward_block(self, E_LINEAR1, E_DROPOUT, E_LINEAR2, E_DROPOUT2, n), src);
    } else {
        x = residual(src, attention_block(self, E_SELF_ATTN, E_DROPOUT1, src, src, mask, padding, flags.is_causal), src);
        x = normalised(self, E_NORM1, x);
        x = residual(x, feed_forward_block(self, E_LINEAR1, E_DROPOUT, E_LINEAR2, E_DROPOUT2, x), src);
        x = normalised(self, E_NORM2, x);
    }
    return th__pending() == TH_OK ? th_list(TH_TENSORS(x)) : nothing;
}

/* ---------------------------------------------------------------- decoder layer */

static th_tensors decoder_forward(th_module *self, th_tensors inputs)
{
    const layer *l = self->args.data;
    if (inputs.size < 2 || inputs.size > 6) {
        th__fail(TH_ERR_TYPE, "th_forward", "%s takes tgt, memory and up to 4 masks, got %zu inputs", self->name, inputs.size);
        return nothing;
    }
    th__call_flags flags = {self, false, false, false};
    th__call_flags_take(self, &flags);
    th_tensor *tgt = inputs.data[0], *memory = inputs.data[1], *x;
    th_tensor *mask = th__input_at(inputs, 2), *memory_mask = th__input_at(inputs, 3);
    th_tensor *padding = th__input_at(inputs, 4), *memory_padding = th__input_at(inputs, 5);
    if (l->args.norm_first) {
        th_tensor *n = run(self, D_NORM1, tgt);
        x = residual(tgt, attention_block(self, D_SELF_ATTN, D_DROPOUT1, n, n, mask, padding, flags.is_causal), tgt);
        th_drop(n);
        n = run(self, D_NORM2, x);
        x = residual(
            x,
            attention_block(self, D_MULTIHEAD_ATTN, D_DROPOUT2, n, memory, memory_mask, memory_padding, flags.memory_is_causal),
            tgt);
        th_drop(n);
        n = run(self, D_NORM3, x);
        x = residual(x, feed_forward_block(self, D_LINEAR1, D_DROPOUT, D_LINEAR2, D_DROPOUT3, n), tgt);
    } else {
        x = residual(tgt, attention_block(self, D_SELF_ATTN, D_DROPOUT1, tgt, tgt, mask, padding, flags.is_causal), tgt);
        x = normalised(self, D_NORM1, x);
        x = residual(
            x,
            attention_block(self, D_MULTIHEAD_ATTN, D_DROPOUT2, x, memory, memory_mask, memory_padding, flags.memory_is_causal),
            tgt);
        x = normalised(self, D_NORM2, x);
        x = residual(x, feed_forward_block(self, D_LINEAR1, D_DROPOUT, D_LINEAR2, D_DROPOUT3, x), tgt);
        x = normalised(self, D_NORM3, x);
    }
    return th__pending() == TH_OK ? th_list(TH_TENSORS(x)) : nothing;
}

/* ---------------------------------------------------------------- making one */

static th_module *build(struct th_nn_transformer_layer_args args, bool decoder);

static th_module *clone(th_module *self)
{
    const layer *l = self->args.data;
    struct th_nn_transformer_layer_args args = l->args;
    args.activation = l->fused_activation == 1 ? "relu" : l->fused_activation == 2 ? "gelu" : NULL;
    bool old = th__init_suspend(true);
    th_module *copy = build(args, l->decoder);
    th__init_suspend(old);
    if (copy == NULL || th__module_copy_state(copy, self) == TH_OK) return copy;
    th_module_free(copy);
    return NULL;
}

static void add(th_module *module, const char *name, th_module *child)
{
    if (module != NULL)
        th_register_module(module, name, child);
    else
        th_module_free(child);
}

static void add_attention(th_module *module, const char *name, const struct th_nn_transformer_layer_args *a)
{
    add(module, name,
        th_nn_multihead_attention(a->d_model, a->nhead, .dropout = a->dropout, .bias = a->bias, .batch_first = a->batch_first,
                                  .device = a->device, .dtype = a->dtype));
}

static bool resolve_activation(layer *l)
{
    const char *name = l->args.activation;
    if (name != NULL && strcmp(name, "relu") == 0)
        l->fused_activation = 1;
    else if (name != NULL && strcmp(name, "gelu") == 0)
        l->fused_activation = 2;
    if (l->fused_activation == 0 && l->args.activation_fn == NULL) {
        th__fail(TH_ERR_VALUE, "th_nn_transformer_layer", "activation '%s', expected 'relu' or 'gelu'",
                 name != NULL ? name : "NULL");
        return false;
    }
    if (l->args.activation_fn != NULL && l->args.activation_fn != relu && l->args.activation_fn != gelu)
        l->fused_activation = 0;
    else
        l->args.activation_fn = l->fused_activation == 1 ? relu : gelu;
    return true;
}

static th_module *build(struct th_nn_transformer_layer_args args, bool decoder)
{
    TH__CHECK_PENDING_NULL();
    layer l = {args, decoder, 0};
    if (!resolve_activation(&l)) return NULL;
    th_module *m = TH__BUILTIN(&l, sizeof l, decoder ? "TransformerDecoderLayer" : "TransformerEncoderLayer",
                               .forward_n = decoder ? decoder_forward : encoder_forward, .clone = clone);
    add_attention(m, "self_attn", &args);
    if (decoder) add_attention(m, "multihead_attn", &args);
    add(m, "linear1", th_nn_linear(args.d_model, args.dim_feedforward, args.bias, args.device, args.dtype));
    add(m, "dropout", th_nn_dropout(args.dropout));
    add(m, "linear2", th_nn_linear(args.dim_feedforward, args.d_model, args.bias, args.device, args.dtype));
    static const char *const norms[] = {"norm1", "norm2", "norm3"}, *const dropouts[] = {"dropout1", "dropout2", "dropout3"};
    for (int i = 0; i < (decoder ? 3 : 2); i++)
        add(m, norms[i],
            th_nn_layer_norm(TH_INTS(args.d_model), .eps = args.layer_norm_eps, .bias = args.bias, .device = args.device,
                             .dtype = args.dtype));
    for (int i = 0; i < (decoder ? 3 : 2); i++) add(m, dropouts[i], th_nn_dropout(args.dropout));
    return th__builtin_finish(m);
}

th_module *th_nn_transformer_encoder_layer_call(struct th_nn_transformer_layer_args args) { return build(args, false); }
th_module *th_nn_transformer_decoder_layer_call(struct th_nn_transformer_layer_args args) { return build(args, true); }
