/* nn/module_impl.h: the module object as the files of this room see it, and what they share. */
#ifndef FABRIC_NN_MODULE_IMPL_H
#define FABRIC_NN_MODULE_IMPL_H

#include "base/error.h"
#include "base/memory.h"
#include "base/object.h"
#include "nn/internal.h"
#include "tensor/internal.h"
#include <cfabric/autograd.h>
#include <stdio.h>

typedef struct th__tensor_entry {
    char *name;
    th_tensor *tensor; /* owned handle; NULL for a parameter or buffer registered as absent */
    bool persistent;   /* buffers only */
} th__tensor_entry;

typedef struct th__tensor_table {
    th__tensor_entry *items;
    size_t count, capacity;
} th__tensor_table;

typedef struct th__child_entry {
    char *name;
    th_module *module; /* one reference */
} th__child_entry;

typedef struct th__pre_hook_entry {
    th_forward_pre_hook call;
    void *user;
} th__pre_hook_entry;
typedef struct th__post_hook_entry {
    th_forward_hook call;
    void *user;
} th__post_hook_entry;

struct th_module {
    th__object object;
    char *name;
    struct th_module_args args; /* its texts point into this object */
    char *extra_repr;
    bool training;
    th__tensor_table parameters, buffers;
    th__child_entry *children;
    size_t n_children, children_capacity;
    th__pre_hook_entry *pre_hooks;
    size_t n_pre_hooks, pre_hooks_capacity;
    th__post_hook_entry *post_hooks;
    size_t n_post_hooks, post_hooks_capacity;
    const th__module_wrapper *wrapper_ops;
    void *wrapper;
};

extern const th__class th__module_class;

static inline bool th__module_check(const th_module *module, const char *function)
{
    return th__object_check(module, &th__module_class, function, "module");
}

/* ---- walk.c */

typedef int (*th__module_visitor)(const char *path, th_module *module, void *user);
/* Depth first, a module before its children, each module once. Stops with the visitor's first non-zero result; -1 when out of
 * memory. */
int th__module_walk(th_module *module, th__module_visitor visit, void *user);
/* True when `tree` is `module` or contains it. */
bool th__module_contains(th_module *tree, const th_module *module);
/* "prefix.name", or "name" when the prefix is empty. [owned] */
char *th__module_join(const char *prefix, const char *name);

/* move.c: gives `to`, built like `from`, copies of its tensors and its mode. */
th_status th__module_copy_state(th_module *to, const th_module *from);

/* ---- parameter.c: the one place where built-in modules get their tensors */

typedef struct th__factory {
    th_device device;
    th_dtype dtype;
} th__factory;
/* The device and dtype that torch.empty() would use here: the caller's, else the init context's, else CPU and the default dtype.
 */
th__factory th__factory_resolve(th_device device, th_dtype dtype);
/* torch.empty(sizes) registered as a parameter. [borrowed] */
th_tensor *th__parameter_new(th_module *module, const char *name, th_ints sizes, th__factory factory);
/* The same when `present`, else registers the name as absent. */
th_tensor *th__parameter_if(bool present, th_module *module, const char *name, th_ints sizes, th__factory factory);
/* torch.full(sizes, value) registered as a persistent buffer; a dtype other than NONE replaces the factory's. [borrowed] */
th_tensor *th__buffer_new(th_module *module, const char *name, th_ints sizes, double value, th_dtype dtype, th__factory factory);
/* The i-th registered parameter / buffer, NULL when absent. Built-in modules read their tensors only through these, so that
 * replaced ones (sharding, to_empty) are seen. */
static inline th_tensor *th__parameter_at(const th_module *module, size_t i) { return module->parameters.items[i].tensor; }
static inline th_tensor *th__buffer_at(const th_module *module, size_t i) { return module->buffers.items[i].tensor; }
/* While true on this thread, initialisers do nothing and consume no random numbers (cloning). Returns the old value. */
bool th__init_suspend(bool suspend);
bool th__init_is_suspended(void);

/* Linear's and the convolutions' initialisation of parameters 0 (weight) and 1 (bias, may be absent). */
th_status th__reset_kaiming(th_module *module);
/* Parameters 0 and 1 to one and zero, where present: the normalisation layers. */
th_status th__reset_affine(th_module *module);

/* A module of this room: `data` is a copy of `size` bytes of options, freed with the module. */
th_module *th__builtin_new(const struct th_module_args *args, const void *data, size_t size);
#define TH__BUILTIN(data, size, ...) th__builtin_new(&(struct th_module_args){.name = __VA_ARGS__}, (data), (size))
/* Runs reset_parameters; on failure frees the module and returns NULL. */
th_module *th__builtin_finish(th_module *module);

/* ---- repr.c: Python's text of numbers and tuples */

enum { TH__REPR_MAX = 512 };
/* Appends printf output to a text of at most TH__REPR_MAX bytes, cutting it if need be. */
void th__repr_add(char text[TH__REPR_MAX], const char *format, ...) FABRIC_PRINTF(2, 3);
/* repr(float): the shortest text that reads back as the same double. */
const char *th__repr_double(double value, char buffer[40]);
/* "(2, 2)", "(3,)"; `buffer` holds 256 bytes. */
const char *th__repr_tuple(const int64_t *values, size_t n, char buffer[256]);
static inline const char *th__repr_bool(bool value) { return value ? "True" : "False"; }

/* ---- between the files of built-in modules */

struct th_nn_linear_args;
/* A Linear that is printed under another class name. */
th_module *th__linear_named(const char *class_name, struct th_nn_linear_args args);

#endif
