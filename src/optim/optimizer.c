/* optim/optimizer.c: making, stepping and freeing optimizers, and the seam for Fabric's wrappers. */
#include "optim/optimizer.h"

#include <cfabric/autograd.h>
#include <stdlib.h>
#include <string.h>

static void destroy(void *object)
{
    th_optimizer *self = object;
    if (self->wrapper_ops != NULL && self->wrapper_ops->free != NULL) self->wrapper_ops->free(self->wrapper);
    for (size_t g = 0; g < self->n_groups; g++) th__group_clear(&self->groups[g], self->ops->n_state);
    free(self->groups);
    free(self->defaults);
    if (self->ops->free_data != NULL && self->data != NULL) self->ops->free_data(self->data);
    free(self);
}

const th__class th__optimizer_cls = {"optimizer", destroy};

static bool is_optimizer(const th_optimizer *optimizer, const char *function)
{
    return th__object_check(optimizer, &th__optimizer_cls, function, "optimizer");
}

/* ---------------------------------------------------------------- making */

th_optimizer *th__optimizer_build(const th_optimizer_ops *ops, th_tensors params, const th__hyper *values, void *data)
{
    th_optimizer *self = th__object_new(&th__optimizer_cls, sizeof *self);
    if (self == NULL) {
        if (ops->free_data != NULL && data != NULL) ops->free_data(data);
        return NULL;
    }
    self->ops = ops;
    self->data = data;
    self->defaults = th__calloc(ops->n_options, sizeof *self->defaults);
    if (self->defaults != NULL) {
        memcpy(self->defaults, values, ops->n_options * sizeof *values);
        if (params.size == 0)
            th__fail(TH_ERR_VALUE, ops->name, "optimizer got an empty parameter list");
        else
            th_optimizer_add_param_group(self, params);
    }
    if (th__pending() == TH_OK) return self;
    th__release(self);
    return NULL;
}

th_optimizer *th_optimizer_new_call(struct th_optimizer_new_args args)
{
    const th_optimizer_ops *ops = args.ops;
    th__hyper *values = NULL;
    if (th__pending() != TH_OK) goto failed;
    if (ops == NULL || ops->size != sizeof *ops || ops->name == NULL || (ops->step == NULL) == (ops->step_closure == NULL)) {
        TH__FAIL(TH_ERR_VALUE, "ops must have size %zu, a name and exactly one of step and step_closure", sizeof *ops);
        return NULL;
    }
    values = th__calloc(ops->n_options, sizeof *values);
    if (values == NULL) goto failed;
    th__optimizer_default_values(ops, values);
    for (size_t i = 0; i < args.options.size; i++) {
        double *slot = th__hyper_slot(values, ops->n_options, args.options.data[i].name);
        if (slot == NULL) {
            TH__FAIL(TH_ERR_KEY, "%s has no option '%s'", ops->name, args.options.data[i].name);
            goto failed;
        }
        *slot = args.options.data[i].value;
    }
    th_optimizer *self = th__optimizer_build(ops, args.params, values, args.data);
    free(values);
    return self;
failed:
    free(values);
    if (ops != NULL && ops->size == sizeof *ops && ops->free_data != NULL && args.data != NULL) ops->free_data(args.data);
    return NULL;
}

th_optimizer *th_optimizer_retain(th_optimizer *optimizer) { return th__retain(optimizer); }
void th_optimizer_free(th_optimizer *optimizer) { th__release(optimizer); }
void *th_optimizer_data(th_optimizer *optimizer) { return is_optimizer(optimizer, __func__) ? optimizer->data : NULL; }
const char *th_optimizer_class(th_optimizer *optimizer) { return is_optimizer(optimizer, __func__) ? optimizer->ops->name : ""; }

/* ---------------------------------------------------------------- stepping */

th_status th_optimizer_zero_grad_call(struct th_optimizer_zero_grad_args args)
{
    TH__CHECK_PENDING();
    th_optimizer *self = args.optimizer;
    if (!is_optimizer(self, __func__)) return th__pending();
    for (size_t g = 0; g < self->n_groups; g++) {
        for (size_t i = 0; i < self->groups[g].n; i++) {
            th_tensor *param = self->groups[g].params[i].tensor;
            if (args.set_to_none) {
                TH__TRY(th_set_grad(param, NULL));
            } else if (th_has_grad(param)) {
                TH_SCOPE();
                TH_NO_GRAD();
                th_tensor *grad = th_call("aten::detach", TH_A(th_grad(param)));
                th_call("aten::zero_", TH_A(grad));
                TH__CHECK_PENDING();
            }
        }
    }
    return TH_OK;
}

