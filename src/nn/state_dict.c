/* nn/state_dict.c: state_dict() and load_state_dict() in PyTorch's key order, with errors that name the keys and suggest fixes.
 */
#include "nn/module_impl.h"

#include <cfabric/ops.h>
#include <stdlib.h>
#include <string.h>

/* One entry of a module tree's state dict. */
typedef struct slot {
    char *name;
    th_tensor *tensor;
} slot;
typedef struct slots {
    slot *items;
    size_t count, capacity;
} slots;

static void free_slots(slots *list)
{
    for (size_t i = 0; i < list->count; i++) free(list->items[i].name);
    free(list->items);
}

static int add_table(slots *list, const th__tensor_table *table, const char *prefix)
{
    for (size_t i = 0; i < table->count; i++) {
        if (table->items[i].tensor == NULL || !table->items[i].persistent) continue;
        slot entry = {th__module_join(prefix, table->items[i].name), table->items[i].tensor};
        if (entry.name == NULL || TH__PUSH(list->items, list->count, list->capacity, entry) != 0) {
            free(entry.name);
            return -1;
        }
    }
    return 0;
}

/* Own parameters, own buffers, then the children. Shared tensors and shared modules appear under every name, as in PyTorch. */
static int collect(th_module *module, const char *prefix, slots *list)
{
    if (add_table(list, &module->parameters, prefix) != 0 || add_table(list, &module->buffers, prefix) != 0) return -1;
    for (size_t i = 0; i < module->n_children; i++) {
        char *name = th__module_join(prefix, module->children[i].name);
        int result = name != NULL ? collect(module->children[i].module, name, list) : -1;
        free(name);
        if (result != 0) return result;
    }
    return 0;
}

th_value *th_module_state_dict(th_module *module)
{
    TH__CHECK_PENDING_NULL();
    if (!th__module_check(module, __func__)) return NULL;
    slots list = {NULL, 0, 0};
    th_value *state = th_value_dict();
    if (collect(module, "", &list) == 0) {
        for (size_t i = 0; i < list.count && th__pending() == TH_OK; i++) {
            TH_SCOPE();
            th_value_set(state, list.items[i].name, th_value_tensor(th_detach(list.items[i].tensor)));
        }
    }
    free_slots(&list);
    if (th__pending() == TH_OK) return state;
    th_value_free(state);
    return NULL;
}

/* ---------------------------------------------------------------- reports */

enum { SHOWN = 8 }; /* names listed per kind of mistake; the rest is counted */

typedef struct report {
    char *text;
    size_t shown, total;
    const char *title;
} report;

static void report_add(report *to, const char *title, char *item)
{
    if (to->title != title) *to = (report){to->text, 0, 0, title};
    to->total++;
    if (item != NULL && to->shown < SHOWN) {
        char *longer = th__strfmt("%s%s%s%s", to->text != NULL ? to->text : "",
                                  to->shown > 0      ? ", "
                                  : to->text != NULL ? "; "
                                                     : "",
                                  to->shown > 0 ? "" : title, item);
        free(to->text);
        to->text = longer;
        to->shown++;
    }
    free(item);
}

static void report_close(report *to)
{
    if (to->total <= to->shown || to->text == NULL) return;
    char *longer = th__strfmt("%s and %zu more", to->text, to->total - to->shown);
    free(to->text);
    to->text = longer;
    to->total = to->shown;
}

/* Edit distance, given up beyond `limit`. */
static size_t distance(const char *a, const char *b, size_t limit)
{
    size_t la = strlen(a), lb = strlen(b), row[128];
    if (la >= 128 || lb >= 128 || (la > lb ? la - lb : lb - la) > limit) return limit + 1;
    for (size_t j = 0; j <= lb; j++) row[j] = j;
    for (size_t i = 1; i <= la; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            size_t shift = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < shift ? change : shift;
        }
    }
    return row[lb];
}

static bool ends_with(const char *text, const char *tail)
{
    size_t lt = strlen(text), ln = strlen(tail);
    return lt > ln && strcmp(text + lt - ln, tail) == 0 && text[lt - ln - 1] == '.';
}

