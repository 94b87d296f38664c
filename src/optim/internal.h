/* optim/internal.h: the seam where Fabric's strategies and precisions get between th_optimizer_step and the optimizer. */
#ifndef FABRIC_OPTIM_INTERNAL_H
#define FABRIC_OPTIM_INTERNAL_H

#include <cfabric/optim.h>

/* Installed by fabric_setup. `step` is called instead of the optimizer's own; it calls th__optimizer_step_inner. `closure` may be
 * NULL. Returns the closure's result. */
typedef struct th__optimizer_wrapper {
    th_tensor *(*step)(th_optimizer *optimizer, void *wrapper, th_closure closure, void *user);
    th_value *(*state_dict)(th_optimizer *optimizer, void *wrapper);                       /* NULL: the plain one */
    th_status (*load_state_dict)(th_optimizer *optimizer, void *wrapper, th_value *state); /* NULL: the plain one */
    void (*free)(void *wrapper);
} th__optimizer_wrapper;

th_status th__optimizer_set_wrapper(th_optimizer *optimizer, const th__optimizer_wrapper *ops, void *wrapper);
void *th__optimizer_wrapper_of(th_optimizer *optimizer, const th__optimizer_wrapper **ops);
th_tensor *th__optimizer_step_inner(th_optimizer *optimizer, th_closure closure, void *user);
th_value *th__optimizer_state_dict_inner(th_optimizer *optimizer);
th_status th__optimizer_load_state_dict_inner(th_optimizer *optimizer, th_value *state);
/* "SGD", "AdamW": the class name; LBFGS cannot be combined with a scaler. */
const char *th__optimizer_class(th_optimizer *optimizer);
/* True for optimizers that do their whole step inside one fused operator and take grad_scale / found_inf themselves. */
bool th__optimizer_is_fused(th_optimizer *optimizer);
/* For fused optimizers under a GradScaler: the tensors that the next step gets, borrowed; NULL after it. */
void th__optimizer_set_amp(th_optimizer *optimizer, th_tensor *grad_scale, th_tensor *found_inf);

#endif
