/* optim/hyperparameters.c: the named numbers of parameter groups, their checks, and the groups themselves. */
#include "optim/optimizer.h"

#include <cfabric/autograd.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- names */

void th__optimizer_default_values(const th_optimizer_ops *ops, th__hyper *values)
{
    for (size_t i = 0; i < ops->n_options; i++) {
        const th_option_spec *spec = &ops->options[i];
        values[i] = (th__hyper){.name = spec->name, .kind = spec->kind, .v = {spec->value, spec->second}, .text = spec->text};
    }
}

double *th__hyper_slot(th__hyper *list, size_t n, const char *name)
{
    size_t length = name != NULL ? strlen(name) : 0;
    for (size_t i = 0; i < n; i++) {
        if (list[i].kind == TH_OPTION_TEXT) continue;
        size_t own = strlen(list[i].name);
        if (list[i].kind != TH_OPTION_PAIR) {
            if (own == length && memcmp(list[i].name, name, own) == 0) return &list[i].v[0];
        } else if (length == own + 2 && memcmp(list[i].name, name, own) == 0 && name[own] == '.') {
            if (name[own + 1] == '0') return &list[i].v[0];
            if (name[own + 1] == '1') return &list[i].v[1];
        }
    }
    return NULL;
}

th__hyper *th__group_find(th__group *group, const char *name)
{
    for (size_t i = 0; i < group->n_hyper; i++)
        if (strcmp(group->hyper[i].name, name) == 0) return &group->hyper[i];
    return NULL;
}

th__hyper *th__group_add(th__group *group, const char *name, th_option_kind kind)
{
    th__hyper *found = th__group_find(group, name);
    if (found != NULL) return found;
    char *copy = th__strdup(name);
    if (copy == NULL) return NULL;
    th__hyper fresh = {.name = copy, .kind = kind, .owned = true};
    if (TH__PUSH(group->hyper, group->n_hyper, group->hyper_capacity, fresh) != 0) {
        free(copy);
        return NULL;
    }
    return &group->hyper[group->n_hyper - 1];
}

/* ---------------------------------------------------------------- groups */

void th__group_clear(th__group *group, size_t n_state)
{
    for (size_t i = 0; group->params != NULL && i < group->n; i++) {
        for (size_t k = 0; group->params[i].state != NULL && k < n_state; k++) th_free(group->params[i].state[k]);
        free(group->params[i].state);
        th_free(group->params[i].tensor);
    }
    for (size_t i = 0; i < group->n_hyper; i++)
        if (group->hyper[i].owned) free((char *)group->hyper[i].name);
    free(group->params);
    free(group->hyper);
    memset(group, 0, sizeof *group);
}

static th_status fill_hyper(th_optimizer *self, th__group *group, th_options options)
{
    size_t n = self->ops->n_options;
    group->hyper = th__calloc(n, sizeof *group->hyper);
    if (group->hyper == NULL) return th__pending();
    group->hyper_capacity = group->n_hyper = n;
    memcpy(group->hyper, self->defaults, n * sizeof *group->hyper);
    for (size_t i = 0; i < options.size; i++) {
        double *slot = th__hyper_slot(group->hyper, n, options.data[i].name);
        if (slot == NULL)
            return th__fail(TH_ERR_KEY, "th_optimizer_add_param_group", "%s has no option '%s'", self->ops->name,
                            options.data[i].name != NULL ? options.data[i].name : "(NULL)");
        *slot = options.data[i].value;
    }
    return TH_OK;
}

static th_status check_param(th_optimizer *self, const th__group *group, th_tensor *param, size_t index)
{
    static const char function[] = "th_optimizer_add_param_group";
    if (!th__tensor_check(param, function, "params")) return th__pending();
    if (!th_is_leaf_of(param))
        return th__fail(TH_ERR_VALUE, function, "can't optimize a non-leaf tensor (params[%zu]); expected a parameter", index);
    for (size_t g = 0; g < self->n_groups; g++)
        for (size_t i = 0; i < self->groups[g].n; i++)
            if (th_is_same(self->groups[g].params[i].tensor, param))
                return th__fail(TH_ERR_VALUE, function,
                                "some parameters appear in more than one parameter group: params[%zu] is "
                                "parameter %zu of group %zu",
                                index, i, g);
    for (size_t i = 0; i < group->n; i++)
        if (th_is_same(group->params[i].tensor, param))
            return th__fail(TH_ERR_VALUE, function, "params[%zu] and params[%zu] are the same tensor", i, index);
    return TH_OK;
}

static th_status fill_params(th_optimizer *self, th__group *group, th_tensors params)
{
    if (params.size == 0) return th__fail(TH_ERR_VALUE, "th_optimizer_add_param_group", "a parameter group needs a parameter");
    group->params = th__calloc(params.size, sizeof *group->params);
    if (group->params == NULL) return th__pending();
    for (size_t i = 0; i < params.size; i++) {
        TH__TRY(check_param(self, group, params.data[i], i));
        th__param *param = &group->params[group->n];
        param->tensor = th_retain(params.data[i]);
        if (param->tensor == NULL) return th__pending();
        group->n++;
        param->state = th__calloc(self->ops->n_state, sizeof *param->state);
        if (param->state == NULL) return th__pending();
    }
    return TH_OK;
}

