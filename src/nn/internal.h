/* nn/internal.h: the seam where Fabric's strategies and precisions get between th_forward and a module. */
#ifndef FABRIC_NN_INTERNAL_H
#define FABRIC_NN_INTERNAL_H

#include <cfabric/nn.h>

/* Installed on a module by fabric_setup. `forward` is called instead of the module's own; it calls th__module_forward_inner. */
typedef struct th__module_wrapper {
    th_tensors (*forward)(th_module *module, void *wrapper, th_tensors inputs);
    void (*free)(void *wrapper);
} th__module_wrapper;

/* One wrapper per module; setting a second one is TH_ERR_VALUE. NULL ops removes it (and frees it). */
th_status th__module_set_wrapper(th_module *module, const th__module_wrapper *ops, void *wrapper);
/* The wrapper's data, NULL when the module is not wrapped. */
void *th__module_wrapper_of(th_module *module, const th__module_wrapper **ops);
/* The module's own forward with its hooks and scope, without the wrapper. */
th_tensors th__module_forward_inner(th_module *module, th_tensors inputs);
/* The registered handle slot of a parameter, for strategies that replace parameters (sharding). */
th_tensor **th__module_parameter_slot(th_module *module, const char *path);

#endif
