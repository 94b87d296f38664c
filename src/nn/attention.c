/* nn/attention.c: MultiheadAttention, by the same operators as PyTorch's functional layer of the linked version: from 2.0 on
 * scaled_dot_product_attention when no weights are wanted, else (and in 1.13 always) baddbmm, softmax, bmm. */
#include <cfabric/nn_modules.h>

#include "bridge/autocast.h"
#include "nn/attention.h"
#include <cfabric/ops.h>
#include <math.h>
#include <string.h>

typedef struct mha {
    int64_t embed_dim, num_heads, kdim, vdim;
    double dropout;
    bool add_zero_attn, batch_first, same_embed_dim, need_weights, average_weights;
} mha;

enum { IN_PROJ_WEIGHT, Q_PROJ_WEIGHT, K_PROJ_WEIGHT, V_PROJ_WEIGHT, IN_PROJ_BIAS, BIAS_K, BIAS_V };

static const th_tensors nothing = {NULL, 0};

/* ---------------------------------------------------------------- seams for the transformer layers */

static _Thread_local th__call_flags next_call;

void th__call_flags_set(th__call_flags flags) { next_call = flags; }

bool th__call_flags_take(const th_module *module, th__call_flags *flags)
{
    if (next_call.module != module) return false;
    *flags = next_call;
    next_call.module = NULL;
    return true;
}

th_tensor *th__canonical_mask(th_tensor *mask, th_dtype dtype, const char *name)
{
    if (mask == NULL || th__pending() != TH_OK) return NULL;
    th_dtype have = th_dtype_of(mask);
    if (th_dtype_is_floating_point(have)) return mask;
    if (have != TH_BOOL) {
        th__fail(TH_ERR_TYPE, "th_forward", "%s is %s, expected bool or a floating point dtype", name, th_dtype_name(have));
        return NULL;
    }
    return th_masked_fill_scalar_(th_zeros_like(mask, .dtype = dtype), mask, TH_S(-INFINITY));
}

th__mha_view th__mha_look(const th_module *module)
{
    const mha *m = module->args.data;
    const th_module *out = module->children[0].module;
    return (th__mha_view){m->embed_dim,
                          m->num_heads,
                          m->batch_first,
                          m->same_embed_dim,
                          th__parameter_at(module, IN_PROJ_BIAS) != NULL,
                          th__parameter_at(module, IN_PROJ_WEIGHT),
                          th__parameter_at(module, IN_PROJ_BIAS),
                          th__parameter_at(out, 0),
                          th__parameter_at(out, 1)};
}

th_tensor *th__mha_merge_masks(const th__mha_view *v, th_tensor *attn_mask, th_tensor *padding, th_tensor *query, int64_t *type)
{
    *type = attn_mask != NULL ? 2 : 1;
    if (attn_mask == NULL) return padding;
    int64_t batch = th_size(query, 0), length = th_size(query, 1);
    th_tensor *mask = th_dim(attn_mask) == 3
                          ? th_view(attn_mask, TH_INTS(batch, -1, length, length))
                          : th_expand(th_view(attn_mask, TH_INTS(1, 1, length, length)), TH_INTS(batch, v->num_heads, -1, -1));
    if (padding == NULL) return mask;
    return th_add(mask, th_expand(th_view(padding, TH_INTS(batch, 1, 1, length)), TH_INTS(-1, v->num_heads, -1, -1)));
}

bool th__fused_allowed(th_tensor *const *tensors, size_t n)
{
    if (th__autocast_is_enabled(TH_DEVICE_CUDA)) return false; /* PyTorch asks for CUDA's mode only, whatever the device */
    for (size_t i = 0; i < n; i++) {
        if (tensors[i] == NULL) continue;
        th_device_type device = th_device_of(tensors[i]).type;
        if (device != TH_DEVICE_CPU && device != TH_DEVICE_CUDA) return false;
        if (th_is_grad_enabled() && th_requires_grad(tensors[i])) return false;
    }
    return true;
}

/* ---------------------------------------------------------------- one call */

