/* tensor/value.c: nested values. A dict is two parallel arrays in insertion order; keys are texts or ints. */
#include "tensor/value_internal.h"

#include "base/memory.h"
#include "bridge/bridge.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void destroy(void *object)
{
    th_value *v = object;
    switch (v->kind) {
    case TH_VALUE_STRING:
    case TH_VALUE_BYTES: free(v->u.bytes.data); break;
    case TH_VALUE_TENSOR: th_free(v->u.tensor); break;
    case TH_VALUE_LIST:
    case TH_VALUE_TUPLE:
    case TH_VALUE_DICT:
        for (size_t i = 0; i < v->u.items.count; i++) {
            th__release(v->u.items.data[i]);
            if (v->kind == TH_VALUE_DICT) free(v->u.items.keys[i].text);
        }
        free(v->u.items.data);
        free(v->u.items.keys);
        break;
    default: break;
    }
    free(v);
}

const th__class th__value_class = {"value", destroy};

static th_value *make(th_value_kind kind)
{
    TH__CHECK_PENDING_NULL();
    th_value *v = th__object_new(&th__value_class, sizeof *v);
    if (v != NULL) v->kind = kind;
    return v;
}

th_value *th_value_none(void) { return make(TH_VALUE_NONE); }
th_value *th_value_list(void) { return make(TH_VALUE_LIST); }
th_value *th_value_tuple(void) { return make(TH_VALUE_TUPLE); }
th_value *th_value_dict(void) { return make(TH_VALUE_DICT); }

th_value *th_value_bool(bool b)
{
    th_value *v = make(TH_VALUE_BOOL);
    if (v != NULL) v->u.i = b;
    return v;
}

th_value *th_value_int(int64_t i)
{
    th_value *v = make(TH_VALUE_INT);
    if (v != NULL) v->u.i = i;
    return v;
}

th_value *th_value_double(double d)
{
    th_value *v = make(TH_VALUE_DOUBLE);
    if (v != NULL) v->u.d = d;
    return v;
}

static th_value *make_bytes(th_value_kind kind, const void *data, size_t size)
{
    th_value *v = make(kind);
    if (v == NULL) return NULL;
    v->u.bytes.data = th__malloc(size + 1);
    if (v->u.bytes.data == NULL) {
        th__release(v);
        return NULL;
    }
    if (size > 0) memcpy(v->u.bytes.data, data, size);
    v->u.bytes.data[size] = '\0';
    v->u.bytes.size = size;
    return v;
}

th_value *th_value_string(const char *text)
{
    TH__CHECK_PENDING_NULL();
    if (text == NULL) {
        TH__FAIL(TH_ERR_TYPE, "text is NULL");
        return NULL;
    }
    return make_bytes(TH_VALUE_STRING, text, strlen(text));
}

th_value *th_value_bytes(const void *data, size_t size) { return make_bytes(TH_VALUE_BYTES, data, size); }

th_value *th_value_tensor(th_tensor *tensor)
{
    th_tensor *own = th_retain(tensor);
    if (own == NULL) return NULL;
    th_value *v = make(TH_VALUE_TENSOR);
    if (v == NULL) th_free(own);
    else v->u.tensor = own;
    return v;
}

th_value *th_value_object(const th_stateful *ops, void *object)
{
    th_value *v = make(TH_VALUE_OBJECT);
    if (v == NULL) return NULL;
    v->u.object.ops = ops;
    v->u.object.pointer = object;
    return v;
}

th_value *th_value_retain(th_value *value) { return th__retain(value); }
void th_value_free(th_value *value) { th__release(value); }

/* ---------------------------------------------------------------- containers */

static bool is_container(const th_value *v) { return v->kind >= TH_VALUE_LIST && v->kind <= TH_VALUE_DICT; }

