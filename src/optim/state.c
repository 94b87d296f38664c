/* optim/state.c: per-parameter state, and the state dict in PyTorch's form. Loading checks everything before it changes anything.
 */
#include "optim/optimizer.h"

#include <cfabric/autograd.h>
#include <stdio.h>
#include <string.h>

static const char load_name[] = "th_optimizer_load_state_dict";

/* ---------------------------------------------------------------- single entries */

static th__param *param_of(th_optimizer *optimizer, size_t group, size_t i, const char *function)
{
    TH__CHECK_PENDING_NULL();
    if (!th__object_check(optimizer, &th__optimizer_cls, function, "optimizer")) return NULL;
    if (group < optimizer->n_groups && i < optimizer->groups[group].n) return &optimizer->groups[group].params[i];
    th__fail(TH_ERR_VALUE, function, "there is no parameter %zu in group %zu", i, group);
    return NULL;
}

/* n_state if the class has no such state. */
static size_t state_index(const th_optimizer_ops *ops, const char *name)
{
    size_t k = 0;
    while (k < ops->n_state && (name == NULL || strcmp(ops->state_names[k], name) != 0)) k++;
    return k;
}

th_tensor *th_optimizer_state(th_optimizer *optimizer, size_t group, size_t i, const char *name)
{
    th__param *param = param_of(optimizer, group, i, __func__);
    if (param == NULL) return NULL;
    size_t k = state_index(optimizer->ops, name);
    return k < optimizer->ops->n_state ? param->state[k] : NULL;
}

th_status th_optimizer_set_state(th_optimizer *optimizer, size_t group, size_t i, const char *name, th_tensor *tensor)
{
    th__param *param = param_of(optimizer, group, i, __func__);
    if (param == NULL) return th__pending();
    size_t k = state_index(optimizer->ops, name);
    if (k == optimizer->ops->n_state)
        return TH__FAIL(TH_ERR_KEY, "%s keeps no state '%s'", optimizer->ops->name, name != NULL ? name : "(NULL)");
    th_tensor *kept = tensor != NULL ? th_retain(tensor) : NULL;
    TH__CHECK_PENDING();
    th_free(param->state[k]);
    param->state[k] = kept;
    return TH_OK;
}

/* ---------------------------------------------------------------- saving */

static th_value *hyper_value(const th__hyper *hyper)
{
    switch (hyper->kind) {
    case TH_OPTION_INT: return th_value_int((int64_t)hyper->v[0]);
    case TH_OPTION_BOOL: return th_value_bool(hyper->v[0] != 0);
    case TH_OPTION_MAYBE: return hyper->v[0] < 0 ? th_value_none() : th_value_bool(hyper->v[0] > 0);
    case TH_OPTION_TEXT: return hyper->text == NULL ? th_value_none() : th_value_string(hyper->text);
    case TH_OPTION_PAIR: {
        th_value *pair = th_value_tuple();
        if (pair == NULL) return NULL;
        th_value_append(pair, th_value_double(hyper->v[0]));
        th_value_append(pair, th_value_double(hyper->v[1]));
        return pair;
    }
    case TH_OPTION_DOUBLE: break;
    }
    return th_value_double(hyper->v[0]);
}

static th_value *group_value(const th__group *group, size_t first)
{
    th_value *dict = th_value_dict();
    if (dict == NULL) return NULL;
    for (size_t i = 0; i < group->n_hyper; i++) th_value_set(dict, group->hyper[i].name, hyper_value(&group->hyper[i]));
    th_value *ids = th_value_list();
    for (size_t i = 0; ids != NULL && i < group->n; i++) th_value_append(ids, th_value_int((int64_t)(first + i)));
    th_value_set(dict, "params", ids);
    return dict;
}

static th_value *param_value(th_optimizer *self, size_t group, size_t i)
{
    const th__param *param = &self->groups[group].params[i];
    th_value *dict = th_value_dict();
    if (dict == NULL) return NULL;
    for (size_t k = 0; k < self->ops->n_state; k++)
        if (param->state[k] != NULL) th_value_set(dict, self->ops->state_names[k], th_value_tensor(param->state[k]));
    if (self->ops->save_state != NULL) self->ops->save_state(self, group, i, dict);
    return dict;
}