typedef struct call {
    const th_module *self;
    const mha *m;
    th_tensor *query, *key, *value; /* (length, batch, features) */
    th_tensor *padding, *mask;      /* floating point, or NULL */
    bool need_weights, causal, batched, modern;
    int64_t tgt_len, batch, head_dim;
} call;

/* (length, batch, parts * e) as (parts, length, batch, e), contiguous; the views in between end here. */
static th_tensor *stack_parts(th_tensor *all, int64_t parts, int64_t e)
{
    TH_SCOPE();
    th_tensor *split = th_unsqueeze(th_unflatten_int(all, -1, TH_INTS(parts, e)), 0);
    return th_escape(th_contiguous(th_squeeze_dim(th_transpose_int(split, 0, -2), -2)));
}

/* (length, batch, embed) three times: queries, keys, values. */
static void project_packed(const call *c, th_tensor *w, th_tensor *b, th_tensor *out[3])
{
    int64_t e = th_size(c->query, -1);
    if (c->key != c->value) {
        th_tensors ws = th_chunk(w, 3), bs = b != NULL ? th_chunk(b, 3) : nothing;
        th_tensor *inputs[3] = {c->query, c->key, c->value};
        for (size_t i = 0; i < 3 && ws.size == 3; i++) out[i] = th_linear(inputs[i], ws.data[i], th__input_at(bs, i));
        return;
    }
    bool self_attention = c->query == c->key;
    th_tensor *w_kv = w, *b_kv = b;
    if (!self_attention) {
        th_tensors ws = th_split_with_sizes(w, TH_INTS(e, 2 * e)),
                   bs = b != NULL ? th_split_with_sizes(b, TH_INTS(e, 2 * e)) : nothing;
        if (ws.size != 2) return;
        out[0] = th_linear(c->query, ws.data[0], th__input_at(bs, 0));
        w_kv = ws.data[1];
        b_kv = th__input_at(bs, 1);
    }
    int64_t parts = self_attention ? 3 : 2;
    th_tensor *all = th_linear(c->key, w_kv, b_kv);
    if (!c->modern) {
        th_tensors chunks = th_chunk(all, parts, -1);
        for (size_t i = 0; i < chunks.size; i++) out[i + (size_t)(3 - parts)] = chunks.data[i];
        return;
    }
    th_tensor *stacked = stack_parts(all, parts, e);
    th_drop(all);
    for (int64_t i = 0; i < parts; i++) out[i + 3 - parts] = th_select_int(stacked, 0, i);
}

static void project(const call *c, th_tensor *out[3])
{
    th_tensor *bias = th__parameter_at(c->self, IN_PROJ_BIAS);
    if (c->m->same_embed_dim) {
        project_packed(c, th__parameter_at(c->self, IN_PROJ_WEIGHT), bias, out);
        return;
    }
    th_tensors bs = bias != NULL ? th_chunk(bias, 3) : nothing;
    th_tensor *inputs[3] = {c->query, c->key, c->value};
    for (size_t i = 0; i < 3; i++)
        out[i] = th_linear(inputs[i], th__parameter_at(c->self, Q_PROJ_WEIGHT + i), th__input_at(bs, i));
}

static void widen_masks(call *c)
{
    if (c->mask != NULL) c->mask = th_pad(c->mask, TH_INTS(0, 1));
    if (c->padding != NULL) c->padding = th_pad(c->padding, TH_INTS(0, 1));
}

/* add_bias_kv, the split into heads, add_zero_attn. Afterwards qkv are (batch * heads, length, head_dim). */
static void split_heads(call *c, th_tensor *qkv[3])
{
    th_tensor *bias_k = th__parameter_at(c->self, BIAS_K), *bias_v = th__parameter_at(c->self, BIAS_V);
    if (bias_k != NULL && bias_v != NULL) {
        qkv[1] = th_cat(TH_TENSORS(qkv[1], th_repeat(bias_k, TH_INTS(1, c->batch, 1))));
        qkv[2] = th_cat(TH_TENSORS(qkv[2], th_repeat(bias_v, TH_INTS(1, c->batch, 1))));
        widen_masks(c);
    }
    int64_t rows = c->batch * c->m->num_heads;
    for (size_t i = 0; i < 3; i++) {
        th_tensor *x = c->modern ? qkv[i] : th_contiguous(qkv[i]);
        qkv[i] = th_transpose_int(th_view(x, TH_INTS(th_size(x, 0), rows, c->head_dim)), 0, 1);
    }
    if (!c->m->add_zero_attn) return;
    for (size_t i = 1; i < 3; i++) {
        th_tensor *zeros = th_zeros(TH_INTS(rows, 1, c->head_dim), .dtype = th_dtype_of(qkv[i]), .device = th_device_of(qkv[i]));
        qkv[i] = th_cat(TH_TENSORS(qkv[i], zeros), 1);
    }
    widen_masks(c);
}

