/* nn/module.c: making modules, their tables of children, parameters and buffers, and lookup by dotted path. */
#include "nn/module_impl.h"

#include <stdlib.h>
#include <string.h>

static void destroy_table(th__tensor_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        free(table->items[i].name);
        th_free(table->items[i].tensor);
    }
    free(table->items);
}

static void destroy(void *object)
{
    th_module *module = object;
    if (module->wrapper_ops != NULL && module->wrapper_ops->free != NULL) module->wrapper_ops->free(module->wrapper);
    if (module->args.free_data != NULL) module->args.free_data(module->args.data);
    for (size_t i = 0; i < module->n_children; i++) {
        free(module->children[i].name);
        th__release(module->children[i].module);
    }
    free(module->children);
    destroy_table(&module->parameters);
    destroy_table(&module->buffers);
    free(module->pre_hooks);
    free(module->post_hooks);
    free(module->extra_repr);
    free(module->name);
    free(module);
}

const th__class th__module_class = {"module", destroy};

th_module *th_module_new_call(struct th_module_args args)
{
    TH__CHECK_PENDING_NULL();
    if ((args.forward == NULL) == (args.forward_n == NULL)) {
        th__fail(TH_ERR_VALUE, "th_module_new", "module '%s' has %s of forward and forward_n, expected exactly one",
                 args.name != NULL ? args.name : "", args.forward == NULL ? "none" : "both");
        return NULL;
    }
    th_module *module = th__object_new(&th__module_class, sizeof *module);
    if (module == NULL) return NULL;
    module->training = true;
    module->name = th__strdup(args.name != NULL ? args.name : "Module");
    if (args.extra_repr != NULL) module->extra_repr = th__strdup(args.extra_repr);
    if (th__pending() != TH_OK) { /* `data` stays the caller's */
        th__release(module);
        return NULL;
    }
    module->args = args;
    module->args.name = module->name;
    module->args.extra_repr = module->extra_repr;
    return module;
}

void *th_module_data(th_module *module)
{
    return module != NULL && th__module_check(module, __func__) ? module->args.data : NULL;
}

const char *th_module_class(th_module *module)
{
    return module != NULL && th__module_check(module, __func__) ? module->name : "";
}

th_module *th_module_retain(th_module *module)
{
    if (module == NULL || !th__module_check(module, __func__)) return NULL;
    return th__retain(module);
}

void th_module_free(th_module *module) { th__release(module); }

/* ---------------------------------------------------------------- registering */

static th__tensor_entry *find_tensor(th__tensor_table *table, const char *name, size_t length)
{
    for (size_t i = 0; i < table->count; i++)
        if (strncmp(table->items[i].name, name, length) == 0 && table->items[i].name[length] == '\0') return &table->items[i];
    return NULL;
}

static th__child_entry *find_child(th_module *module, const char *name, size_t length)
{
    for (size_t i = 0; i < module->n_children; i++)
        if (strncmp(module->children[i].name, name, length) == 0 && module->children[i].name[length] == '\0')
            return &module->children[i];
    return NULL;
}

/* A name must be new in all three tables, not empty and without a dot. */
static bool name_is_free(th_module *module, const char *name, const char *function)
{
    if (name == NULL || name[0] == '\0' || strchr(name, '.') != NULL) {
        th__fail(TH_ERR_KEY, function, "%s: the name '%s' is not allowed, expected a text without dots that is not empty",
                 module->name, name != NULL ? name : "NULL");
        return false;
    }
    size_t length = strlen(name);
    if (find_child(module, name, length) != NULL || find_tensor(&module->parameters, name, length) != NULL ||
        find_tensor(&module->buffers, name, length) != NULL) {
        th__fail(TH_ERR_KEY, function, "%s already has a child, parameter or buffer named '%s'", module->name, name);
        return false;
    }
    return true;
}

th_module *th_register_module(th_module *parent, const char *name, th_module *child)
{
    if (th__pending() != TH_OK || child == NULL || !th__module_check(parent, __func__) || !th__module_check(child, __func__) ||
        !name_is_free(parent, name, __func__)) {
        if (th__pending() == TH_OK) TH__FAIL(TH_ERR_TYPE, "child '%s' is NULL, expected a module", name != NULL ? name : "");
        th__release(child);
        return NULL;
    }
    if (th__module_contains(child, parent)) {
        TH__FAIL(TH_ERR_VALUE, "%s cannot become a child of %s, which it contains", child->name, parent->name);
        th__release(child);
        return NULL;
    }
    th__child_entry entry = {th__strdup(name), child};
    if (entry.name == NULL || TH__PUSH(parent->children, parent->n_children, parent->children_capacity, entry) != 0) {
        free(entry.name);
        th__release(child);
        return NULL;
    }
    return child;
}

/* Adds a retained handle (or NULL) to a table. Returns the table's handle. */
static th_tensor *add_tensor(th__tensor_table *table, const char *name, th_tensor *tensor, bool persistent)
{
    th__tensor_entry entry = {th__strdup(name), tensor != NULL ? th_retain(tensor) : NULL, persistent};
    bool failed = entry.name == NULL || (tensor != NULL && entry.tensor == NULL);
    if (failed || TH__PUSH(table->items, table->count, table->capacity, entry) != 0) {
        free(entry.name);
        th_free(entry.tensor);
        return NULL;
    }
    return entry.tensor;
}