th_value *th__optimizer_state_dict_inner(th_optimizer *self)
{
    th_value *states = th_value_dict(), *groups = th_value_list(), *result = th_value_dict();
    size_t first = 0;
    for (size_t g = 0; g < self->n_groups && th__pending() == TH_OK; g++) {
        for (size_t i = 0; i < self->groups[g].n; i++) {
            th_value *state = param_value(self, g, i);
            if (th_value_size(state) > 0)
                th_value_set_int(states, (int64_t)(first + i), state);
            else
                th_value_free(state);
        }
        th_value_append(groups, group_value(&self->groups[g], first));
        first += self->groups[g].n;
    }
    if (result != NULL) {
        th_value_set(result, "state", states);
        th_value_set(result, "param_groups", groups);
    } else {
        th_value_free(states);
        th_value_free(groups);
    }
    if (th__pending() == TH_OK) return result;
    th_value_free(result);
    return NULL;
}

th_value *th_optimizer_state_dict(th_optimizer *optimizer)
{
    TH__CHECK_PENDING_NULL();
    if (!th__object_check(optimizer, &th__optimizer_cls, __func__, "optimizer")) return NULL;
    if (optimizer->wrapper_ops != NULL && optimizer->wrapper_ops->state_dict != NULL)
        return optimizer->wrapper_ops->state_dict(optimizer, optimizer->wrapper);
    return th__optimizer_state_dict_inner(optimizer);
}

/* ---------------------------------------------------------------- loading: hyperparameters */

static bool is_number(const th_value *value)
{
    th_value_kind kind = th_value_kind_of(value);
    if (kind == TH_VALUE_TENSOR) return th_numel(th_value_as_tensor(value)) == 1;
    return kind == TH_VALUE_BOOL || kind == TH_VALUE_INT || kind == TH_VALUE_DOUBLE;
}

static double number_of(const th_value *value)
{
    if (th_value_kind_of(value) == TH_VALUE_TENSOR) return th_item(th_value_as_tensor(value));
    if (th_value_kind_of(value) == TH_VALUE_BOOL) return th_value_as_bool(value, false) ? 1.0 : 0.0;
    return th_value_as_double(value, 0.0);
}

static bool fits(const th__hyper *hyper, const th_value *value)
{
    th_value_kind kind = th_value_kind_of(value);
    switch (hyper->kind) {
    case TH_OPTION_PAIR:
        return (kind == TH_VALUE_TUPLE || kind == TH_VALUE_LIST) && th_value_size(value) == 2 &&
               is_number(th_value_at(value, 0)) && is_number(th_value_at(value, 1));
    case TH_OPTION_TEXT: return kind == TH_VALUE_NONE || kind == TH_VALUE_STRING;
    case TH_OPTION_MAYBE: return kind == TH_VALUE_NONE || is_number(value);
    default: return is_number(value);
    }
}

/* Texts in options are static strings of the class: a saved one is matched against the ones the class accepts. */
static th_status apply_text(th__hyper *hyper, const th_value *value)
{
    static const char *const known[] = {"strong_wolfe"};
    const char *text = th_value_as_string(value, NULL);
    hyper->text = NULL;
    for (size_t i = 0; text != NULL && i < sizeof known / sizeof *known; i++)
        if (strcmp(text, known[i]) == 0) hyper->text = known[i];
    if (text != NULL && hyper->text == NULL)
        return th__fail(TH_ERR_VALUE, load_name, "option '%s' is '%s', expected None or 'strong_wolfe'", hyper->name, text);
    return TH_OK;
}

static th_status apply_hyper(th__hyper *hyper, const th_value *value)
{
    switch (hyper->kind) {
    case TH_OPTION_TEXT: return apply_text(hyper, value);
    case TH_OPTION_PAIR:
        hyper->v[0] = number_of(th_value_at(value, 0));
        hyper->v[1] = number_of(th_value_at(value, 1));
        break;
    case TH_OPTION_MAYBE: hyper->v[0] = th_value_kind_of(value) == TH_VALUE_NONE ? -1.0 : number_of(value); break;
    default: hyper->v[0] = number_of(value);
    }
    return th__pending();
}

static th_status check_group(th__group *group, const th_value *saved, size_t index)
{
    for (size_t i = 0; i < group->n_hyper; i++) {
        const th_value *value = th_value_get(saved, group->hyper[i].name);
        if (value != NULL && !fits(&group->hyper[i], value))
            return th__fail(TH_ERR_TYPE, load_name, "option '%s' of group %zu is a %s", group->hyper[i].name, index,
                            th_value_kind_name(th_value_kind_of(value)));
    }
    return TH_OK;
}

