/* checkpoint/from_nodes.c: plain values from a pickle's nodes. What has no counterpart here is an error that names it. */
#include "checkpoint/from_nodes.h"

#include "base/memory.h"
#include "checkpoint/globals.h"
#include "checkpoint/storages.h"
#include <cfabric/autograd.h>
#include <cfabric/scope.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 500 };

struct th__loader {
    th__torch_file *file;
    th__storage_table storages;
    th__node **cached; /* nodes whose `user` is a th_value: a tensor mentioned twice is one tensor */
    size_t n_cached, cached_capacity;
    uint64_t steps, steps_max; /* shared lists that double at each level must not run away */
};

const char *th__loader_path(const th__loader *loader) { return loader->file->source->path; }

th__loader *th__loader_new(th__torch_file *file)
{
    th__loader *loader = th__calloc(1, sizeof *loader);
    if (loader == NULL) return NULL;
    loader->file = file;
    loader->storages.file = file;
    loader->steps_max = 100000 + 16 * (uint64_t)file->pickle_size;
    return loader;
}

void th__loader_free(th__loader *loader)
{
    if (loader == NULL) return;
    th__storages_free(&loader->storages);
    for (size_t i = 0; i < loader->n_cached; i++) {
        th_value_free(loader->cached[i]->user);
        loader->cached[i]->user = NULL;
    }
    free(loader->cached);
    free(loader);
}

th_tensor *th__loader_storage(th__loader *loader, const th__node *persistent, th__storage *what)
{
    return th__storages_get(&loader->storages, persistent, what);
}

/* ---------------------------------------------------------------- values */

static th_value *refuse(th__loader *loader, const char *format, const th__node *node)
{
    char text[160], message[320];
    th__node_show(node, text, sizeof text);
    snprintf(message, sizeof message, format, text);
    th__fail(TH_ERR_DATA, "th_load", "'%s': %s", th__loader_path(loader), message);
    return NULL;
}

/* A terminated copy; texts with a NUL inside cannot be told apart from shorter ones. [owned] free() */
static char *copy_text(th__loader *loader, const th__node *node)
{
    if (memchr(node->v.text, '\0', node->count) != NULL) return refuse(loader, "the text '%s' has a NUL byte in it", node), NULL;
    char *copy = th__malloc(node->count + 1);
    if (copy == NULL) return NULL;
    memcpy(copy, node->v.text, node->count);
    copy[node->count] = '\0';
    return copy;
}

static th_value *text_value(th__loader *loader, const th__node *node)
{
    char *text = copy_text(loader, node);
    th_value *value = text == NULL ? NULL : th_value_string(text);
    free(text);
    return value;
}

static th_value *convert(th__loader *loader, th__node *node, int depth);

static th_value *convert_items(th__loader *loader, const th__node *node, th_value *into, int depth)
{
    for (size_t i = 0; into != NULL && i < node->count; i++) {
        if (th_value_append(into, convert(loader, node->v.items[i], depth + 1)) == TH_OK) continue;
        th_value_free(into);
        return NULL;
    }
    return into;
}

static th_status set_item(th__loader *loader, th_value *dict, const th__node *key, th_value *item)
{
    if (item == NULL) return th__pending();
    if (key->kind == TH__NODE_INT || key->kind == TH__NODE_BOOL) return th_value_set_int(dict, key->v.i, item);
    if (key->kind != TH__NODE_TEXT) {
        th_value_free(item);
        char text[80];
        return th__fail(TH_ERR_DATA, "th_load", "'%s': a dict key is a %s; texts and ints are supported", th__loader_path(loader),
                        th__node_show(key, text, sizeof text));
    }
    char *text = copy_text(loader, key);
    if (text == NULL) {
        th_value_free(item);
        return th__pending();
    }
    th_status status = th_value_set(dict, text, item);
    free(text);
    return status;
}

static th_value *convert_dict(th__loader *loader, const th__node *node, int depth)
{
    th_value *dict = th_value_dict();
    for (size_t i = 0; dict != NULL && i + 1 < node->count; i += 2) {
        if (set_item(loader, dict, node->v.items[i], convert(loader, node->v.items[i + 1], depth + 1)) == TH_OK) continue;
        th_value_free(dict);
        return NULL;
    }
    return dict;
}

/* OrderedDict([[key, value], ...]), as Python 2 pickled it. */
static th_value *convert_pairs(th__loader *loader, const th__node *pairs, int depth)
{
    th_value *dict = th_value_dict();
    for (size_t i = 0; dict != NULL && i < pairs->count; i++) {
        th__node *key = th__node_arg(pairs->v.items[i], 0), *item = th__node_arg(pairs->v.items[i], 1);
        if (key == NULL || item == NULL)
            refuse(loader, "an OrderedDict from a %s", pairs->v.items[i]);
        else if (set_item(loader, dict, key, convert(loader, item, depth + 1)) == TH_OK)
            continue;
        th_value_free(dict);
        return NULL;
    }
    return dict;
}

