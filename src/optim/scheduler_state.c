/* optim/scheduler_state.c: state dicts of schedulers, with PyTorch's keys. */
#include "optim/scheduler.h"

#include <math.h>
#include <string.h>

static const char load_name[] = "th_scheduler_load_state_dict";

/* What every scheduler with a schedule of its own keeps after its class's fields. */
static const th__field common[] = {
    {"base_lrs", TH__FIELD_RATES, offsetof(struct th_scheduler, base_lrs), NULL},
    {"last_epoch", TH__FIELD_INT, offsetof(struct th_scheduler, last_epoch), NULL},
    {"_step_count", TH__FIELD_INT, offsetof(struct th_scheduler, step_count), NULL},
    {"_is_initial", TH__FIELD_BOOL, offsetof(struct th_scheduler, is_initial), NULL},
    {"_last_lr", TH__FIELD_RATES, offsetof(struct th_scheduler, last_lr), NULL},
};
enum { N_COMMON = sizeof common / sizeof *common };

/* ---------------------------------------------------------------- saving */

static th_value *number_value(double number)
{
    if (number == floor(number) && fabs(number) < 9e15) return th_value_int((int64_t)number);
    return th_value_double(number);
}

static th_value *rates_value(const th__rates *rates)
{
    th_value *list = th_value_list();
    for (size_t i = 0; list != NULL && i < rates->n; i++) th_value_append(list, th_value_double(rates->data[i]));
    return list;
}

static th_value *field_value(const void *object, const th__field *field)
{
    const void *at = (const char *)object + field->offset;
    switch (field->kind) {
    case TH__FIELD_INT: return th_value_int(*(const int64_t *)at);
    case TH__FIELD_DOUBLE: return th_value_double(*(const double *)at);
    case TH__FIELD_BOOL: return th_value_bool(*(const bool *)at);
    case TH__FIELD_NUMBER: return number_value(*(const double *)at);
    case TH__FIELD_RATES: return rates_value(at);
    case TH__FIELD_TEXT: return th_value_string(field->texts[*(const int *)at]);
    }
    return NULL;
}

/* Lists that an option switched off (momenta) are absent, as in PyTorch. */
static bool is_used(const void *object, const th__field *field)
{
    return field->kind != TH__FIELD_RATES || ((const th__rates *)((const char *)object + field->offset))->n > 0;
}

th_value *th_scheduler_state_dict(th_scheduler *self)
{
    TH__CHECK_PENDING_NULL();
    if (!th__object_check(self, &th__scheduler_cls, __func__, "scheduler")) return NULL;
    th_value *state = th_value_dict();
    if (state == NULL) return NULL;
    for (size_t i = 0; i < self->ops->n_fields; i++)
        if (is_used(self, &self->ops->fields[i]))
            th_value_set(state, self->ops->fields[i].key, field_value(self, &self->ops->fields[i]));
    for (size_t i = 0; !self->ops->plain && i < N_COMMON; i++) {
        th_value_set(state, common[i].key, field_value(self, &common[i]));
        if (strcmp(common[i].key, "_is_initial") == 0) th_value_set(state, "_get_lr_called_within_step", th_value_bool(false));
    }
    if (self->ops->save != NULL) self->ops->save(self, state);
    if (self->n_children > 0) {
        th_value *list = th_value_list();
        for (size_t i = 0; list != NULL && i < self->n_children; i++)
            th_value_append(list, th_scheduler_state_dict(self->children[i]));
        th_value_set(state, "_schedulers", list);
    }
    if (th__pending() == TH_OK) return state;
    th_value_free(state);
    return NULL;
}

/* ---------------------------------------------------------------- loading */

static bool is_number(const th_value *value)
{
    th_value_kind kind = th_value_kind_of(value);
    return kind == TH_VALUE_INT || kind == TH_VALUE_DOUBLE || kind == TH_VALUE_BOOL;
}

static th_status check_rates(const th__field *field, const th__rates *rates, const th_value *value)
{
    if (th_value_size(value) != rates->n)
        return th__fail(TH_ERR_VALUE, load_name, "'%s' has %zu values, the scheduler has %zu", field->key, th_value_size(value),
                        rates->n);
    for (size_t i = 0; i < rates->n; i++)
        if (!is_number(th_value_at(value, i)))
            return th__fail(TH_ERR_TYPE, load_name, "'%s' has a %s, expected numbers", field->key,
                            th_value_kind_name(th_value_kind_of(th_value_at(value, i))));
    return TH_OK;
}