/* Every number of the saved group is taken, also one that only a scheduler knows; what the saved group lacks stays as it is. */
static th_status apply_group(th__group *group, const th_value *saved)
{
    for (size_t i = 0; i < th_value_size(saved); i++) {
        const char *key = th_value_key_at(saved, i, NULL);
        const th_value *value = th_value_at(saved, i);
        if (key == NULL || strcmp(key, "params") == 0) continue;
        th__hyper *hyper = th__group_find(group, key);
        if (hyper == NULL) {
            if (!is_number(value)) continue;
            hyper = th__group_add(group, key, th_value_kind_of(value) == TH_VALUE_BOOL ? TH_OPTION_BOOL : TH_OPTION_DOUBLE);
            if (hyper == NULL) return th__pending();
        }
        /* AdamW stays AdamW whatever it is given. */
        if (strcmp(key, "decoupled_weight_decay") != 0) TH__TRY(apply_hyper(hyper, value));
    }
    return TH_OK;
}

/* ---------------------------------------------------------------- loading: state */

/* The saved state of one parameter; its id in the saved group is an int, or a name in files of sharded strategies. */
static th_value *saved_state(const th_value *states, const th_value *saved_group, size_t i)
{
    const th_value *id = th_value_at(th_value_get(saved_group, "params"), i);
    if (th_value_kind_of(id) == TH_VALUE_STRING) return th_value_get(states, th_value_as_string(id, ""));
    return th_value_get_int(states, th_value_as_int(id, -1));
}

