/* precision/internal.h: the built-in precisions, and what strategies and the connector do with them behind the tables. */
#ifndef FABRIC_PRECISION_INTERNAL_H
#define FABRIC_PRECISION_INTERNAL_H

#include "base/error.h"
#include <cfabric/plugin/precision.h>

/* Tells a precision which strategy it works under: overflow flags are combined over its ranks. Borrowed; NULL ends it. */
void fabric__precision_bind(fabric_precision *precision, fabric_strategy *strategy);
fabric_strategy *fabric__precision_strategy(fabric_precision *precision);
/* True between an unscale that found infinite or NaN gradients of this optimizer and the (then skipped) step. Clipping need not
 * complain about a norm that is not finite then. */
bool fabric__precision_found_overflow(fabric_precision *precision, th_optimizer *optimizer);

/* The tensor in another dtype if it is floating point, else itself. [scoped] or the tensor itself */
th_tensor *fabric__convert_floating(th_tensor *tensor, th_dtype dtype);
/* The default dtype as a context: slot[0] keeps the old one. */
th_status fabric__default_dtype_enter(th_dtype dtype, fabric_context *context);
void fabric__default_dtype_exit(const fabric_context *context);

fabric_precision *fabric__precision_full(const char *preset, th_device_type device);
fabric_precision *fabric__precision_double(const char *preset, th_device_type device);
fabric_precision *fabric__precision_half(const char *preset, th_device_type device);
fabric_precision *fabric__precision_mixed(const char *preset, th_device_type device);
fabric_precision *fabric__precision_unavailable(const char *preset, th_device_type device);

#endif