static th_status check_field(void *object, const th__field *field, const th_value *value)
{
    th_value_kind kind = th_value_kind_of(value);
    bool ok = is_number(value);
    if (value == NULL || !is_used(object, field)) return TH_OK;
    if (field->kind == TH__FIELD_RATES) ok = kind == TH_VALUE_LIST || kind == TH_VALUE_TUPLE;
    if (field->kind == TH__FIELD_TEXT) ok = kind == TH_VALUE_STRING;
    if (!ok) return th__fail(TH_ERR_TYPE, load_name, "'%s' is a %s", field->key, th_value_kind_name(kind));
    if (field->kind == TH__FIELD_RATES) return check_rates(field, (const th__rates *)((char *)object + field->offset), value);
    if (field->kind == TH__FIELD_TEXT && th__text_index(load_name, field->key, th_value_as_string(value, ""), field->texts) < 0)
        return th__pending();
    return TH_OK;
}

static void apply_field(void *object, const th__field *field, const th_value *value)
{
    void *at = (char *)object + field->offset;
    if (value == NULL) return;
    switch (field->kind) {
    case TH__FIELD_INT: *(int64_t *)at = th_value_as_int(value, 0); break;
    case TH__FIELD_BOOL: *(bool *)at = th_value_as_bool(value, false); break;
    case TH__FIELD_DOUBLE:
    case TH__FIELD_NUMBER: *(double *)at = th_value_as_double(value, 0); break;
    case TH__FIELD_TEXT: *(int *)at = th__text_index(load_name, field->key, th_value_as_string(value, ""), field->texts); break;
    case TH__FIELD_RATES:
        for (size_t i = 0; i < ((th__rates *)at)->n; i++)
            ((th__rates *)at)->data[i] = th_value_as_double(th_value_at(value, i), 0);
    }
}

static th_status check_all(th_scheduler *self, const th_value *state)
{
    if (th_value_kind_of(state) != TH_VALUE_DICT)
        return th__fail(TH_ERR_TYPE, load_name, "the state of %s is a %s, expected a dict", self->ops->name,
                        th_value_kind_name(th_value_kind_of(state)));
    for (size_t i = 0; i < self->ops->n_fields; i++)
        TH__TRY(check_field(self, &self->ops->fields[i], th_value_get(state, self->ops->fields[i].key)));
    for (size_t i = 0; !self->ops->plain && i < N_COMMON; i++)
        TH__TRY(check_field(self, &common[i], th_value_get(state, common[i].key)));
    const th_value *children = th_value_get(state, "_schedulers");
    if (th_value_size(children) != self->n_children)
        return th__fail(TH_ERR_VALUE, load_name, "the state has %zu schedulers, the %s has %zu", th_value_size(children),
                        self->ops->name, self->n_children);
    for (size_t i = 0; i < self->n_children; i++) TH__TRY(check_all(self->children[i], th_value_at(children, i)));
    return TH_OK;
}

static void apply_all(th_scheduler *self, const th_value *state)
{
    for (size_t i = 0; i < self->ops->n_fields; i++)
        apply_field(self, &self->ops->fields[i], th_value_get(state, self->ops->fields[i].key));
    for (size_t i = 0; !self->ops->plain && i < N_COMMON; i++) apply_field(self, &common[i], th_value_get(state, common[i].key));
    if (self->ops->load != NULL) self->ops->load(self, state);
    const th_value *children = th_value_get(state, "_schedulers");
    for (size_t i = 0; i < self->n_children; i++) apply_all(self->children[i], th_value_at(children, i));
}

th_status th_scheduler_load_state_dict(th_scheduler *scheduler, th_value *state)
{
    TH__CHECK_PENDING();
    if (!th__object_check(scheduler, &th__scheduler_cls, __func__, "scheduler")) return th__pending();
    TH__TRY(check_all(scheduler, state));
    apply_all(scheduler, state);
    return th__pending();
}

/* ---------------------------------------------------------------- in nested states */

static th_value *stateful_save(void *object) { return th_scheduler_state_dict(object); }
static th_status stateful_load(void *object, th_value *state, bool strict)
{
    (void)strict;
    return th_scheduler_load_state_dict(object, state);
}

th_value *th_state_scheduler(th_scheduler *scheduler)
{
    static const th_stateful ops = {sizeof(th_stateful), "scheduler", stateful_save, stateful_load};
    TH__CHECK_PENDING_NULL();
    if (!th__object_check(scheduler, &th__scheduler_cls, __func__, "scheduler")) return NULL;
    return th_value_object(&ops, scheduler);
}
