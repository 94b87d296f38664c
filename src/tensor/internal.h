/* tensor/internal.h: what the C rooms above may know about handles and scopes. */
#ifndef FABRIC_TENSOR_INTERNAL_H
#define FABRIC_TENSOR_INTERNAL_H

#include "base/error.h"
#include <cfabric/scope.h>

/* Memory that ends with the innermost scope. NULL with TH_ERR_MEMORY. */
void *th__scope_alloc(size_t size);
/* True when the tensor belongs to this thread's innermost scope: ending it early cannot take it from anybody outside. */
bool th__scope_holds(const th_tensor *tensor);
/* True once this process has made a tensor: a fork without exec is unsafe from then on. */
bool th__tensors_have_run(void);
/* Checks that a handle is live; raises TH_ERR_TYPE ("used after its scope ended", "NULL tensor") naming function and argument. */
bool th__tensor_check(const th_tensor *tensor, const char *function, const char *argument);

/* The device and dtype that new parameters get inside fabric_init_module (none: CPU, default dtype), and whether initialisers are
 * skipped. Thread-local; set through th__init_context_swap, which returns the old one. */
typedef struct th__init_context { th_device device; th_dtype dtype; bool skip_init; } th__init_context;
th__init_context th__init_context_get(void);
th__init_context th__init_context_swap(th__init_context next);

/* Whether the libtorch that runs is at least major.minor: where PyTorch's own algorithms changed from one to the next. */
bool th__torch_at_least(int major, int minor);

#endif