th_tensor *th_register_parameter(th_module *module, const char *name, th_tensor *tensor)
{
    TH__CHECK_PENDING_NULL();
    if (!th__module_check(module, __func__) || !name_is_free(module, name, __func__)) return NULL;
    if (tensor != NULL) {
        if (!th__tensor_check(tensor, __func__, "tensor")) return NULL;
        if (!th_is_leaf_of(tensor)) {
            TH__FAIL(TH_ERR_TYPE, "parameter '%s' of %s is the result of an operation, expected a leaf tensor (detach it)", name,
                     module->name);
            return NULL;
        }
        th_dtype dtype = th_dtype_of(tensor);
        if (th_dtype_is_floating_point(dtype) || th_dtype_is_complex(dtype)) th_requires_grad_(tensor, true);
    }
    return add_tensor(&module->parameters, name, tensor, true);
}

th_tensor *th_register_buffer(th_module *module, const char *name, th_tensor *tensor, bool persistent)
{
    TH__CHECK_PENDING_NULL();
    if (!th__module_check(module, __func__) || !name_is_free(module, name, __func__)) return NULL;
    if (tensor != NULL && !th__tensor_check(tensor, __func__, "tensor")) return NULL;
    return add_tensor(&module->buffers, name, tensor, persistent);
}

/* ---------------------------------------------------------------- lookup by dotted path */

/* The module that owns the last part of `path`; *last points at that part. NULL without an error when a part is missing. */
static th_module *find_owner(th_module *module, const char *path, const char **last)
{
    for (const char *dot; (dot = strchr(path, '.')) != NULL; path = dot + 1) {
        th__child_entry *child = find_child(module, path, (size_t)(dot - path));
        if (child == NULL) return NULL;
        module = child->module;
    }
    *last = path;
    return module;
}

th_module *th_module_get(th_module *module, const char *path)
{
    TH__CHECK_PENDING_NULL();
    if (!th__module_check(module, __func__)) return NULL;
    if (path == NULL || path[0] == '\0') return module;
    const char *last = NULL;
    th_module *owner = find_owner(module, path, &last);
    th__child_entry *child = owner != NULL ? find_child(owner, last, strlen(last)) : NULL;
    if (child != NULL) return child->module;
    TH__FAIL(TH_ERR_KEY, "%s has no module '%s'", module->name, path);
    return NULL;
}

static th__tensor_entry *find_entry(th_module *module, const char *path, bool parameters, bool buffers)
{
    const char *last = NULL;
    th_module *owner = path != NULL ? find_owner(module, path, &last) : NULL;
    th__tensor_entry *entry = NULL;
    if (owner != NULL && parameters) entry = find_tensor(&owner->parameters, last, strlen(last));
    if (owner != NULL && entry == NULL && buffers) entry = find_tensor(&owner->buffers, last, strlen(last));
    return entry;
}

static th_tensor *lookup(th_module *module, const char *path, bool parameter, const char *function)
{
    TH__CHECK_PENDING_NULL();
    if (!th__module_check(module, function)) return NULL;
    th__tensor_entry *entry = find_entry(module, path, parameter, !parameter);
    if (entry != NULL && entry->tensor != NULL) return entry->tensor;
    th__fail(TH_ERR_KEY, function, entry == NULL ? "%s has no %s '%s'" : "%s: the %s '%s' was registered as absent", module->name,
             parameter ? "parameter" : "buffer", path != NULL ? path : "NULL");
    return NULL;
}

th_tensor *th_module_parameter(th_module *module, const char *path) { return lookup(module, path, true, __func__); }

th_tensor *th_module_buffer(th_module *module, const char *path) { return lookup(module, path, false, __func__); }

th_status th_module_set_tensor(th_module *module, const char *path, th_tensor *tensor)
{
    TH__CHECK_PENDING();
    if (!th__module_check(module, __func__)) return th__pending();
    if (tensor != NULL && !th__tensor_check(tensor, __func__, "tensor")) return th__pending();
    th__tensor_entry *entry = find_entry(module, path, true, true);
    if (entry == NULL)
        return TH__FAIL(TH_ERR_KEY, "%s has no parameter or buffer '%s'", module->name, path != NULL ? path : "NULL");
    th_assign(&entry->tensor, tensor);
    return th__pending();
}

th_tensor **th__module_parameter_slot(th_module *module, const char *path)
{
    TH__CHECK_PENDING_NULL();
    if (!th__module_check(module, __func__)) return NULL;
    th__tensor_entry *entry = find_entry(module, path, true, false);
    if (entry == NULL) TH__FAIL(TH_ERR_KEY, "%s has no parameter '%s'", module->name, path != NULL ? path : "NULL");
    return entry != NULL ? &entry->tensor : NULL;
}

size_t th_module_n_children(th_module *module)
{
    return module != NULL && th__module_check(module, __func__) ? module->n_children : 0;
}

th_module *th_module_child_at(th_module *module, size_t i, const char **name)
{
    TH__CHECK_PENDING_NULL();
    if (!th__module_check(module, __func__)) return NULL;
    if (i >= module->n_children) {
        TH__FAIL(TH_ERR_KEY, "child %zu of %s, which has %zu", i, module->name, module->n_children);
        return NULL;
    }
    if (name != NULL) *name = module->children[i].name;
    return module->children[i].module;
}

th_module *th_module_clone(th_module *module)
{
    TH__CHECK_PENDING_NULL();
    if (!th__module_check(module, __func__)) return NULL;
    if (module->args.clone != NULL) return module->args.clone(module);
    TH__FAIL(TH_ERR_NOT_IMPLEMENTED, "%s cannot be copied: it has no clone function", module->name);
    return NULL;
}
