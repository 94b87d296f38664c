/* checkpoint/format/tensor_layout.c: reads how a pickled tensor lies in its storage. */
#include "checkpoint/format/tensor_layout.h"

#include <string.h>

bool th__node_as_sizes(const th__node *node, int64_t *out, size_t *n)
{
    if (th__node_is_call(node, "torch.Size")) node = th__node_arg(node, 0);
    if (node == NULL || (node->kind != TH__NODE_TUPLE && node->kind != TH__NODE_LIST) || node->count > TH__DIM_MAX) return false;
    for (size_t i = 0; i < node->count; i++)
        if (!th__node_as_int(node->v.items[i], &out[i]) || out[i] < 0) return false;
    *n = node->count;
    return true;
}

bool th__is_plain_tensor_call(const th__node *node)
{
    return th__node_is_call(node, "torch._utils._rebuild_tensor_v2") ||
           th__node_is_call(node, "torch._utils._rebuild_tensor_v3") || th__node_is_call(node, "torch._utils._rebuild_tensor");
}

static th_status bad(const char *path, const char *why)
{
    return th__fail(TH_ERR_DATA, "th_load", "'%s': a tensor is described wrongly: %s", path, why);
}

static th_status read_dtype(const th__node *call, th__tensor_layout *out, const char *path)
{
    if (!th__node_is_call(call, "torch._utils._rebuild_tensor_v3")) return TH_OK;
    const th__node *name = th__node_arg(call, 6);
    char text[80];
    if (name != NULL && name->kind == TH__NODE_GLOBAL && name->count > 6 && memcmp(name->v.text, "torch.", 6) == 0)
        out->dtype = th__dtype_by_name(name->v.text + 6, name->count - 6);
    if (out->dtype != NULL) return TH_OK;
    return th__fail(TH_ERR_DATA, "th_load", "'%s': dtype '%s' is not supported", path, th__node_show(name, text, sizeof text));
}

th_status th__read_tensor_layout(const th__node *call, th__tensor_layout *out, const char *path)
{
    size_t n_strides;
    *out = (th__tensor_layout){.storage = th__node_arg(call, 0), .numel = 1};
    if (!th__is_plain_tensor_call(call)) return bad(path, "it is no tensor");
    if (!th__node_as_int(th__node_arg(call, 1), &out->offset) || out->offset < 0) return bad(path, "its offset");
    if (!th__node_as_sizes(th__node_arg(call, 2), out->sizes, &out->dim)) return bad(path, "its sizes");
    if (!th__node_as_sizes(th__node_arg(call, 3), out->strides, &n_strides) || n_strides != out->dim)
        return bad(path, "its strides");
    for (size_t i = 0; i < out->dim; i++)
        if (out->sizes[i] == 0) out->numel = 0;
    int64_t last = out->offset;
    for (size_t i = 0; i < out->dim && out->numel > 0; i++) {
        int64_t step;
        if (__builtin_mul_overflow(out->sizes[i] - 1, out->strides[i], &step) || __builtin_add_overflow(last, step, &last) ||
            __builtin_mul_overflow(out->numel, out->sizes[i], &out->numel) || out->numel > INT64_MAX / 32)
            return bad(path, "its sizes overflow");
    }
    out->extent = out->numel == 0 ? 0 : (uint64_t)last + 1;
    return read_dtype(call, out, path);
}