/* Both masks as one that is added to the scores, NULL for none. */
static th_tensor *merged_mask(const call *c, int64_t src_len)
{
    if (c->padding == NULL) return c->mask;
    int64_t heads = c->m->num_heads;
    if (th_size(c->padding, 0) != c->batch || th_size(c->padding, 1) != src_len) {
        th__fail(TH_ERR_RUNTIME, "th_forward", "key_padding_mask is (%lld, %lld), expected (%lld, %lld)",
                 (long long)th_size(c->padding, 0), (long long)th_size(c->padding, 1), (long long)c->batch, (long long)src_len);
        return NULL;
    }
    th_tensor *padding = th_expand(th_view(c->padding, TH_INTS(c->batch, 1, 1, src_len)), TH_INTS(-1, heads, -1, -1));
    padding = th_reshape(padding, TH_INTS(c->batch * heads, 1, src_len));
    return c->mask != NULL ? th_add(c->mask, padding) : padding;
}

static th_tensor *project_out(const call *c, th_tensor *x)
{
    const th_module *out = c->self->children[0].module;
    th_tensor *y = th_linear(x, th__parameter_at(out, 0), th__parameter_at(out, 1));
    y = th_view(y, TH_INTS(c->tgt_len, c->batch, th_size(y, 1)));
    return c->batched ? y : th_squeeze_dim(y, 1);
}

/* Scores, softmax and dropout in separate steps. *weights gets what the caller asked for, or NULL. */
static th_tensor *attend_by_steps(const call *c, th_tensor *qkv[3], th_tensor *mask, double p, th_tensor **weights)
{
    double e = (double)th_size(qkv[0], 2);
    th_tensor *scaled = c->modern ? th_mul_scalar(qkv[0], TH_S(sqrt(1.0 / e))) : th_div_scalar(qkv[0], TH_S(sqrt(e)));
    th_tensor *keys = th_transpose_int(qkv[1], -2, -1);
    th_tensor *scores = mask != NULL ? th_baddbmm(mask, scaled, keys) : th_bmm(scaled, keys);
    th_tensor *w = th_softmax_int(scores, -1);
    th_drop(scores);
    if (p > 0.0) w = th_dropout(w, p, true);
    th_tensor *mixed = th_bmm(w, qkv[2]);
    th_tensor *joined = th_reshape(th_transpose_int(mixed, 0, 1), TH_INTS(c->tgt_len * c->batch, c->m->embed_dim));
    th_tensor *out = project_out(c, joined);
    if (!c->need_weights) return out;
    w = th_view(w, TH_INTS(c->batch, c->m->num_heads, c->tgt_len, th_size(qkv[1], 1)));
    if (c->m->average_weights)
        w = c->modern ? th_mean_dim(w, TH_INTS(1)) : th_div_scalar(th_sum_dim_intlist(w, TH_INTS(1)), TH_S(c->m->num_heads));
    *weights = c->batched ? w : th_squeeze_dim(w, 0);
    return out;
}