th_status th_optimizer_add_param_group_call(struct th_optimizer_add_param_group_args args)
{
    TH__CHECK_PENDING();
    th_optimizer *self = args.optimizer;
    if (!th__object_check(self, &th__optimizer_cls, __func__, "optimizer")) return th__pending();
    if (self->n_groups > 0 && self->ops->step_closure != NULL && strcmp(self->ops->name, "LBFGS") == 0)
        return TH__FAIL(TH_ERR_VALUE, "LBFGS doesn't support per-parameter options (parameter groups)");
    th__group group = {0};
    th_status status = fill_hyper(self, &group, args.options);
    if (status == TH_OK) status = fill_params(self, &group, args.params);
    if (status == TH_OK && TH__PUSH(self->groups, self->n_groups, self->groups_capacity, group) != 0) status = th__pending();
    if (status != TH_OK) {
        th__group_clear(&group, self->ops->n_state);
        return status;
    }
    if (self->ops->check != NULL && (status = self->ops->check(self, self->n_groups - 1)) != TH_OK)
        th__group_clear(&self->groups[--self->n_groups], self->ops->n_state);
    return status;
}

/* ---------------------------------------------------------------- reading and writing */

static th__group *group_of(th_optimizer *optimizer, size_t index, const char *function)
{
    TH__CHECK_PENDING_NULL();
    if (!th__object_check(optimizer, &th__optimizer_cls, function, "optimizer")) return NULL;
    if (index < optimizer->n_groups) return &optimizer->groups[index];
    th__fail(TH_ERR_VALUE, function, "group is %zu, but the optimizer has %zu groups", index, optimizer->n_groups);
    return NULL;
}

size_t th_optimizer_n_groups(th_optimizer *optimizer)
{
    return th__object_check(optimizer, &th__optimizer_cls, __func__, "optimizer") ? optimizer->n_groups : 0;
}

th_tensors th_optimizer_params(th_optimizer *optimizer, size_t group)
{
    th_tensors none = {NULL, 0};
    th__group *found = group_of(optimizer, group, __func__);
    if (found == NULL) return none;
    th_tensor **list = th__scope_alloc(found->n * sizeof *list);
    if (list == NULL) return none;
    for (size_t i = 0; i < found->n; i++) list[i] = found->params[i].tensor;
    return (th_tensors){list, found->n};
}

bool th_optimizer_has(th_optimizer *optimizer, size_t group, const char *name)
{
    th__group *found = group_of(optimizer, group, __func__);
    return found != NULL && th__hyper_slot(found->hyper, found->n_hyper, name) != NULL;
}

double th_optimizer_get(th_optimizer *optimizer, size_t group, const char *name)
{
    th__group *found = group_of(optimizer, group, __func__);
    if (found == NULL) return NAN;
    const double *slot = th__hyper_slot(found->hyper, found->n_hyper, name);
    if (slot != NULL) return *slot;
    TH__FAIL(TH_ERR_KEY, "%s has no option '%s'", optimizer->ops->name, name != NULL ? name : "(NULL)");
    return NAN;
}

th_status th_optimizer_set(th_optimizer *optimizer, size_t group, const char *name, double value)
{
    th__group *found = group_of(optimizer, group, __func__);
    if (found == NULL) return th__pending();
    double *slot = th__hyper_slot(found->hyper, found->n_hyper, name);
    if (slot == NULL) return TH__FAIL(TH_ERR_KEY, "%s has no option '%s'", optimizer->ops->name, name != NULL ? name : "(NULL)");
    *slot = value;
    return TH_OK;
}

double th_optimizer_lr(th_optimizer *optimizer) { return th_optimizer_get(optimizer, 0, "lr"); }

/* ---------------------------------------------------------------- checks that classes share */

th_status th__check_range(const char *cls, const char *what, double value, double low, bool ok)
{
    if (ok) return TH_OK;
    return th__fail(TH_ERR_VALUE, cls, "Invalid %s: %g, expected at least %g", what, value, low);
}

th_status th__check_not_negative(const char *cls, const char *what, double value)
{
    return th__check_range(cls, what, value, 0.0, value >= 0.0); /* false for NaN, as in PyTorch */
}

th_status th__check_implementation(const th__group *group, const char *cls, int foreach, int fused, int capturable,
                                   int differentiable)
{
    if (fused >= 0 && th__opt_bool(group, (size_t)fused) && th__opt_bool(group, (size_t)foreach))
        return th__fail(TH_ERR_RUNTIME, cls, "`fused` and `foreach` cannot be `True` together.");
    if (capturable >= 0 && th__opt_bool(group, (size_t)capturable))
        return th__fail(TH_ERR_UNAVAILABLE, cls, "capturable=True is not available: cfabric does not capture CUDA graphs");
    if (differentiable >= 0 && th__opt_bool(group, (size_t)differentiable))
        return th__fail(TH_ERR_NOT_IMPLEMENTED, cls, "differentiable=True is not implemented: steps run without gradients");
    return TH_OK;
}