/* The key of the state that was probably meant: the name with other levels in front, or a misspelling. NULL if none. */
static const char *near_match(const th_value *state, const slots *list, const char *name)
{
    const char *best = NULL;
    size_t best_distance = 3;
    for (size_t i = 0; i < th_value_size(state); i++) {
        const char *key = th_value_key_at(state, i, NULL);
        if (key == NULL) continue;
        bool taken = false;
        for (size_t k = 0; k < list->count && !taken; k++) taken = strcmp(list->items[k].name, key) == 0;
        if (taken) continue;
        if (ends_with(key, name) || ends_with(name, key)) return key;
        size_t d = distance(key, name, best_distance);
        if (d < best_distance) {
            best = key;
            best_distance = d;
        }
    }
    return best;
}

/* When every missing name is there with one prefix in front (or the other way round): says so. [owned], NULL if not. */
static char *prefix_hint(const th_value *state, const slots *list)
{
    if (list->count == 0 || th_value_size(state) == 0) return NULL;
    const char *key = th_value_key_at(state, 0, NULL), *name = list->items[0].name;
    for (size_t i = 0; i < th_value_size(state) && (key == NULL || !ends_with(key, name)); i++)
        key = th_value_key_at(state, i, NULL);
    bool extra = key != NULL && ends_with(key, name);
    size_t length = extra ? strlen(key) - strlen(name) : 0;
    for (size_t i = 0; i < list->count && extra; i++) {
        char *wanted = th__strfmt("%.*s%s", (int)length, key, list->items[i].name);
        extra = wanted != NULL && th_value_get(state, wanted) != NULL;
        free(wanted);
    }
    return extra ? th__strfmt("every name is there with '%.*s' in front: th_state_dict_renamed(state, \"%.*s\", \"\") removes it",
                              (int)length, key, (int)length, key)
                 : NULL;
}

static char *sizes_text(th_tensor *tensor)
{
    th_ints sizes = th_sizes(tensor);
    char *text = th__strdup("[");
    for (size_t i = 0; i < sizes.size && text != NULL; i++) {
        char *longer = th__strfmt("%s%s%lld", text, i > 0 ? ", " : "", (long long)sizes.data[i]);
        free(text);
        text = longer;
    }
    char *closed = text != NULL ? th__strfmt("%s]", text) : NULL;
    free(text);
    return closed;
}

static bool same_sizes(th_tensor *a, th_tensor *b)
{
    th_ints x = th_sizes(a), y = th_sizes(b);
    return x.size == y.size && (x.size == 0 || memcmp(x.data, y.data, x.size * sizeof *x.data) == 0);
}

/* ---------------------------------------------------------------- loading */

static const char *const MISSING = "missing: ", *const UNEXPECTED = "unexpected: ", *const MISMATCHED = "mismatched: ";

static void report_missing(report *to, const th_value *state, const slots *list, const char *name)
{
    const char *near = near_match(state, list, name);
    report_add(to, MISSING, near != NULL ? th__strfmt("%s (the state has '%s')", name, near) : th__strdup(name));
}

static void report_mismatch(report *to, const slot *entry, const th_value *item)
{
    th_tensor *tensor = th_value_as_tensor(item);
    char *have = tensor != NULL ? sizes_text(tensor) : th__strdup(th_value_kind_name(th_value_kind_of(item)));
    char *want = sizes_text(entry->tensor);
    report_add(
        to, MISMATCHED,
        th__strfmt("%s is %s in the state, %s in the module", entry->name, have != NULL ? have : "", want != NULL ? want : ""));
    free(have);
    free(want);
}