/* scaled_dot_product_attention; by name, since 1.13 does not have it. */
static th_tensor *attend_fused(const call *c, th_tensor *qkv[3], th_tensor *mask, double p)
{
    int64_t heads = c->m->num_heads, src_len = th_size(qkv[1], 1);
    if (mask != NULL)
        mask = th_size(mask, 0) == 1 && th_dim(mask) == 3 ? th_unsqueeze(mask, 0)
                                                          : th_view(mask, TH_INTS(c->batch, heads, -1, src_len));
    th_arg args[] = {TH_A(th_view(qkv[0], TH_INTS(c->batch, heads, c->tgt_len, c->head_dim))),
                     TH_A(th_view(qkv[1], TH_INTS(c->batch, heads, src_len, c->head_dim))),
                     TH_A(th_view(qkv[2], TH_INTS(c->batch, heads, src_len, c->head_dim))),
                     TH_A_NONE,
                     TH_A_DOUBLE(p),
                     TH_A_BOOL(c->causal)};
    if (mask != NULL) args[3] = (th_arg)TH_A(mask);
    th_tensor *mixed = th_call_one("aten::scaled_dot_product_attention", args, 6);
    return project_out(c, th_reshape(th_permute(mixed, TH_INTS(2, 0, 1, 3)), TH_INTS(c->batch * c->tgt_len, c->m->embed_dim)));
}

static bool check_shapes(call *c)
{
    int64_t dims = th_dim(c->query), other = c->batched ? 3 : 2;
    if (th__pending() != TH_OK) return false;
    if (dims != other || th_dim(c->key) != other || th_dim(c->value) != other)
        th__fail(TH_ERR_RUNTIME, "th_forward",
                 "query, key and value have %lld, %lld and %lld dimensions, expected 3 each, or 2 each "
                 "without a batch",
                 (long long)dims, (long long)th_dim(c->key), (long long)th_dim(c->value));
    else if (th_size(c->query, -1) != c->m->embed_dim)
        th__fail(TH_ERR_RUNTIME, "th_forward", "the query has %lld features, expected embed_dim %lld",
                 (long long)th_size(c->query, -1), (long long)c->m->embed_dim);
    else if (th_size(c->key, 0) != th_size(c->value, 0))
        th__fail(TH_ERR_RUNTIME, "th_forward", "key and value have lengths %lld and %lld, expected the same",
                 (long long)th_size(c->key, 0), (long long)th_size(c->value, 0));
    else if (c->padding != NULL && th_dim(c->padding) != other - 1)
        th__fail(TH_ERR_RUNTIME, "th_forward", "key_padding_mask has %lld dimensions, expected %lld",
                 (long long)th_dim(c->padding), (long long)other - 1);
    return th__pending() == TH_OK;
}

static bool check_mask(call *c)
{
    if (c->mask == NULL) return true;
    int64_t src_len = th_size(c->key, 0), dims = th_dim(c->mask), rows = c->batch * c->m->num_heads;
    if (dims == 2 && th_size(c->mask, 0) == c->tgt_len && th_size(c->mask, 1) == src_len) {
        c->mask = th_unsqueeze(c->mask, 0);
        return true;
    }
    if (dims == 3 && th_size(c->mask, 0) == rows && th_size(c->mask, 1) == c->tgt_len && th_size(c->mask, 2) == src_len)
        return true;
    if (th__pending() == TH_OK)
        th__fail(TH_ERR_RUNTIME, "th_forward", "attn_mask has the wrong sizes, expected (%lld, %lld) or (%lld, %lld, %lld)",
                 (long long)c->tgt_len, (long long)src_len, (long long)rows, (long long)c->tgt_len, (long long)src_len);
    return false;
}

/* F.multi_head_attention_forward */
static th_tensor *attend(call *c, th_tensor **weights)
{
    if (!c->batched) {
        /* Three tensors even for self-attention, as in Python: the projection then goes the separate way. */
        c->query = th_unsqueeze(c->query, 1);
        c->key = th_unsqueeze(c->key, 1);
        c->value = th_unsqueeze(c->value, 1);
        if (c->padding != NULL) c->padding = th_unsqueeze(c->padding, 0);
    }
    c->tgt_len = th_size(c->query, 0);
    c->batch = th_size(c->query, 1);
    c->head_dim = c->m->embed_dim / c->m->num_heads;
    if (c->causal && c->mask == NULL) {
        th__fail(TH_ERR_RUNTIME, "th_forward", "is_causal needs an attn_mask: th_nn_generate_square_subsequent_mask makes it");
        return NULL;
    }
    if (c->causal && c->padding == NULL && !c->need_weights)
        c->mask = NULL;
    else if (c->padding != NULL)
        c->causal = false;
    th_tensor *qkv[3] = {NULL, NULL, NULL};
    project(c, qkv);
    if (!check_mask(c)) return NULL;
    split_heads(c, qkv);
    th_tensor *mask = merged_mask(c, th_size(qkv[1], 1));
    if (th__pending() != TH_OK) return NULL;
    double p = c->self->training ? c->m->dropout : 0.0;
    if (c->need_weights || !c->modern) return attend_by_steps(c, qkv, mask, p, weights);
    return attend_fused(c, qkv, mask, p);
}

