/* precision/precision.c: the precision object, the defaults of its slots, and the registry of names. */
#include "precision/internal.h"

#include "base/memory.h"
#include "base/object.h"
#include "base/plugin.h"
#include "base/registry.h"
#include "optim/internal.h"
#include <cfabric/autograd.h>
#include <stdlib.h>

struct fabric_precision {
    th__object object;
    const fabric_precision_ops *ops;
    void *self;
    fabric_strategy *strategy; /* borrowed */
};

static void destroy(void *object)
{
    fabric_precision *precision = object;
    if (TH__SLOT(precision->ops, free)) precision->ops->free(precision->self);
    free(precision);
}

static const th__class precision_class = {"precision", destroy};

/* Leaves the function with `failed` while an error is pending or when the argument is no precision. */
#define CHECK(failed)                                                                                                            \
    do {                                                                                                                         \
        if (th__pending() != TH_OK || !th__object_check(precision, &precision_class, __func__, "precision")) return (failed);    \
    } while (0)

fabric_precision *fabric_precision_new(const fabric_precision_ops *ops, void *self)
{
    TH__CHECK_PENDING_NULL();
    if (ops == NULL || ops->size < offsetof(fabric_precision_ops, class_name) || ops->name == NULL) {
        TH__FAIL(TH_ERR_VALUE, "the precision's table needs a size of sizeof(fabric_precision_ops) and a name");
        return NULL;
    }
    if (!TH__SLOT(ops, forward_enter) != !TH__SLOT(ops, forward_exit)) {
        TH__FAIL(TH_ERR_VALUE, "precision '%s' must define both forward_enter and forward_exit, or none", ops->name);
        return NULL;
    }
    fabric_precision *precision = th__object_new(&precision_class, sizeof *precision);
    if (precision == NULL) return NULL;
    precision->ops = ops;
    precision->self = self;
    return precision;
}

fabric_precision *fabric_precision_retain(fabric_precision *precision) { return th__retain(precision); }
void fabric_precision_free(fabric_precision *precision) { th__release(precision); }
void *fabric_precision_self(fabric_precision *precision) { return precision != NULL ? precision->self : NULL; }

const fabric_precision_ops *fabric_precision_ops_of(fabric_precision *precision)
{
    return precision != NULL ? precision->ops : NULL;
}

void fabric__precision_bind(fabric_precision *precision, fabric_strategy *strategy)
{
    if (precision != NULL) precision->strategy = strategy;
}

fabric_strategy *fabric__precision_strategy(fabric_precision *precision)
{
    return precision != NULL ? precision->strategy : NULL;
}

const char *fabric_precision_name(fabric_precision *precision)
{
    CHECK("");
    return precision->ops->name;
}

bool fabric_precision_requires_fabric_backward(fabric_precision *precision)
{
    CHECK(false);
    return TH__SLOT(precision->ops, requires_fabric_backward);
}

th_status fabric_precision_convert_module(fabric_precision *precision, th_module *module)
{
    CHECK(th__pending());
    return TH__SLOT(precision->ops, convert_module) ? precision->ops->convert_module(precision, module) : TH_OK;
}

th_tensor *fabric_precision_convert_input(fabric_precision *precision, th_tensor *tensor)
{
    CHECK(NULL);
    return TH__SLOT(precision->ops, convert_input) ? precision->ops->convert_input(precision, tensor) : tensor;
}

th_tensor *fabric_precision_convert_output(fabric_precision *precision, th_tensor *tensor)
{
    CHECK(NULL);
    return TH__SLOT(precision->ops, convert_output) ? precision->ops->convert_output(precision, tensor) : tensor;
}

th_status fabric_precision_forward_enter(fabric_precision *precision, fabric_context *context)
{
    *context = (fabric_context){0};
    CHECK(th__pending());
    return TH__SLOT(precision->ops, forward_enter) ? precision->ops->forward_enter(precision, context) : TH_OK;
}

void fabric_precision_forward_exit(fabric_precision *precision, const fabric_context *context)
{
    if (precision != NULL && TH__SLOT(precision->ops, forward_exit)) precision->ops->forward_exit(precision, context);
}

th_dtype fabric_precision_init_dtype(fabric_precision *precision)
{
    CHECK(TH_DTYPE_NONE);
    return TH__SLOT(precision->ops, init_dtype) ? precision->ops->init_dtype(precision) : TH_DTYPE_NONE;
}

th_status fabric_precision_pre_backward(fabric_precision *precision, th_tensor *tensor, th_module *module)
{
    CHECK(th__pending());
    return TH__SLOT(precision->ops, pre_backward) ? precision->ops->pre_backward(precision, tensor, module) : TH_OK;
}

th_status fabric_precision_backward(fabric_precision *precision, th_module *module, const struct th_backward_args *args)
{
    CHECK(th__pending());
    return TH__SLOT(precision->ops, backward) ? precision->ops->backward(precision, module, args) : th_backward_call(*args);
}

th_status fabric_precision_post_backward(fabric_precision *precision, th_tensor *tensor, th_module *module)
{
    CHECK(th__pending());
    return TH__SLOT(precision->ops, post_backward) ? precision->ops->post_backward(precision, tensor, module) : TH_OK;
}