static th_status check_container(th_value *container, bool dict, th_value *item, const char *function)
{
    if (item != NULL && th__object_check(container, &th__value_class, function, "the container") &&
        th__object_check(item, &th__value_class, function, "the item")) {
        if (dict ? container->kind == TH_VALUE_DICT : container->kind == TH_VALUE_LIST || container->kind == TH_VALUE_TUPLE)
            return TH_OK;
        return th__fail(TH_ERR_TYPE, function, "the container is a %s, expected a %s", th_value_kind_name(container->kind),
                        dict ? "dict" : "list or tuple");
    }
    return item == NULL && th__pending() == TH_OK ? th__fail(TH_ERR_TYPE, function, "the item is NULL") : th__pending();
}

static th_status push(th_value *container, const struct th__value_key *key, th_value *item)
{
    struct th__value_items *items = &container->u.items;
    size_t capacity = items->capacity;
    if (th__grow((void **)&items->data, items->count, &capacity, sizeof *items->data) != 0) return th__pending();
    if (container->kind == TH_VALUE_DICT && capacity != items->capacity) {
        struct th__value_key *keys = th__realloc(items->keys, capacity, sizeof *keys);
        if (keys == NULL) return th__pending();
        items->keys = keys;
    }
    items->capacity = capacity;
    if (container->kind == TH_VALUE_DICT) items->keys[items->count] = *key;
    items->data[items->count++] = item;
    return TH_OK;
}

th_status th_value_append(th_value *list_or_tuple, th_value *item)
{
    th_status status = th__pending();
    if (status == TH_OK) status = check_container(list_or_tuple, false, item, __func__);
    if (status == TH_OK) status = push(list_or_tuple, NULL, item);
    if (status != TH_OK) th__release(item);
    return status;
}

/* Index of a key, count if absent. Dicts of states are small or built once, so a linear search from the end is enough... except for
 * building: appending N new keys costs N^2/2 comparisons of the cached hash only. */
static uint64_t hash_of(const char *text, int64_t number)
{
    uint64_t h = 1469598103934665603u;
    if (text == NULL) return (h ^ (uint64_t)number) * 1099511628211u;
    for (const char *p = text; *p != '\0'; p++) h = (h ^ (unsigned char)*p) * 1099511628211u;
    return h;
}

static size_t find(const th_value *dict, const char *text, int64_t number)
{
    uint64_t hash = hash_of(text, number);
    const struct th__value_items *items = &dict->u.items;
    for (size_t i = 0; i < items->count; i++) {
        const struct th__value_key *key = &items->keys[i];
        if (key->hash != hash || (key->text == NULL) != (text == NULL)) continue;
        if (text != NULL ? strcmp(key->text, text) == 0 : key->number == number) return i;
    }
    return items->count;
}

static th_status set(th_value *dict, const char *text, int64_t number, th_value *item, const char *function)
{
    th_status status = th__pending();
    if (status == TH_OK) status = check_container(dict, true, item, function);
    if (status == TH_OK) {
        size_t i = find(dict, text, number);
        if (i < dict->u.items.count) {
            th__release(dict->u.items.data[i]);
            dict->u.items.data[i] = item;
            return TH_OK;
        }
        struct th__value_key key = {text != NULL ? th__strdup(text) : NULL, number, hash_of(text, number)};
        status = text != NULL && key.text == NULL ? th__pending() : push(dict, &key, item);
        if (status != TH_OK) free(key.text);
    }
    if (status != TH_OK) th__release(item);
    return status;
}

th_status th_value_set(th_value *dict, const char *key, th_value *item)
{
    if (key == NULL) {
        th__release(item);
        return TH__FAIL(TH_ERR_TYPE, "the key is NULL");
    }
    return set(dict, key, 0, item, __func__);
}

th_status th_value_set_int(th_value *dict, int64_t key, th_value *item) { return set(dict, NULL, key, item, __func__); }

bool th_value_remove(th_value *dict, const char *key)
{
    if (dict == NULL || dict->kind != TH_VALUE_DICT) return false;
    struct th__value_items *items = &dict->u.items;
    size_t i = find(dict, key, 0);
    if (i == items->count) return false;
    th__release(items->data[i]);
    free(items->keys[i].text);
    memmove(&items->data[i], &items->data[i + 1], (items->count - i - 1) * sizeof *items->data);
    memmove(&items->keys[i], &items->keys[i + 1], (items->count - i - 1) * sizeof *items->keys);
    items->count--;
    return true;
}

