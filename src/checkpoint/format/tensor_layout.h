/* checkpoint/format/tensor_layout.h: sizes, strides and storage of a torch._utils._rebuild_tensor* call, checked for overflow. */
#ifndef FABRIC_CHECKPOINT_TENSOR_LAYOUT_H
#define FABRIC_CHECKPOINT_TENSOR_LAYOUT_H

#include "checkpoint/format/dtype.h"
#include "checkpoint/format/node.h"

enum { TH__DIM_MAX = 64 };

typedef struct th__tensor_layout {
    const th__node *storage;     /* the persistent id */
    const th__dtype_info *dtype; /* of _rebuild_tensor_v3; NULL: the storage's */
    int64_t sizes[TH__DIM_MAX], strides[TH__DIM_MAX], offset;
    size_t dim;
    int64_t numel;
    uint64_t extent; /* one past the last element used, 0 for an empty tensor */
} th__tensor_layout;

/* A tuple of sizes (or torch.Size of one): false if it is something else. */
bool th__node_as_sizes(const th__node *node, int64_t *out, size_t *n);
/* `path` is for messages. */
th_status th__read_tensor_layout(const th__node *call, th__tensor_layout *out, const char *path);
/* _rebuild_tensor, _v2 or _v3. */
bool th__is_plain_tensor_call(const th__node *node);

#endif
