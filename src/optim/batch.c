/* optim/batch.c: collects what one step works on: parameters with gradients, their state, their advanced step counters. */
#include "optim/each.h"

#include <cfabric/autograd.h>
#include <cfabric/ops.h>
#include <string.h>

/* ---------------------------------------------------------------- state */

static th_tensor *new_step(th_tensor *param, bool fused)
{
    th_dtype dtype = !fused && th_get_default_dtype() == TH_FLOAT64 ? TH_FLOAT64 : TH_FLOAT32;
    if (!fused || th_device_of(param).type == TH_DEVICE_CPU) return th_tensor_scalar(th_scalar_double(0.0), dtype);
    return th_zeros(TH_NO_INTS, .dtype = dtype, .device = th_device_of(param));
}

static th_tensor *new_state(th_tensor *param, double initial)
{
    if (initial == 0) return th_zeros_like(param);
    bool complex = th_dtype_is_complex(th_dtype_of(param));
    return th_full_like(param, complex ? th_scalar_complex(initial, initial) : th_scalar_double(initial));
}

th_status th__state_init(th_optimizer *self, th__param *param, const th__gather *what)
{
    for (size_t k = 0; k < self->ops->n_state; k++) {
        if ((what->states >> k & 1u) == 0 || param->state[k] != NULL) continue;
        bool step = k == 0 && what->has_step;
        param->state[k] = th_keep(step ? new_step(param->tensor, what->fused) : new_state(param->tensor, what->initial));
        TH__CHECK_PENDING();
    }
    return TH_OK;
}

/* A counter on the CPU is advanced in place: an operator call would cost more than the arithmetic of a small layer. */
static double advance(th_tensor *step)
{
    if (th_device_of(step).type == TH_DEVICE_CPU) {
        void *at = th_data_ptr(step);
        if (at != NULL && th_dtype_of(step) == TH_FLOAT32) return *(float *)at += 1.0f;
        if (at != NULL && th_dtype_of(step) == TH_FLOAT64) return *(double *)at += 1.0;
    }
    th_add_scalar_(step, TH_S(1));
    return th_device_of(step).type == TH_DEVICE_CPU ? th_item(step) : 0.0; /* fused kernels read it themselves */
}

/* ---------------------------------------------------------------- gathering */

static th_status allocate(th_optimizer *self, size_t n, const th__gather *what, th__batch *batch)
{
    size_t lists = 3 + self->ops->n_state;
    th_tensor **memory = th__scope_alloc(lists * n * sizeof *memory);
    if (memory == NULL) return th__pending();
    *batch = (th__batch){.params = memory, .grads = memory + n, .whole = memory + 2 * n, .n_state = self->ops->n_state};
    for (size_t k = 0; k < self->ops->n_state; k++) batch->state[k] = memory + (3 + k) * n;
    if (what->has_step && (batch->steps = th__scope_alloc(n * sizeof *batch->steps)) == NULL) return th__pending();
    return TH_OK;
}

th_status th__batch_gather(th_optimizer *self, size_t index, const th__gather *what, th__batch *batch)
{
    th__group *group = &self->groups[index];
    TH__TRY(allocate(self, group->n, what, batch));
    for (size_t i = 0; i < group->n; i++) {
        th__param *param = &group->params[i];
        th_tensor *grad = th_grad(param->tensor);
        if (grad == NULL) continue;
        size_t at = batch->n;
        batch->params[at] = batch->whole[at] = param->tensor;
        batch->grads[at] = grad;
        if (th_layout_of(grad) != TH_STRIDED) {
            if (what->dense_only != NULL) return th__fail(TH_ERR_RUNTIME, self->ops->name, "%s", what->dense_only);
            batch->sparse = true;
        }
        if (what->states != 0) TH__TRY(th__state_init(self, param, what));
        for (size_t k = 0; k < self->ops->n_state; k++) batch->state[k][at] = param->state[k];
        if (what->complex_as_real && th_dtype_is_complex(th_dtype_of(param->tensor))) batch->as_real = true;
        batch->n++;
    }
    return th__pending();
}

void th__batch_advance(th__batch *batch)
{
    for (size_t i = 0; i < batch->n; i++) batch->steps[i] = advance(batch->state[0][i]);
}

/* ---------------------------------------------------------------- running */

bool th__use_foreach(const th__batch *batch, double foreach, double fused)
{
    if (batch->n < 2 || batch->sparse) return false;
    if (foreach >= 0) return foreach > 0;
    if (fused >= 0) return false;
    for (size_t i = 0; i < batch->n; i++)
        if (th_device_of(batch->params[i]).type != TH_DEVICE_CUDA) return false;
    return true;
}

/* Complex tensors become real views; counters, which are real, stay. */
static void view_as_real(const th__batch *batch)
{
    for (size_t i = 0; i < batch->n; i++) {
        if (!th_dtype_is_complex(th_dtype_of(batch->params[i]))) continue;
        batch->params[i] = th_view_as_real(batch->params[i]);
        batch->grads[i] = th_view_as_real(batch->grads[i]);
        for (size_t k = 0; k < batch->n_state; k++)
            if (batch->state[k][i] != NULL && th_dtype_is_complex(th_dtype_of(batch->state[k][i])))
                batch->state[k][i] = th_view_as_real(batch->state[k][i]);
    }
}

static void decay_grads(th__batch *batch, th__decay decay)
{
    th_tensors grads = th__grads_of(batch);
    if (decay.maximize) grads = th__each_neg(grads);
    if (decay.weight_decay != 0) grads = th__each_add(grads, th__params_of(batch), decay.weight_decay);
    for (size_t i = 0; i < grads.size; i++) batch->grads[i] = grads.data[i];
}

th_status th__batch_run(const th__batch *batch, const th__group *group, bool foreach, th__decay decay, th__update update)
{
    if (batch->n == 0) return th__pending();
    if (foreach) {
        th__batch all = *batch;
        if (all.as_real) view_as_real(&all);
        decay_grads(&all, decay);
        if (th__pending() == TH_OK) update(&all, group);
        return th__pending();
    }
    for (size_t i = 0; i < batch->n && th__pending() == TH_OK; i++) {
        TH_SCOPE();
        th__batch one = {
            .n = 1, .params = batch->params + i, .grads = batch->grads + i, .whole = batch->whole + i, .n_state = batch->n_state};
        for (size_t k = 0; k < batch->n_state; k++) one.state[k] = batch->state[k] + i;
        if (batch->steps != NULL) one.steps = batch->steps + i;
        decay_grads(&one, decay);
        if (batch->as_real) view_as_real(&one);
        if (th__pending() == TH_OK) update(&one, group);
    }
    return th__pending();
}
