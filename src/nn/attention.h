/* nn/attention.h: what the transformer layers may say to a MultiheadAttention beyond its tensors. */
#ifndef FABRIC_NN_ATTENTION_H
#define FABRIC_NN_ATTENTION_H

#include "nn/module_impl.h"

/* Arguments of forward() in Python that are no tensors. Set just before the module is called through th_forward_n, so that hooks
 * and wrappers still see the call; the next forward of that module on this thread takes them. */
typedef struct th__call_flags {
    const th_module *module;
    bool need_weights;
    bool is_causal;        /* the attention mask is the causal one: kernels may skip it */
    bool memory_is_causal; /* decoder layers */
} th__call_flags;
void th__call_flags_set(th__call_flags flags);
/* False when none are set for this module. */
bool th__call_flags_take(const th_module *module, th__call_flags *flags);

/* PyTorch's _canonical_mask: a bool mask becomes 0 / -inf of `dtype`; NULL stays NULL. */
th_tensor *th__canonical_mask(th_tensor *mask, th_dtype dtype, const char *name);
/* i-th input, NULL when not given. */
static inline th_tensor *th__input_at(th_tensors inputs, size_t i) { return i < inputs.size ? inputs.data[i] : NULL; }

/* The pieces that PyTorch's fused encoder layer wants. */
typedef struct th__mha_view {
    int64_t embed_dim, num_heads;
    bool batch_first, same_embed_dim, has_bias;
    th_tensor *in_weight, *in_bias, *out_weight, *out_bias;
} th__mha_view;
th__mha_view th__mha_look(const th_module *module);
/* attn_mask and key_padding_mask as one mask for the fused operators (NULL: none); *type is 1 (padding only) or 2. */
th_tensor *th__mha_merge_masks(const th__mha_view *mha, th_tensor *attn_mask, th_tensor *padding, th_tensor *query,
                               int64_t *type);
/* True when fused inference is allowed: no gradient is needed for any of them. */
bool th__fused_allowed(th_tensor *const *tensors, size_t n);

/* Whether PyTorch's fused inference operator can stand for this encoder layer; `nested`: also with nested tensors. */
bool th__encoder_layer_fuses(const th_module *layer, bool nested);
/* The twelve tensors that the fused operator reads, in its order. */
void th__encoder_layer_tensors(const th_module *layer, th_tensor *tensors[12]);

#endif
