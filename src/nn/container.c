/* nn/container.c: Sequential and ModuleList. */
#include <cfabric/nn_modules.h>

#include "nn/module_impl.h"
#include <string.h>

/* Each layer's input ends as soon as the layer has run, unless it is the caller's, or the layer gave it back. What autograd needs
 * of it lives on in the graph. Tensors of outer scopes are never touched. */
static th_tensor *sequential_forward(th_module *self, th_tensor *input)
{
    th_tensor *current = input;
    for (size_t i = 0; i < self->n_children; i++) {
        th_tensor *next = th_forward_call(self->children[i].module, (th_tensors){&current, 1});
        if (next == NULL) return NULL;
        if (next != current && th__scope_holds(current)) th_drop(current);
        current = next;
    }
    return current;
}

static th_tensor *list_forward(th_module *self, th_tensor *input)
{
    (void)input;
    th__fail(TH_ERR_NOT_IMPLEMENTED, "th_forward", "%s has no forward: call its modules one by one", self->name);
    return NULL;
}

static th_module *fill(th_module *container, th_modules modules)
{
    for (size_t i = 0; i < modules.size; i++) {
        if (container != NULL && th__pending() == TH_OK && modules.data[i] == NULL)
            th__fail(TH_ERR_TYPE, container->name, "module %zu is NULL, expected a module", i);
        if (container != NULL && th__pending() == TH_OK)
            th_nn_append(container, modules.data[i]);
        else
            th_module_free(modules.data[i]);
    }
    if (th__pending() == TH_OK) return container;
    th_module_free(container);
    return NULL;
}

th_module *th_nn_sequential_call(th_modules modules)
{
    return fill(TH__BUILTIN(NULL, 0, "Sequential", .forward = sequential_forward), modules);
}

th_module *th_nn_module_list_call(th_modules modules)
{
    return fill(TH__BUILTIN(NULL, 0, "ModuleList", .forward = list_forward), modules);
}

th_module *th_nn_append(th_module *container, th_module *module)
{
    char name[32] = "";
    if (th__pending() == TH_OK && th__module_check(container, __func__))
        snprintf(name, sizeof name, "%zu", container->n_children);
    return th_register_module(container, name, module);
}