/* ---------------------------------------------------------------- reading */

th_value_kind th_value_kind_of(const th_value *value) { return value == NULL ? TH_VALUE_NONE : value->kind; }

const char *th_value_kind_name(th_value_kind kind)
{
    static const char *const names[] = {"None", "bool", "int", "float", "str", "bytes", "tensor", "list", "tuple", "dict", "object"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

size_t th_value_size(const th_value *v) { return v != NULL && is_container(v) ? v->u.items.count : 0; }
th_value *th_value_at(const th_value *v, size_t i) { return i < th_value_size(v) ? v->u.items.data[i] : NULL; }

const char *th_value_key_at(const th_value *dict, size_t i, int64_t *int_key)
{
    if (th_value_kind_of(dict) != TH_VALUE_DICT || i >= dict->u.items.count) return NULL;
    if (int_key != NULL) *int_key = dict->u.items.keys[i].number;
    return dict->u.items.keys[i].text;
}

static th_value *get(const th_value *dict, const char *key, int64_t number)
{
    if (th_value_kind_of(dict) != TH_VALUE_DICT) return NULL;
    size_t i = find(dict, key, number);
    return i < dict->u.items.count ? dict->u.items.data[i] : NULL;
}

th_value *th_value_get(const th_value *dict, const char *key) { return key == NULL ? NULL : get(dict, key, 0); }
th_value *th_value_get_int(const th_value *dict, int64_t key) { return get(dict, NULL, key); }

bool th_value_as_bool(const th_value *v, bool fallback)
{
    th_value_kind kind = th_value_kind_of(v);
    return kind == TH_VALUE_BOOL || kind == TH_VALUE_INT ? v->u.i != 0 : fallback;
}

int64_t th_value_as_int(const th_value *v, int64_t fallback)
{
    th_value_kind kind = th_value_kind_of(v);
    if (kind == TH_VALUE_DOUBLE && v->u.d >= -9.2e18 && v->u.d <= 9.2e18) return (int64_t)v->u.d;
    return kind == TH_VALUE_BOOL || kind == TH_VALUE_INT ? v->u.i : fallback;
}

double th_value_as_double(const th_value *v, double fallback)
{
    th_value_kind kind = th_value_kind_of(v);
    if (kind == TH_VALUE_DOUBLE) return v->u.d;
    return kind == TH_VALUE_BOOL || kind == TH_VALUE_INT ? (double)v->u.i : fallback;
}

const char *th_value_as_string(const th_value *v, const char *fallback)
{
    return th_value_kind_of(v) == TH_VALUE_STRING ? v->u.bytes.data : fallback;
}

const void *th_value_as_bytes(const th_value *v, size_t *size)
{
    th_value_kind kind = th_value_kind_of(v);
    bool fits = kind == TH_VALUE_BYTES || kind == TH_VALUE_STRING;
    if (size != NULL) *size = fits ? v->u.bytes.size : 0;
    return fits ? v->u.bytes.data : NULL;
}

th_tensor *th_value_as_tensor(const th_value *v) { return th_value_kind_of(v) == TH_VALUE_TENSOR ? v->u.tensor : NULL; }

const th_stateful *th_value_as_object(const th_value *v, void **object)
{
    bool fits = th_value_kind_of(v) == TH_VALUE_OBJECT;
    if (object != NULL) *object = fits ? v->u.object.pointer : NULL;
    return fits ? v->u.object.ops : NULL;
}

th_value *th_state_of(const th_state_entry *entries, size_t n)
{
    th_value *dict = th_value_dict();
    for (size_t i = 0; i < n; i++) {
        if (dict == NULL) th__release(entries[i].value);
        else th_value_set(dict, entries[i].key, entries[i].value); /* consumes; errors stay pending */
    }
    if (th__pending() == TH_OK) return dict;
    th__release(dict);
    return NULL;
}
