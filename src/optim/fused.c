/* optim/fused.c: whole steps in one _fused_ operator, where the linked libtorch has a kernel for the device. */
#include "optim/each.h"

#include "bridge/bridge.h"
#include <string.h>

enum { LISTS_MAX = 8, NUMBERS_MAX = 8 };

static th_tensor **source(const th__batch *batch, unsigned list)
{
    if (list == TH__FUSED_PARAMS) return batch->params;
    if (list == TH__FUSED_GRADS) return batch->grads;
    return list == TH__FUSED_EMPTY ? NULL : batch->state[list];
}

static th_status check_kernel(const char *cls, const char *op, th_tensor *param)
{
    char device[32];
    th_device where = th_device_of(param);
    if (!th_dtype_is_floating_point(th_dtype_of(param)))
        return th__fail(TH_ERR_RUNTIME, cls, "`fused=True` requires floating point parameters, but got %s",
                        th_dtype_name(th_dtype_of(param)));
    bool found = where.type == TH_DEVICE_CPU ? th__op_has_cpu_kernel(op, "") : th_has_op(op);
    if (found) return TH_OK;
    return th__fail(TH_ERR_UNAVAILABLE, cls, "`fused=True`: libtorch %s has no %s kernel of %s", th_torch_version(),
                    th_device_format(where, device, sizeof device), op);
}

static bool together(th_tensor *a, th_tensor *b)
{
    th_device x = th_device_of(a), y = th_device_of(b);
    return th_dtype_of(a) == th_dtype_of(b) && x.type == y.type && x.index == y.index;
}

/* Calls the operator for the parameters that go with the first one not done yet. */
static th_status run_part(th_optimizer *self, const char *op, const th__batch *batch, const unsigned *lists, size_t n_lists,
                          const th_arg *numbers, size_t n_numbers, bool *done, size_t first)
{
    th_arg args[LISTS_MAX + NUMBERS_MAX + 2];
    size_t *picked = th__scope_alloc(batch->n * sizeof *picked), n = 0;
    if (picked == NULL) return th__pending();
    for (size_t i = first; i < batch->n; i++) {
        if (done[i] || !together(batch->params[first], batch->params[i])) continue;
        done[i] = true;
        picked[n++] = i;
    }
    for (size_t k = 0; k < n_lists; k++) {
        th_tensor **from = source(batch, lists[k]), **list = th__scope_alloc((n > 0 ? n : 1) * sizeof *list);
        if (list == NULL) return th__pending();
        for (size_t i = 0; from != NULL && i < n; i++) list[i] = from[picked[i]];
        args[k] = (th_arg){.kind = TH_ARG_TENSORS, .v.tensors = {list, from != NULL ? n : 0}};
    }
    memcpy(args + n_lists, numbers, n_numbers * sizeof *numbers);
    size_t count = n_lists + n_numbers;
    th_tensor *amp[2] = {self->grad_scale, self->found_inf};
    for (int i = 0; i < 2; i++)
        args[count++] = amp[i] != NULL ? (th_arg){.kind = TH_ARG_TENSOR, .v.tensor = amp[i]} : (th_arg){.kind = TH_ARG_NONE};
    th_call_args(op, args, count, NULL, 0);
    /* A skipped step does not count. */
    for (size_t i = 0; self->found_inf != NULL && batch->steps != NULL && i < n; i++)
        th_call("aten::sub_.Tensor", TH_A(batch->state[0][picked[i]]), TH_A(self->found_inf));
    return th__pending();
}

th_status th__fused_run(th_optimizer *self, const char *op, const th__batch *batch, const unsigned *lists, size_t n_lists,
                        const th_arg *numbers, size_t n_numbers)
{
    if (batch->n == 0) return th__pending();
    if (batch->sparse) return th__fail(TH_ERR_RUNTIME, self->ops->name, "`fused=True` does not support sparse gradients");
    if (n_lists > LISTS_MAX || n_numbers > NUMBERS_MAX) return TH__FAIL(TH_ERR_INTERNAL, "too many arguments for %s", op);
    bool *done = th__scope_alloc(batch->n * sizeof *done);
    if (done == NULL) return th__pending();
    memset(done, 0, batch->n * sizeof *done);
    for (size_t i = 0; i < batch->n; i++) {
        if (done[i]) continue;
        TH__TRY(check_kernel(self->ops->name, op, batch->params[i]));
        TH__TRY(run_part(self, op, batch, lists, n_lists, numbers, n_numbers, done, i));
    }
    return th__pending();
}