/* ---------------------------------------------------------------- the module */

/* PyTorch's fused inference path. False when it does not apply. 1.13 gives it the padding mask as the caller gave it. */
static bool try_native(const th_module *self, const mha *m, const call *c, bool float_masks, th_tensor *raw_padding,
                       th_tensors *outputs)
{
    th__mha_view v = th__mha_look(self);
    bool plain = c->batched && c->query == c->key && c->key == c->value && !self->training && m->batch_first &&
                 m->same_embed_dim && m->num_heads % 2 == 0 && !m->add_zero_attn && v.in_bias != NULL &&
                 th__parameter_at(self, BIAS_K) == NULL && th_dtype_of(c->query) == th_dtype_of(v.in_weight);
    if (!plain || (c->modern ? float_masks : c->mask != NULL || m->dropout != 0)) return false;
    th_tensor *used[] = {c->query, v.in_weight, v.in_bias, v.out_weight, v.out_bias};
    if (!th__fused_allowed(used, 5)) return false;
    int64_t type = 1;
    th_tensor *mask = c->modern ? th__mha_merge_masks(&v, c->mask, c->padding, c->query, &type) : raw_padding;
    th_arg args[] = {TH_A(c->query),
                     TH_A(c->query),
                     TH_A(c->query),
                     TH_A_INT(v.embed_dim),
                     TH_A_INT(v.num_heads),
                     TH_A(v.in_weight),
                     TH_A(v.in_bias),
                     TH_A(v.out_weight),
                     TH_A(v.out_bias),
                     TH_A_NONE,
                     TH_A_BOOL(c->need_weights),
                     TH_A_BOOL(m->average_weights),
                     TH_A_NONE};
    if (mask != NULL) {
        args[9] = (th_arg)TH_A(mask);
        args[12] = (th_arg)TH_A_INT(type);
    }
    th_arg results[2] = {TH_A_NONE, TH_A_NONE};
    if (th_call_args("aten::_native_multi_head_attention", args, 13, results, 2) == 2)
        *outputs = th_list(TH_TENSORS(results[0].v.tensor, c->need_weights ? results[1].v.tensor : NULL));
    return true;
}

/* Python's `is`: from here on the same tensor is the same handle. */
static void unify(call *c)
{
    if (th_is_same(c->value, c->key)) c->value = c->key;
    if (!th_is_same(c->key, c->query)) return;
    if (c->value == c->key) c->value = c->query;
    c->key = c->query;
}

static bool is_float(th_tensor *mask) { return mask != NULL && th_dtype_is_floating_point(th_dtype_of(mask)); }

static th_tensors forward(th_module *self, th_tensors inputs)
{
    const mha *m = self->args.data;
    if (inputs.size < 3 || inputs.size > 5) {
        th__fail(TH_ERR_TYPE, "th_forward", "%s takes query, key, value[, key_padding_mask[, attn_mask]], got %zu inputs",
                 self->name, inputs.size);
        return nothing;
    }
    th__call_flags flags = {self, m->need_weights, false, false};
    th__call_flags_take(self, &flags);
    call c = {.self = self,
              .m = m,
              .query = inputs.data[0],
              .key = inputs.data[1],
              .value = inputs.data[2],
              .padding = th__input_at(inputs, 3),
              .mask = th__input_at(inputs, 4),
              .need_weights = flags.need_weights,
              .causal = flags.is_causal,
              .modern = th_has_op("aten::scaled_dot_product_attention")};
    c.batched = th_dim(c.query) == 3;
    if (th__pending() != TH_OK) return nothing;
    unify(&c);
    bool float_masks = is_float(c.mask) || is_float(c.padding);
    c.padding = th__canonical_mask(c.padding, th_dtype_of(c.query), "key_padding_mask");
    c.mask = th__canonical_mask(c.mask, th_dtype_of(c.query), "attn_mask");
    if (!check_shapes(&c)) return nothing;
    th_tensors outputs = nothing;
    if (try_native(self, m, &c, float_masks, th__input_at(inputs, 3), &outputs)) return outputs;
    bool swap = m->batch_first && c.batched;
    if (swap) {
        th_tensor *q = th_transpose_int(c.query, 1, 0), *k = c.key == c.query ? q : th_transpose_int(c.key, 1, 0);
        c.value = c.value == c.key ? k : th_transpose_int(c.value, 1, 0);
        c.query = q;
        c.key = k;
    }
    th_tensor *weights = NULL, *out = attend(&c, &weights);
    if (swap) out = th_transpose_int(out, 1, 0);
    return th__pending() == TH_OK ? th_list(TH_TENSORS(out, weights)) : nothing;
}

