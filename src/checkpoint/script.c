/* checkpoint/script.c: TorchScript files as modules: the scripted code runs in libtorch, its tensors hang in an ordinary module
 * tree, so optimizers, state dicts and fabric_setup see them like any other's. */
#include "base/fs.h"
#include "bridge/jit.h"
#include "nn/module_impl.h"
#include <cfabric/autograd.h>
#include <cfabric/checkpoint.h>

#include <stdlib.h>
#include <string.h>

static void free_script(void *data) { th__script_free(data); }

static th_tensors run(th_module *self, th_tensors inputs)
{
    th__script *script = th_module_data(self);
    if (th__script_is_training(script) != th_is_training(self)) th__script_train(script, th_is_training(self));
    return th__script_forward(script, inputs);
}

/* Submodules only hold their tensors: the root runs everything. */
static th_tensors run_part(th_module *self, th_tensors inputs)
{
    (void)inputs;
    TH__FAIL(TH_ERR_NOT_IMPLEMENTED, "'%s' is a part of a TorchScript module; only the whole module can be called",
             th_module_class(self));
    return (th_tensors){NULL, 0};
}

static th_module *child_of(th_module *parent, const char *name, size_t length)
{
    for (size_t i = 0; i < th_module_n_children(parent); i++) {
        const char *have;
        th_module *child = th_module_child_at(parent, i, &have);
        if (strlen(have) == length && memcmp(have, name, length) == 0) return child;
    }
    char *copy = th__strfmt("%.*s", (int)length, name);
    th_module *child = copy == NULL ? NULL : th_register_module(parent, copy, th_module_new("ScriptPart", .forward_n = run_part));
    free(copy);
    return child;
}

static int add_tensor(const char *path, bool is_buffer, th_tensor *tensor, void *user)
{
    th_module *module = user;
    for (const char *dot; module != NULL && (dot = strchr(path, '.')) != NULL; path = dot + 1)
        module = child_of(module, path, (size_t)(dot - path));
    if (module == NULL) return -1;
    bool grad = th_requires_grad(tensor);
    th_tensor *mine = is_buffer ? th_register_buffer(module, path, tensor, true) : th_register_parameter(module, path, tensor);
    if (mine != NULL && !is_buffer) th_requires_grad_(mine, grad); /* what was frozen stays frozen */
    return th__pending() == TH_OK ? 0 : -1;
}

th_module *th_nn_script_load(const char *path)
{
    TH__CHECK_PENDING_NULL();
    TH_SCOPE();
    if (path == NULL || !th__is_file(path)) {
        TH__FAIL(TH_ERR_NOT_FOUND, "there is no file '%s'", path != NULL ? path : "(NULL)");
        return NULL;
    }
    th__script *script = th__script_load(path);
    if (script == NULL) {
        th__error_context("'%s' cannot be opened as a TorchScript module", path);
        return NULL;
    }
    char *name = th__script_class(script);
    th_module *module = name == NULL ? NULL : th_module_new(name, .data = script, .forward_n = run, .free_data = free_script);
    free(name);
    if (module == NULL) {
        th__script_free(script);
        return NULL;
    }
    if (th__script_each(script, add_tensor, module) == 0 && th__pending() == TH_OK) {
        th_train(module, th__script_is_training(script));
        return module;
    }
    th_module_free(module);
    return NULL;
}

th_status th_nn_script_save(th_module *module, const char *path)
{
    TH__CHECK_PENDING();
    if (!th__module_check(module, __func__)) return th__pending();
    if (module->args.forward_n != run)
        return TH__FAIL(TH_ERR_TYPE, "'%s' was not loaded by th_nn_script_load, so there is no TorchScript to save",
                        module->name);
    th__script *script = module->args.data;
    if (path == NULL || path[0] == '\0') return TH__FAIL(TH_ERR_VALUE, "the path is missing");
    th__script_train(script, th_is_training(module));
    size_t size;
    char *bytes = th__script_serialize(script, &size);
    th_status status = bytes == NULL ? th__pending() : th__write_file(path, bytes, size);
    free(bytes);
    return status;
}
