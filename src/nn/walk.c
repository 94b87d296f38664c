/* nn/walk.c: visiting the tree: modules, parameters and buffers by name, train, apply, requires_grad, zero_grad. */
#include "nn/module_impl.h"

#include <stdlib.h>

char *th__module_join(const char *prefix, const char *name)
{
    return prefix[0] == '\0' ? th__strdup(name) : th__strfmt("%s.%s", prefix, name);
}

bool th__module_contains(th_module *tree, const th_module *module)
{
    if (tree == module) return true;
    for (size_t i = 0; i < tree->n_children; i++)
        if (th__module_contains(tree->children[i].module, module)) return true;
    return false;
}

/* Modules seen so far: a module that is registered in two places is visited once, as in PyTorch. */
typedef struct seen {
    th_module **items;
    size_t count, capacity;
} seen;

static int walk(th_module *module, const char *path, seen *visited, th__module_visitor visit, void *user)
{
    for (size_t i = 0; i < visited->count; i++)
        if (visited->items[i] == module) return 0;
    if (TH__PUSH(visited->items, visited->count, visited->capacity, module) != 0) return -1;
    int result = visit(path, module, user);
    for (size_t i = 0; i < module->n_children && result == 0; i++) {
        char *name = th__module_join(path, module->children[i].name);
        result = name != NULL ? walk(module->children[i].module, name, visited, visit, user) : -1;
        free(name);
    }
    return result;
}

int th__module_walk(th_module *module, th__module_visitor visit, void *user)
{
    seen visited = {NULL, 0, 0};
    int result = walk(module, "", &visited, visit, user);
    free(visited.items);
    return result;
}

int th_named_modules(th_module *module, int (*fn)(const char *name, th_module *module, void *user), void *user)
{
    if (th__pending() != TH_OK || !th__module_check(module, __func__)) return th__pending();
    return th__module_walk(module, fn, user);
}

/* ---------------------------------------------------------------- tensors */

typedef struct tensor_walk {
    bool buffers;
    th_tensor **items; /* distinct tensors seen so far */
    size_t count, capacity;
    int (*fn)(const char *name, th_tensor *tensor, void *user);
    void *user;
} tensor_walk;

static bool is_known(const tensor_walk *state, const th_tensor *tensor)
{
    for (size_t i = 0; i < state->count; i++)
        if (th_is_same(state->items[i], tensor)) return true;
    return false;
}

static int visit_tensors(const char *path, th_module *module, void *user)
{
    tensor_walk *state = user;
    const th__tensor_table *table = state->buffers ? &module->buffers : &module->parameters;
    for (size_t i = 0; i < table->count; i++) {
        th_tensor *tensor = table->items[i].tensor;
        if (tensor == NULL || is_known(state, tensor)) continue;
        if (TH__PUSH(state->items, state->count, state->capacity, tensor) != 0) return -1;
        if (state->fn == NULL) continue;
        char *name = th__module_join(path, table->items[i].name);
        int result = name != NULL ? state->fn(name, tensor, state->user) : -1;
        free(name);
        if (result != 0) return result;
    }
    return 0;
}

static int named_tensors(th_module *module, bool buffers, const char *function,
                         int (*fn)(const char *name, th_tensor *tensor, void *user), void *user)
{
    if (th__pending() != TH_OK || !th__module_check(module, function)) return th__pending();
    tensor_walk state = {.buffers = buffers, .fn = fn, .user = user};
    int result = th__module_walk(module, visit_tensors, &state);
    free(state.items);
    return result;
}

int th_named_parameters(th_module *module, int (*fn)(const char *name, th_tensor *tensor, void *user), void *user)
{
    return named_tensors(module, false, __func__, fn, user);
}

int th_named_buffers(th_module *module, int (*fn)(const char *name, th_tensor *tensor, void *user), void *user)
{
    return named_tensors(module, true, __func__, fn, user);
}

static th_tensors all_tensors(th_module *module, bool buffers, const char *function)
{
    static th_tensor *const none[] = {NULL};
    th_tensors list = {none, 0};
    if (th__pending() != TH_OK || !th__module_check(module, function)) return list;
    tensor_walk state = {.buffers = buffers};
    if (th__module_walk(module, visit_tensors, &state) == 0 && state.count > 0)
        list = th_list((th_tensors){state.items, state.count});
    free(state.items);
    return list;
}

th_tensors th_parameters(th_module *module) { return all_tensors(module, false, __func__); }

th_tensors th_buffers(th_module *module) { return all_tensors(module, true, __func__); }

/* ---------------------------------------------------------------- modes */

static void set_training(th_module *module, bool mode)
{
    module->training = mode;
    for (size_t i = 0; i < module->n_children; i++) set_training(module->children[i].module, mode);
}

void th_train(th_module *module, bool mode)
{
    if (th__pending() == TH_OK && th__module_check(module, __func__)) set_training(module, mode);
}

void th_eval(th_module *module) { th_train(module, false); }

bool th_is_training(th_module *module) { return module != NULL && th__module_check(module, __func__) && module->training; }

static int clear_grad(const char *name, th_tensor *tensor, void *user)
{
    (void)name;
    (void)user;
    if (th_has_grad(tensor)) th_set_grad(tensor, NULL);
    return th__pending();
}

void th_module_zero_grad(th_module *module) { named_tensors(module, false, __func__, clear_grad, NULL); }

static int set_requires_grad(const char *name, th_tensor *tensor, void *user)
{
    (void)name;
    th_dtype dtype = th_dtype_of(tensor);
    if (th_dtype_is_floating_point(dtype) || th_dtype_is_complex(dtype)) th_requires_grad_(tensor, *(const bool *)user);
    return th__pending();
}

void th_module_requires_grad_(th_module *module, bool requires_grad)
{
    named_tensors(module, false, __func__, set_requires_grad, &requires_grad);
}

th_status th_module_apply(th_module *module, th_status (*fn)(th_module *module, void *user), void *user)
{
    TH__CHECK_PENDING();
    if (!th__module_check(module, __func__)) return th__pending();
    for (size_t i = 0; i < module->n_children; i++) TH__TRY(th_module_apply(module->children[i].module, fn, user));
    th_status status = fn(module, user);
    if (status != TH_OK && th__pending() == TH_OK)
        return TH__FAIL(TH_ERR_CALLBACK, "the function applied to %s returned %s", module->name, th_status_name(status));
    return th__pending();
}

th_status th_module_reset_parameters(th_module *module)
{
    TH__CHECK_PENDING();
    if (!th__module_check(module, __func__)) return th__pending();
    if (module->args.reset_parameters == NULL) return TH_OK;
    TH_SCOPE();
    th_status status = module->args.reset_parameters(module);
    if (status != TH_OK && th__pending() == TH_OK)
        return TH__FAIL(TH_ERR_CALLBACK, "reset_parameters of %s returned %s", module->name, th_status_name(status));
    return th__pending();
}