th_tensor *fabric_precision_optimizer_step(fabric_precision *precision, th_optimizer *optimizer, th_closure closure, void *user)
{
    CHECK(NULL);
    return TH__SLOT(precision->ops, optimizer_step) ? precision->ops->optimizer_step(precision, optimizer, closure, user)
                                                    : th__optimizer_step_inner(optimizer, closure, user);
}

th_status fabric_precision_unscale_gradients(fabric_precision *precision, th_optimizer *optimizer)
{
    CHECK(th__pending());
    return TH__SLOT(precision->ops, unscale_gradients) ? precision->ops->unscale_gradients(precision, optimizer) : TH_OK;
}

th_value *fabric_precision_state_dict(fabric_precision *precision)
{
    CHECK(NULL);
    return TH__SLOT(precision->ops, state_dict) ? precision->ops->state_dict(precision) : th_value_dict();
}

th_status fabric_precision_load_state_dict(fabric_precision *precision, th_value *state)
{
    CHECK(th__pending());
    return TH__SLOT(precision->ops, load_state_dict) ? precision->ops->load_state_dict(precision, state) : TH_OK;
}

th_dtype fabric_precision_compute_dtype(fabric_precision *precision)
{
    CHECK(TH_DTYPE_NONE);
    return TH__SLOT(precision->ops, compute_dtype) ? precision->ops->compute_dtype(precision) : TH_FLOAT32;
}

th_status fabric_precision_teardown(fabric_precision *precision)
{
    if (precision == NULL) return th__pending();
    return TH__SLOT(precision->ops, teardown) ? precision->ops->teardown(precision) : th__pending();
}

/* ---- names, in upstream's order */

#define ENTRY(id, text, about, make, preset_)                                                                                    \
    static const fabric_precision_entry id = {                                                                                   \
        .size = sizeof(fabric_precision_entry), .name = (text), .description = (about), .create = (make), .preset = (preset_)}
ENTRY(te, "transformer-engine", "8-bit floats through NVIDIA's Transformer Engine", fabric__precision_unavailable,
      "transformer-engine");
ENTRY(te16, "transformer-engine-float16", "the same with float16 weights", fabric__precision_unavailable,
      "transformer-engine-float16");
ENTRY(half16, "16-true", "everything in float16", fabric__precision_half, "16-true");
ENTRY(mixed16, "16-mixed", "float32 weights, autocast to float16, scaled losses", fabric__precision_mixed, "16-mixed");
ENTRY(halfbf16, "bf16-true", "everything in bfloat16", fabric__precision_half, "bf16-true");
ENTRY(mixedbf16, "bf16-mixed", "float32 weights, autocast to bfloat16", fabric__precision_mixed, "bf16-mixed");
ENTRY(full, "32-true", "everything in float32", fabric__precision_full, NULL);
ENTRY(double64, "64-true", "everything in float64", fabric__precision_double, NULL);
ENTRY(bitsandbytes, "bitsandbytes", "4- and 8-bit weights through bitsandbytes", fabric__precision_unavailable, "bitsandbytes");

static const th__registry_item built_in[] = {
    {"transformer-engine", &te, NULL},
    {"transformer-engine-float16", &te16, NULL},
    {"16-true", &half16, NULL},
    {"16-mixed", &mixed16, NULL},
    {"bf16-true", &halfbf16, NULL},
    {"bf16-mixed", &mixedbf16, NULL},
    {"32-true", &full, NULL},
    {"64-true", &double64, NULL},
    {"bitsandbytes", &bitsandbytes, NULL},
};
static th__registry registry = TH__REGISTRY("precision", built_in);

th_status fabric_precision_register(const fabric_precision_entry *entry)
{
    TH__CHECK_PENDING();
    if (entry == NULL || entry->size < offsetof(fabric_precision_entry, preset) || entry->create == NULL)
        return TH__FAIL(TH_ERR_VALUE, "a precision's entry needs a size of sizeof(fabric_precision_entry), a name and create");
    return th__registry_add(&registry, entry->name, entry, entry->description, TH__SLOT(entry, override));
}

th_status fabric_precision_unregister(const char *name)
{
    TH__CHECK_PENDING();
    return th__registry_remove(&registry, name);
}

fabric_precision *fabric_precision_create(const char *name, th_device_type device)
{
    TH__CHECK_PENDING_NULL();
    const fabric_precision_entry *entry = th__registry_get(&registry, name);
    if (entry == NULL) return NULL;
    fabric_precision *precision = entry->create(TH__SLOT(entry, preset) ? entry->preset : NULL, device);
    if (precision == NULL && th__pending() == TH_OK) TH__FAIL(TH_ERR_RUNTIME, "precision '%s' could not be made", name);
    return precision;
}

const char *fabric_precision_registered(size_t i)
{
    enum { MAX = 64 };
    const char *names[MAX];
    size_t n = th__registry_names(&registry, names, MAX);
    return i < n && i < MAX ? names[i] : NULL;
}