/* Looks for every mistake before anything is changed. */
static th_status check(const char *class_name, const th_value *state, const slots *list, bool strict)
{
    report found = {NULL, 0, 0, NULL};
    size_t matched = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (th_value_get(state, list->items[i].name) != NULL)
            matched++;
        else if (strict)
            report_missing(&found, state, list, list->items[i].name);
    }
    report_close(&found);
    for (size_t i = 0; strict && i < th_value_size(state); i++) {
        const char *key = th_value_key_at(state, i, NULL);
        bool known = false;
        for (size_t k = 0; key != NULL && k < list->count && !known; k++) known = strcmp(list->items[k].name, key) == 0;
        if (!known) report_add(&found, UNEXPECTED, th__strdup(key != NULL ? key : "(an int key)"));
    }
    report_close(&found);
    for (size_t i = 0; i < list->count; i++) {
        th_value *item = th_value_get(state, list->items[i].name);
        th_tensor *tensor = th_value_as_tensor(item);
        if (item != NULL && (tensor == NULL || !same_sizes(tensor, list->items[i].tensor)))
            report_mismatch(&found, &list->items[i], item);
    }
    report_close(&found);
    char *hint = matched == 0 ? prefix_hint(state, list) : NULL;
    if (matched == 0 && list->count > 0)
        th__fail(TH_ERR_KEY, "th_module_load_state_dict", "no key of the state fits %s (%zu keys, %zu expected): %s", class_name,
                 th_value_size(state), list->count,
                 hint != NULL         ? hint
                 : found.text != NULL ? found.text
                                      : list->items[0].name);
    else if (found.text != NULL)
        th__fail(TH_ERR_RUNTIME, "th_module_load_state_dict", "the state does not fit %s: %s", class_name, found.text);
    free(hint);
    free(found.text);
    return th__pending();
}

th_status th_module_load_state_dict(th_module *module, th_value *state, bool strict)
{
    TH__CHECK_PENDING();
    if (!th__module_check(module, __func__)) return th__pending();
    if (th_value_kind_of(state) != TH_VALUE_DICT)
        return TH__FAIL(TH_ERR_TYPE, "the state is a %s, expected a dict", th_value_kind_name(th_value_kind_of(state)));
    slots list = {NULL, 0, 0};
    if (collect(module, "", &list) == 0 && check(module->name, state, &list, strict) == TH_OK) {
        TH_NO_GRAD();
        for (size_t i = 0; i < list.count && th__pending() == TH_OK; i++) {
            TH_SCOPE();
            th_tensor *tensor = th_value_as_tensor(th_value_get(state, list.items[i].name));
            if (tensor != NULL) th_copy_(list.items[i].tensor, tensor);
        }
    }
    free_slots(&list);
    return th__pending();
}

th_value *th_state_dict_renamed(const th_value *state, const char *from, const char *to)
{
    TH__CHECK_PENDING_NULL();
    if (th_value_kind_of(state) != TH_VALUE_DICT || from == NULL || to == NULL) {
        TH__FAIL(TH_ERR_TYPE, "the state is a %s, expected a dict and two texts", th_value_kind_name(th_value_kind_of(state)));
        return NULL;
    }
    th_value *result = th_value_dict();
    size_t length = strlen(from);
    for (size_t i = 0; i < th_value_size(state) && th__pending() == TH_OK; i++) {
        int64_t number = 0;
        const char *key = th_value_key_at(state, i, &number);
        th_value *item = th_value_retain(th_value_at(state, i));
        if (key == NULL) {
            th_value_set_int(result, number, item);
        } else if (strncmp(key, from, length) != 0) {
            th_value_set(result, key, item);
        } else {
            char *renamed = th__strfmt("%s%s", to, key + length);
            if (renamed != NULL)
                th_value_set(result, renamed, item);
            else
                th_value_free(item);
            free(renamed);
        }
    }
    if (th__pending() == TH_OK) return result;
    th_value_free(result);
    return NULL;
}

/* ---------------------------------------------------------------- as a stateful object */

static th_value *object_state_dict(void *object) { return th_module_state_dict(object); }

static th_status object_load(void *object, th_value *state, bool strict)
{
    return th_module_load_state_dict(object, state, strict);
}

static const th_stateful module_ops = {sizeof(th_stateful), "module", object_state_dict, object_load};

th_value *th_state_module(th_module *module)
{
    TH__CHECK_PENDING_NULL();
    return th__module_check(module, __func__) ? th_value_object(&module_ops, module) : NULL;
}