static void sizes_text(char *out, size_t size, th_ints sizes)
{
    size_t used = (size_t)snprintf(out, size, "[");
    for (size_t i = 0; i < sizes.size && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld", i > 0 ? ", " : "", (long long)sizes.data[i]);
    if (used < size) snprintf(out + used, size - used, "]");
}

static bool same_sizes(th_tensor *a, th_tensor *b)
{
    th_ints x = th_sizes(a), y = th_sizes(b);
    return x.size == y.size && (x.size == 0 || memcmp(x.data, y.data, x.size * sizeof *x.data) == 0);
}

static th_status check_entry(const th_optimizer_ops *ops, th_tensor *param, size_t index, const char *key, const th_value *value)
{
    if (th_value_kind_of(value) == TH_VALUE_NONE) return TH_OK;
    bool step = strcmp(key, "step") == 0;
    if (step && is_number(value)) return TH_OK;
    th_tensor *tensor = th_value_as_tensor(value);
    if (tensor == NULL || step)
        return th__fail(TH_ERR_TYPE, load_name, "%s state '%s' of parameter %zu is a %s, expected a %s", ops->name, key, index,
                        th_value_kind_name(th_value_kind_of(value)), step ? "number" : "tensor");
    if (same_sizes(tensor, param)) return TH_OK;
    char found[128], expected[128];
    sizes_text(found, sizeof found, th_sizes(tensor));
    sizes_text(expected, sizeof expected, th_sizes(param));
    return th__fail(TH_ERR_VALUE, load_name, "%s state '%s' of parameter %zu has sizes %s, expected %s", ops->name, key, index,
                    found, expected);
}

static th_status check_state(th_optimizer *self, size_t group, size_t i, size_t index, th_value *saved)
{
    if (saved == NULL) return TH_OK;
    if (th_value_kind_of(saved) != TH_VALUE_DICT)
        return th__fail(TH_ERR_TYPE, load_name, "the state of parameter %zu is a %s, expected a dict", index,
                        th_value_kind_name(th_value_kind_of(saved)));
    if (self->ops->load_state != NULL) return self->ops->load_state(self, group, i, saved, true);
    for (size_t k = 0; k < th_value_size(saved); k++) {
        const char *key = th_value_key_at(saved, k, NULL);
        if (key == NULL || state_index(self->ops, key) == self->ops->n_state)
            return th__fail(TH_ERR_KEY, load_name, "state '%s' of parameter %zu is not one that %s keeps",
                            key != NULL ? key : "(int)", index, self->ops->name);
        TH__TRY(check_entry(self->ops, self->groups[group].params[i].tensor, index, key, th_value_at(saved, k)));
    }
    return TH_OK;
}

/* A step counter is a 0-dimensional CPU tensor, with a fused implementation a float32 one beside the parameter. */
static th_tensor *load_step(th_tensor *param, bool fused, const th_value *value)
{
    double step = number_of(value);
    th_dtype dtype = !fused && th_get_default_dtype() == TH_FLOAT64 ? TH_FLOAT64 : TH_FLOAT32;
    th_tensor *fresh = th_tensor_scalar(th_scalar_double(step), dtype);
    th_device device = th_device_of(param);
    if (!fused || device.type == TH_DEVICE_CPU || fresh == NULL) return fresh;
    return th_call("aten::to.device", TH_A(fresh), {.kind = TH_ARG_DEVICE, .v.device = device}, TH_A_DTYPE(dtype));
}

static th_status apply_state(th_optimizer *self, size_t group, size_t i, th_value *saved)
{
    th__param *param = &self->groups[group].params[i];
    const th__hyper *fused = th__group_find(&self->groups[group], "fused");
    for (size_t k = 0; k < self->ops->n_state; k++) {
        TH_SCOPE();
        const char *name = self->ops->state_names[k];
        const th_value *value = th_value_get(saved, name);
        th_tensor *fresh = NULL;
        if (value != NULL && th_value_kind_of(value) != TH_VALUE_NONE) {
            if (strcmp(name, "step") == 0) {
                fresh = load_step(param->tensor, fused != NULL && fused->v[0] > 0, value);
            } else {
                fresh = th_call("aten::empty_like", TH_A(param->tensor));
                th_call("aten::copy_", TH_A(fresh), TH_A(th_value_as_tensor(value)));
            }
        }
        TH__CHECK_PENDING();
        th_free(param->state[k]);
        param->state[k] = th_keep(fresh);
    }
    return self->ops->load_state != NULL ? self->ops->load_state(self, group, i, saved, false) : TH_OK;
}

static th_status check_counts(th_optimizer *self, const th_value *groups)
{
    if (th_value_size(groups) != self->n_groups)
        return th__fail(TH_ERR_VALUE, load_name, "loaded state dict has %zu parameter groups, the optimizer has %zu",
                        th_value_size(groups), self->n_groups);
    for (size_t g = 0; g < self->n_groups; g++) {
        size_t found = th_value_size(th_value_get(th_value_at(groups, g), "params"));
        if (found != self->groups[g].n)
            return th__fail(TH_ERR_VALUE, load_name, "loaded state dict has %zu parameters in group %zu, the optimizer has %zu",
                            found, g, self->groups[g].n);
    }
    return TH_OK;
}

th_status th__optimizer_load_state_dict_inner(th_optimizer *self, th_value *state)
{
    const th_value *groups = th_value_get(state, "param_groups"), *states = th_value_get(state, "state");
    if (th_value_kind_of(groups) != TH_VALUE_LIST || th_value_kind_of(states) != TH_VALUE_DICT)
        return th__fail(TH_ERR_VALUE, load_name, "expected an optimizer's state dict with the keys 'state' and 'param_groups'");
    TH__TRY(check_counts(self, groups));
    size_t index = 0;
    for (size_t g = 0; g < self->n_groups; g++) {
        const th_value *saved = th_value_at(groups, g);
        TH__TRY(check_group(&self->groups[g], saved, g));
        for (size_t i = 0; i < self->groups[g].n; i++) TH__TRY(check_state(self, g, i, index++, saved_state(states, saved, i)));
    }
    TH_SCOPE();
    TH_NO_GRAD();
    for (size_t g = 0; g < self->n_groups; g++) {
        const th_value *saved = th_value_at(groups, g);
        TH__TRY(apply_group(&self->groups[g], saved));
        for (size_t i = 0; i < self->groups[g].n; i++) TH__TRY(apply_state(self, g, i, saved_state(states, saved, i)));
    }
    return th__pending();
}

th_status th_optimizer_load_state_dict(th_optimizer *optimizer, th_value *state)
{
    TH__CHECK_PENDING();
    if (!th__object_check(optimizer, &th__optimizer_cls, __func__, "optimizer")) return th__pending();
    if (optimizer->wrapper_ops != NULL && optimizer->wrapper_ops->load_state_dict != NULL)
        return optimizer->wrapper_ops->load_state_dict(optimizer, optimizer->wrapper, state);
    return th__optimizer_load_state_dict_inner(optimizer, state);
}

/* ---------------------------------------------------------------- in nested states */

static th_value *stateful_save(void *object) { return th_optimizer_state_dict(object); }
static th_status stateful_load(void *object, th_value *state, bool strict)
{
    (void)strict; /* an optimizer's state always has to fit */
    return th_optimizer_load_state_dict(object, state);
}

th_value *th_state_optimizer(th_optimizer *optimizer)
{
    static const th_stateful ops = {sizeof(th_stateful), "optimizer", stateful_save, stateful_load};
    TH__CHECK_PENDING_NULL();
    if (!th__object_check(optimizer, &th__optimizer_cls, __func__, "optimizer")) return NULL;
    return th_value_object(&ops, optimizer);
}
