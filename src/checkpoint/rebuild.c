/* checkpoint/rebuild.c: tensors from torch._utils._rebuild_* calls. Every size, stride and offset is checked against the storage.
 */
#include "checkpoint/format/tensor_layout.h"
#include "checkpoint/from_nodes.h"
#include <cfabric/autograd.h>
#include <cfabric/scope.h>

static th_status bad_tensor(const th__loader *loader, const char *why)
{
    return th__fail(TH_ERR_DATA, "th_load", "'%s': a tensor is described wrongly: %s", th__loader_path(loader), why);
}

static bool flag_of(const th__node *metadata, const char *name)
{
    const th__node *flag = th__node_get(metadata, name);
    return flag != NULL && flag->kind == TH__NODE_BOOL && flag->v.i != 0;
}

/* Tensors that were only marked as conjugated or negated are saved with their raw memory and this note. */
static th_tensor *apply_metadata(const th__node *call, th_tensor *tensor)
{
    const th__node *metadata = th__node_arg(call, th__node_is_call(call, "torch._utils._rebuild_tensor_v3") ? 7 : 6);
    if (tensor != NULL && flag_of(metadata, "conj")) tensor = th_call("aten::conj_physical", TH_A(tensor));
    if (tensor != NULL && flag_of(metadata, "neg")) tensor = th_call("aten::neg", TH_A(tensor));
    return tensor;
}

static th_tensor *plain_tensor(th__loader *loader, const th__node *call)
{
    th__tensor_layout l;
    th__storage storage;
    if (th__read_tensor_layout(call, &l, th__loader_path(loader)) != TH_OK) return NULL;
    th_tensor *base = th__loader_storage(loader, l.storage, &storage);
    if (base == NULL) return NULL;
    const th__dtype_info *dtype = l.dtype != NULL ? l.dtype : storage.dtype;
    if (l.dtype == NULL && storage.untyped) {
        bad_tensor(loader, "an untyped storage without a dtype");
        return NULL;
    }
    if (l.extent > storage.nbytes / dtype->size) {
        bad_tensor(loader, "it reaches beyond its storage");
        return NULL;
    }
    TH_SCOPE();
    if (th_dtype_of(base) != dtype->dtype) {
        uint64_t whole = storage.nbytes / dtype->size * dtype->size;
        const int64_t bytes = (int64_t)whole;
        if (whole != storage.nbytes) base = th_call("aten::narrow", TH_A(base), TH_A_INT(0), TH_A_INT(0), TH_A_INT(bytes));
        base = base == NULL ? NULL : th_call("aten::view.dtype", TH_A(base), TH_A_DTYPE(dtype->dtype));
        if (base == NULL) return NULL;
    }
    th_tensor *view = th_call("aten::as_strided", TH_A(base), TH_A_INTS(((th_ints){l.sizes, l.dim})),
                              TH_A_INTS(((th_ints){l.strides, l.dim})), TH_A_INT(l.numel == 0 ? 0 : l.offset));
    view = apply_metadata(call, view);
    th_tensor *own = view == NULL ? NULL : th_data(view); /* no view relation: it can become a parameter */
    if (own == NULL) return NULL;
    const th__node *grad = th__node_arg(call, 4);
    bool can = th_dtype_is_floating_point(dtype->dtype) || th_dtype_is_complex(dtype->dtype);
    if (grad != NULL && grad->kind == TH__NODE_BOOL && grad->v.i && can) th_requires_grad_(own, true);
    return th_keep(own);
}

bool th__is_tensor_call(const th__node *node)
{
    static const char *const names[] = {
        "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_tensor_v3",
        "torch._utils._rebuild_tensor",
        "torch._utils._rebuild_parameter",
        "torch._utils._rebuild_parameter_with_state",
        "torch._tensor._rebuild_from_type_v2",
        "torch.nn.parameter.Parameter",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (th__node_is_call(node, names[i])) return true;
    return false;
}

th_tensor *th__rebuild_tensor(th__loader *loader, th__node *call)
{
    if (th__is_plain_tensor_call(call)) return plain_tensor(loader, call);
    if (th__node_is_call(call, "torch._tensor._rebuild_from_type_v2")) { /* (function, class, arguments, state) */
        const th__node *class_of = th__node_arg(call, 1);
        th__node function = {.kind = TH__NODE_CALL};
        function.v.call.callee = th__node_arg(call, 0);
        function.v.call.args = th__node_arg(call, 2);
        bool plain = th__node_is_global(class_of, "torch.nn.parameter.Parameter") ||
                     th__node_is_global(class_of, "torch.Tensor") || th__node_is_global(class_of, "torch._tensor.Tensor") ||
                     th__node_is_global(class_of, "torch.nn.parameter.Buffer");
        if (plain && th__is_tensor_call(&function) && !th__node_is_call(&function, "torch._tensor._rebuild_from_type_v2"))
            return th__rebuild_tensor(loader, &function);
        char text[80];
        th__fail(TH_ERR_DATA, "th_load", "'%s': tensor class '%s' is not supported", th__loader_path(loader),
                 th__node_show(class_of, text, sizeof text));
        return NULL;
    }
    th__node *data = th__node_arg(call, 0); /* a parameter: (data, requires_grad, hooks) */
    if (!th__is_plain_tensor_call(data)) {
        bad_tensor(loader, "a parameter without data");
        return NULL;
    }
    th_tensor *tensor = plain_tensor(loader, data);
    const th__node *grad = th__node_arg(call, 1);
    if (tensor != NULL && grad != NULL && grad->kind == TH__NODE_BOOL) th_requires_grad_(tensor, grad->v.i != 0);
    return tensor;
}
