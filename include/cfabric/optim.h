/* cfabric/optim.h: optimizers. The base is here; the built-in ones are in <cfabric/optimizers.h>, schedulers in <cfabric/schedulers.h>. */
#ifndef CFABRIC_OPTIM_H
#define CFABRIC_OPTIM_H

#include <cfabric/scope.h>
#include <cfabric/value.h>

TH_BEGIN_DECLS

/** A closure re-evaluates the model and returns the loss. [scoped] */
typedef th_tensor *(*th_closure)(void *user);

/** optimizer.zero_grad(set_to_none=True). */
FABRIC_API th_status th_optimizer_zero_grad(th_optimizer *optimizer);
/** optimizer.step(). Under Fabric it goes through the strategy and the precision. */
FABRIC_API th_status th_optimizer_step(th_optimizer *optimizer);
/** optimizer.step(closure): returns the closure's loss. [scoped] */
FABRIC_API th_tensor *th_optimizer_step_closure(th_optimizer *optimizer, th_closure closure, void *user);

FABRIC_API size_t th_optimizer_n_groups(th_optimizer *optimizer);
/** Parameters of one group. [scoped] list, tensors [borrowed] from the optimizer */
FABRIC_API th_tensors th_optimizer_params(th_optimizer *optimizer, size_t group);
/** A hyperparameter by PyTorch's name ("lr", "momentum", "betas" through .0 and .1). Missing is a KeyError, NaN returned. */
FABRIC_API double th_optimizer_get(th_optimizer *optimizer, size_t group, const char *name);
FABRIC_API th_status th_optimizer_set(th_optimizer *optimizer, size_t group, const char *name, double value);
/** The rate of group 0. */
FABRIC_API double th_optimizer_lr(th_optimizer *optimizer);

/** PyTorch's form: {"state": {0: {...}}, "param_groups": [{..., "params": [0, 1]}]}. Tensors are shared. [owned] */
FABRIC_API th_value *th_optimizer_state_dict(th_optimizer *optimizer);
FABRIC_API th_status th_optimizer_load_state_dict(th_optimizer *optimizer, th_value *state);

FABRIC_API th_optimizer *th_optimizer_retain(th_optimizer *optimizer);
/** NULL is allowed. */
FABRIC_API void th_optimizer_free(th_optimizer *optimizer);

TH_END_DECLS
#endif
