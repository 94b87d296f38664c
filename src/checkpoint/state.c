/* checkpoint/state.c: between live objects and plain values: what fabric_save writes, and how fabric_load restores in place. */
#include "checkpoint/internal.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 500 };

/* ---------------------------------------------------------------- to plain values */

static th_value *to_plain(th_value *value, int depth);

static th_value *object_state(const th_value *value)
{
    void *object;
    const th_stateful *ops = th_value_as_object(value, &object);
    if (ops == NULL || ops->state_dict == NULL) {
        TH__FAIL(TH_ERR_TYPE, "a live object in the state has no state_dict");
        return NULL;
    }
    th_value *state = ops->state_dict(object);
    if (state == NULL && th__pending() == TH_OK) TH__FAIL(TH_ERR_CALLBACK, "the state_dict of a %s returned nothing", ops->type);
    return state;
}

static th_value *plain_items(th_value *value, int depth)
{
    bool dict = th_value_kind_of(value) == TH_VALUE_DICT;
    th_value *out = dict ? th_value_dict() : th_value_kind_of(value) == TH_VALUE_LIST ? th_value_list() : th_value_tuple();
    for (size_t i = 0; out != NULL && i < th_value_size(value); i++) {
        th_value *item = to_plain(th_value_at(value, i), depth + 1);
        int64_t number = 0;
        const char *key = dict ? th_value_key_at(value, i, &number) : NULL;
        th_status status = !dict         ? th_value_append(out, item)
                           : key != NULL ? th_value_set(out, key, item)
                                         : th_value_set_int(out, number, item);
        if (status == TH_OK) continue;
        th_value_free(out);
        return NULL;
    }
    return out;
}

static th_value *to_plain(th_value *value, int depth)
{
    TH__CHECK_PENDING_NULL();
    if (depth > DEPTH_MAX) {
        TH__FAIL(TH_ERR_VALUE, "the state is nested deeper than %d levels", DEPTH_MAX);
        return NULL;
    }
    switch (th_value_kind_of(value)) {
    case TH_VALUE_OBJECT: {
        /* A user's state_dict may itself contain live objects. */
        th_value *state = object_state(value), *plain = state == NULL ? NULL : to_plain(state, depth + 1);
        th_value_free(state);
        return plain;
    }
    case TH_VALUE_LIST:
    case TH_VALUE_TUPLE:
    case TH_VALUE_DICT: return plain_items(value, depth);
    default: return th_value_retain(value);
    }
}

/* ---------------------------------------------------------------- filters */

static th_status check_filters(th_value *state, const th__state_filter *filters, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (filters[i].key == NULL || th_value_get(state, filters[i].key) == NULL) {
            const char *first = th_value_size(state) > 0 ? th_value_key_at(state, 0, NULL) : NULL;
            return th__fail(TH_ERR_VALUE, "fabric_save", "the filter key '%s' is not in the state, whose keys begin with '%s'",
                            filters[i].key != NULL ? filters[i].key : "(NULL)", first != NULL ? first : "");
        }
    }
    for (size_t i = 0; i < n; i++)
        if (filters[i].keep == NULL)
            return th__fail(TH_ERR_TYPE, "fabric_save", "the filter of '%s' is NULL, expected a function", filters[i].key);
    return TH_OK;
}

/* The entries of a dict that the filter keeps. [owned]; NULL with an error. */
static th_value *filtered(const th_value *dict, const th__state_filter *filter)
{
    th_value *out = th_value_dict();
    for (size_t i = 0; out != NULL && i < th_value_size(dict); i++) {
        char text[24];
        int64_t number = 0;
        const char *key = th_value_key_at(dict, i, &number);
        th_value *item = th_value_at(dict, i);
        if (key == NULL) snprintf(text, sizeof text, "%lld", (long long)number);
        bool keep = filter->keep(key != NULL ? key : text, item, filter->user);
        th_status status = th__pending();
        if (status == TH_OK && keep)
            status = key != NULL ? th_value_set(out, key, th_value_retain(item))
                                 : th_value_set_int(out, number, th_value_retain(item));
        if (status == TH_OK) continue;
        th_value_free(out);
        return NULL;
    }
    return out;
}

static th_status apply_filter(th_value *plain, const th__state_filter *filter)
{
    th_value *dict = th_value_get(plain, filter->key);
    if (th_value_kind_of(dict) != TH_VALUE_DICT) return TH_OK; /* other kinds ignore their filter */
    th_value *kept = filtered(dict, filter);
    if (kept == NULL) return th__pending();
    if (th_value_size(kept) > 0) return th_value_set(plain, filter->key, kept);
    th_value_free(kept);
    th_value_remove(plain, filter->key);
    return TH_OK;
}

th_value *th__state_to_plain(th_value *state, const th__state_filter *filters, size_t n_filters)
{
    TH__CHECK_PENDING_NULL();
    if (check_filters(state, filters, n_filters) != TH_OK) return NULL;
    th_value *plain = to_plain(state, 0);
    for (size_t i = 0; plain != NULL && i < n_filters; i++) {
        if (apply_filter(plain, &filters[i]) == TH_OK) continue;
        th_value_free(plain);
        return NULL;
    }
    return plain;
}

/* ---------------------------------------------------------------- restoring */

static bool has_object(const th_value *value, int depth)
{
    th_value_kind kind = th_value_kind_of(value);
    if (kind == TH_VALUE_OBJECT) return true;
    if ((kind != TH_VALUE_LIST && kind != TH_VALUE_TUPLE && kind != TH_VALUE_DICT) || depth > DEPTH_MAX) return false;
    for (size_t i = 0; i < th_value_size(value); i++)
        if (has_object(th_value_at(value, i), depth + 1)) return true;
    return false;
}