static th_status reset(th_module *self)
{
    const mha *m = self->args.data;
    th_tensor *out_bias = th__parameter_at(self->children[0].module, 1);
    if (m->same_embed_dim) th_nn_init_xavier_uniform_(th__parameter_at(self, IN_PROJ_WEIGHT));
    for (size_t i = Q_PROJ_WEIGHT; i <= V_PROJ_WEIGHT && !m->same_embed_dim; i++)
        th_nn_init_xavier_uniform_(th__parameter_at(self, i));
    if (th__parameter_at(self, IN_PROJ_BIAS) != NULL) th_nn_init_constant_(th__parameter_at(self, IN_PROJ_BIAS), 0.0);
    if (th__parameter_at(self, IN_PROJ_BIAS) != NULL && out_bias != NULL) th_nn_init_constant_(out_bias, 0.0);
    for (size_t i = BIAS_K; i <= BIAS_V; i++)
        if (th__parameter_at(self, i) != NULL) th_nn_init_xavier_normal_(th__parameter_at(self, i));
    return th__pending();
}

th_module *th_nn_multihead_attention_call(struct th_nn_multihead_attention_args args)
{
    TH__CHECK_PENDING_NULL();
    int64_t e = args.embed_dim, kdim = args.kdim > 0 ? args.kdim : e, vdim = args.vdim > 0 ? args.vdim : e;
    if (e <= 0 || args.num_heads <= 0 || e % args.num_heads != 0) {
        th__fail(TH_ERR_VALUE, "th_nn_multihead_attention",
                 "embed_dim %lld and num_heads %lld, expected numbers above zero with embed_dim divisible by num_heads",
                 (long long)e, (long long)args.num_heads);
        return NULL;
    }
    mha m = {e,
             args.num_heads,
             kdim,
             vdim,
             args.dropout,
             args.add_zero_attn,
             args.batch_first,
             kdim == e && vdim == e,
             args.need_weights,
             args.average_attn_weights};
    th_module *module = TH__BUILTIN(&m, sizeof m, "MultiheadAttention", .forward_n = forward, .reset_parameters = reset);
    th__factory f = th__factory_resolve(args.device, args.dtype);
    th__parameter_if(m.same_embed_dim, module, "in_proj_weight", TH_INTS(3 * e, e), f);
    th__parameter_if(!m.same_embed_dim, module, "q_proj_weight", TH_INTS(e, e), f);
    th__parameter_if(!m.same_embed_dim, module, "k_proj_weight", TH_INTS(e, kdim), f);
    th__parameter_if(!m.same_embed_dim, module, "v_proj_weight", TH_INTS(e, vdim), f);
    th__parameter_if(args.bias, module, "in_proj_bias", TH_INTS(3 * e), f);
    struct th_nn_linear_args linear = {e, e, args.bias, f.device, f.dtype};
    if (module != NULL) th_register_module(module, "out_proj", th__linear_named("NonDynamicallyQuantizableLinear", linear));
    th__parameter_if(args.add_bias_kv, module, "bias_k", TH_INTS(1, 1, e), f);
    th__parameter_if(args.add_bias_kv, module, "bias_v", TH_INTS(1, 1, e), f);
    return th__builtin_finish(module);
}