th_tensor *th_closure_call(th_closure closure, void *user)
{
    TH__CHECK_PENDING_NULL();
    TH_ENABLE_GRAD();
    th_tensor *loss = closure(user);
    if (loss == NULL && th__pending() == TH_OK) TH__FAIL(TH_ERR_CALLBACK, "the closure returned no loss");
    return th__pending() == TH_OK ? loss : NULL;
}

th_tensor *th__optimizer_step_inner(th_optimizer *self, th_closure closure, void *user)
{
    TH__CHECK_PENDING_NULL();
    TH_NO_GRAD();
    if (self->ops->step_closure != NULL) {
        if (closure != NULL) return self->ops->step_closure(self, closure, user);
        th__fail(TH_ERR_VALUE, "th_optimizer_step", "%s evaluates the model itself: use th_optimizer_step_closure",
                 self->ops->name);
        return NULL;
    }
    th_tensor *loss = closure != NULL ? th_closure_call(closure, user) : NULL;
    for (size_t g = 0; g < self->n_groups; g++) {
        TH__CHECK_PENDING_NULL();
        TH_SCOPE();
        self->ops->step(self, g);
    }
    return th__pending() == TH_OK ? loss : NULL;
}

static th_tensor *step(th_optimizer *self, th_closure closure, void *user)
{
    self->stepped = true;
    if (self->wrapper_ops != NULL && self->wrapper_ops->step != NULL)
        return self->wrapper_ops->step(self, self->wrapper, closure, user);
    return th__optimizer_step_inner(self, closure, user);
}

th_status th_optimizer_step(th_optimizer *optimizer)
{
    TH__CHECK_PENDING();
    if (is_optimizer(optimizer, __func__)) step(optimizer, NULL, NULL);
    return th__pending();
}

th_tensor *th_optimizer_step_closure(th_optimizer *optimizer, th_closure closure, void *user)
{
    TH__CHECK_PENDING_NULL();
    if (!is_optimizer(optimizer, __func__)) return NULL;
    if (closure == NULL) {
        TH__FAIL(TH_ERR_VALUE, "closure is NULL, expected a function that returns the loss");
        return NULL;
    }
    return step(optimizer, closure, user);
}

/* ---------------------------------------------------------------- the seam */

th_status th__optimizer_set_wrapper(th_optimizer *optimizer, const th__optimizer_wrapper *ops, void *wrapper)
{
    if (!is_optimizer(optimizer, __func__)) return th__pending();
    if (ops != NULL && optimizer->wrapper_ops != NULL)
        return TH__FAIL(TH_ERR_VALUE, "the %s optimizer has been set up already", optimizer->ops->name);
    if (optimizer->wrapper_ops != NULL && optimizer->wrapper_ops->free != NULL) optimizer->wrapper_ops->free(optimizer->wrapper);
    optimizer->wrapper_ops = ops;
    optimizer->wrapper = ops != NULL ? wrapper : NULL;
    return TH_OK;
}

void *th__optimizer_wrapper_of(th_optimizer *optimizer, const th__optimizer_wrapper **ops)
{
    if (ops != NULL) *ops = optimizer->wrapper_ops;
    return optimizer->wrapper;
}

const char *th__optimizer_class(th_optimizer *optimizer) { return optimizer->ops->name; }

bool th__optimizer_is_fused(th_optimizer *optimizer)
{
    for (size_t g = 0; g < optimizer->n_groups; g++) {
        const th__hyper *fused = th__group_find(&optimizer->groups[g], "fused");
        if (fused != NULL && fused->v[0] > 0) return true;
    }
    return false;
}

void th__optimizer_set_amp(th_optimizer *optimizer, th_tensor *grad_scale, th_tensor *found_inf)
{
    optimizer->grad_scale = grad_scale;
    optimizer->found_inf = found_inf;
}