static th_status load_object(const th_value *value, th_value *state, bool strict, const char *name)
{
    void *object;
    const th_stateful *ops = th_value_as_object(value, &object);
    if (ops == NULL || ops->load_state_dict == NULL)
        return th__fail(TH_ERR_TYPE, "fabric_load", "the object at '%s' has no load_state_dict", name);
    th_status status = ops->load_state_dict(object, state, strict);
    if (status != TH_OK && th__pending() == TH_OK)
        th__fail(TH_ERR_CALLBACK, "fabric_load", "the load_state_dict of a %s failed", ops->type);
    if (th__pending() != TH_OK) th__error_context("loading '%s'", name);
    return th__pending();
}

static th_value *get_like(const th_value *dict, const char *key, int64_t number)
{
    return key != NULL ? th_value_get(dict, key) : th_value_get_int(dict, number);
}

static th_status missing(const char *key, int64_t number)
{
    char text[24];
    if (key == NULL) snprintf(text, sizeof text, "%lld", (long long)number);
    return th__fail(TH_ERR_KEY, "fabric_load",
                    "the requested state contains a key '%s' that does not exist in the loaded checkpoint; to disable strict "
                    "loading, set .strict = false",
                    key != NULL ? key : text);
}

static th_status restore_dict(th_value *state, th_value *saved, bool strict, int depth);

/* Restores what is inside `item` from `saved`; `*replace` is set when the plain value is to be taken over instead. */
static th_status restore(th_value *item, th_value *saved, bool strict, const char *name, int depth, bool *replace)
{
    *replace = false;
    if (th_value_kind_of(item) == TH_VALUE_OBJECT) return load_object(item, saved, strict, name);
    *replace = !has_object(item, 0);
    if (*replace) return TH_OK;
    if (depth > DEPTH_MAX || th_value_kind_of(item) == TH_VALUE_DICT) {
        if (th_value_kind_of(saved) != TH_VALUE_DICT)
            return th__fail(TH_ERR_TYPE, "fabric_load", "'%s' is a %s in the checkpoint, expected a dict", name,
                            th_value_kind_name(th_value_kind_of(saved)));
        return restore_dict(item, saved, strict, depth + 1);
    }
    if (th_value_size(item) != th_value_size(saved))
        return th__fail(TH_ERR_VALUE, "fabric_load", "'%s' has %zu items in the checkpoint, expected %zu", name,
                        th_value_size(saved), th_value_size(item));
    for (size_t i = 0; i < th_value_size(item); i++) {
        bool ignored;
        TH__TRY(restore(th_value_at(item, i), th_value_at(saved, i), strict, name, depth + 1, &ignored));
    }
    return TH_OK;
}

static th_status restore_entry(th_value *state, size_t i, th_value *saved, bool strict, int depth)
{
    char text[24];
    int64_t number = 0;
    const char *key = th_value_key_at(state, i, &number);
    th_value *value = get_like(saved, key, number);
    if (value == NULL) return strict ? missing(key, number) : TH_OK;
    if (key == NULL) snprintf(text, sizeof text, "%lld", (long long)number);
    bool replace;
    TH__TRY(restore(th_value_at(state, i), value, strict, key != NULL ? key : text, depth, &replace));
    if (!replace) return TH_OK;
    return key != NULL ? th_value_set(state, key, th_value_retain(value))
                       : th_value_set_int(state, number, th_value_retain(value));
}

static th_status restore_dict(th_value *state, th_value *saved, bool strict, int depth)
{
    for (size_t i = 0; i < th_value_size(state); i++) TH__TRY(restore_entry(state, i, saved, strict, depth));
    return TH_OK;
}

th_status th__state_from_plain(th_value *state, th_value *checkpoint, bool strict)
{
    TH__CHECK_PENDING();
    bool ignored;
    if (th_value_kind_of(state) == TH_VALUE_OBJECT) return restore(state, checkpoint, strict, "state", 0, &ignored);
    if (th_value_kind_of(state) != TH_VALUE_DICT || th_value_kind_of(checkpoint) != TH_VALUE_DICT)
        return th__fail(TH_ERR_TYPE, "fabric_load", "the state is a %s and the checkpoint a %s, expected two dicts",
                        th_value_kind_name(th_value_kind_of(state)), th_value_kind_name(th_value_kind_of(checkpoint)));
    for (size_t i = 0; i < th_value_size(state) && strict; i++) { /* before anything changes */
        int64_t number = 0;
        const char *key = th_value_key_at(state, i, &number);
        if (get_like(checkpoint, key, number) == NULL) return missing(key, number);
    }
    TH__TRY(restore_dict(state, checkpoint, strict, 0));
    for (size_t i = 0; i < th_value_size(state); i++) {
        const char *key = th_value_key_at(state, i, NULL);
        if (key != NULL) th_value_remove(checkpoint, key);
    }
    return TH_OK;
}

th_status th__state_load_raw(th_value *object, th_value *checkpoint, bool strict)
{
    TH__CHECK_PENDING();
    if (th_value_kind_of(object) != TH_VALUE_OBJECT)
        return th__fail(TH_ERR_TYPE, "fabric_load_raw", "a %s is given, expected a module or an optimizer: th_state(model)",
                        th_value_kind_name(th_value_kind_of(object)));
    return load_object(object, checkpoint, strict, "state");
}