static th_value *convert_tensor(th__loader *loader, th__node *node)
{
    if (node->user == NULL) {
        th_tensor *tensor = th__rebuild_tensor(loader, node);
        th_value *value = tensor == NULL ? NULL : th_value_tensor(tensor);
        th_free(tensor);
        if (value == NULL) return NULL;
        if (TH__PUSH(loader->cached, loader->n_cached, loader->cached_capacity, node) != 0) {
            th_value_free(value);
            return NULL;
        }
        node->user = value;
    }
    return th_value_tensor(th_value_as_tensor(node->user));
}

static th_value *convert_call(th__loader *loader, th__node *node, int depth)
{
    const th__node *items = th__node_as_dict(node), *first = th__node_arg(node, 0);
    if (th__is_tensor_call(node)) return convert_tensor(loader, node);
    if (items != NULL && items->count == 0 && th__node_is_call(node, "collections.OrderedDict") && first != NULL &&
        first->kind == TH__NODE_LIST)
        return convert_pairs(loader, first, depth);
    if (items != NULL) return convert_dict(loader, items, depth);
    if (th__node_is_call(node, "torch.Size")) {
        if (first != NULL && first->kind == TH__NODE_TUPLE) return convert_items(loader, first, th_value_tuple(), depth);
        return refuse(loader, "torch.Size of a %s", first);
    }
    if (th__node_is_call(node, "builtins.set") || th__node_is_call(node, "builtins.frozenset")) {
        if (first == NULL) return th_value_list();
        if (first->kind == TH__NODE_LIST || first->kind == TH__NODE_TUPLE)
            return convert_items(loader, first, th_value_list(), depth);
        return refuse(loader, "a set from a %s", first);
    }
    if (th__node_is_call(node, "argparse.Namespace"))
        return node->state != NULL ? convert(loader, node->state, depth + 1) : th_value_dict();
    bool known;
    th_value *value = th__convert_known_call(loader, node, &known);
    if (known) return value;
    return refuse(
        loader,
        "'%s' is not allowed in a checkpoint (nothing in a file is executed; known are tensors, parameters, OrderedDict and "
        "plain Python values)",
        node->v.call.callee);
}

static th_value *convert_inner(th__loader *loader, th__node *node, int depth)
{
    switch (node->kind) {
    case TH__NODE_NONE: return th_value_none();
    case TH__NODE_BOOL: return th_value_bool(node->v.i != 0);
    case TH__NODE_INT: return th_value_int(node->v.i);
    case TH__NODE_FLOAT: return th_value_double(node->v.d);
    case TH__NODE_TEXT: return text_value(loader, node);
    case TH__NODE_BYTES: return th_value_bytes(node->v.text, node->count);
    case TH__NODE_LIST:
    case TH__NODE_SET: return convert_items(loader, node, th_value_list(), depth);
    case TH__NODE_TUPLE: return convert_items(loader, node, th_value_tuple(), depth);
    case TH__NODE_DICT: return convert_dict(loader, node, depth);
    case TH__NODE_GLOBAL:
        if (th__is_known_name(node)) return text_value(loader, node);
        return refuse(loader, "the global '%s' is not allowed in a checkpoint", node);
    case TH__NODE_CALL:
    case TH__NODE_OBJECT: return convert_call(loader, node, depth);
    case TH__NODE_BIGINT: return refuse(loader, "an integer of more than 64 bits", NULL);
    case TH__NODE_PERSISTENT: break;
    }
    return refuse(loader, "a bare %s; only tensors can be read", node);
}

static th_value *convert(th__loader *loader, th__node *node, int depth)
{
    TH__CHECK_PENDING_NULL();
    if (node == NULL) return refuse(loader, "%s where a value is expected", NULL);
    if (node->mark) return refuse(loader, "a %s contains itself", node);
    if (depth > DEPTH_MAX) return refuse(loader, "a %s is nested too deeply", node);
    if (++loader->steps > loader->steps_max) return refuse(loader, "a %s is shared too often", node);
    node->mark = 1;
    th_value *value = convert_inner(loader, node, depth);
    node->mark = 0;
    return value;
}

th_value *th__loader_value(th__loader *loader, th__node *node)
{
    th__storages_prefetch(&loader->storages);
    return convert(loader, node, 0);
}
