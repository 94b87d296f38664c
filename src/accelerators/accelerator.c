/* accelerators/accelerator.c: the accelerator object, the defaults of its slots, and the registry of names. */
#include "accelerators/internal.h"

#include "base/memory.h"
#include "base/object.h"
#include "base/plugin.h"
#include "base/registry.h"
#include "base/strings.h"
#include <stdlib.h>
#include <string.h>

struct fabric_accelerator {
    th__object object;
    const fabric_accelerator_ops *ops;
    void *self;
};

static void destroy(void *object)
{
    fabric_accelerator *accelerator = object;
    if (TH__SLOT(accelerator->ops, free)) accelerator->ops->free(accelerator->self);
    free(accelerator);
}

static const th__class accelerator_class = {"accelerator", destroy};

/* Leaves the function with `failed` while an error is pending or when the argument is no accelerator. */
#define CHECK(failed)                                                                                                            \
    do {                                                                                                                         \
        if (th__pending() != TH_OK || !th__object_check(accelerator, &accelerator_class, __func__, "accelerator"))               \
            return (failed);                                                                                                     \
    } while (0)

fabric_accelerator *fabric_accelerator_new(const fabric_accelerator_ops *ops, void *self)
{
    TH__CHECK_PENDING_NULL();
    if (ops == NULL || ops->size < offsetof(fabric_accelerator_ops, is_available) || ops->name == NULL) {
        TH__FAIL(TH_ERR_VALUE, "the accelerator's table needs a size of sizeof(fabric_accelerator_ops) and a name");
        return NULL;
    }
    if (!TH__SLOT(ops, device_type)) {
        TH__FAIL(TH_ERR_VALUE, "accelerator '%s' must give a device_type", ops->name);
        return NULL;
    }
    fabric_accelerator *accelerator = th__object_new(&accelerator_class, sizeof *accelerator);
    if (accelerator == NULL) return NULL;
    accelerator->ops = ops;
    accelerator->self = self;
    return accelerator;
}

fabric_accelerator *fabric_accelerator_retain(fabric_accelerator *accelerator) { return th__retain(accelerator); }
void fabric_accelerator_free(fabric_accelerator *accelerator) { th__release(accelerator); }
void *fabric_accelerator_self(fabric_accelerator *accelerator) { return accelerator != NULL ? accelerator->self : NULL; }

const fabric_accelerator_ops *fabric_accelerator_ops_of(fabric_accelerator *accelerator)
{
    return accelerator != NULL ? accelerator->ops : NULL;
}

const char *fabric_accelerator_name(fabric_accelerator *accelerator) { return accelerator != NULL ? accelerator->ops->name : ""; }

static const char *class_name(fabric_accelerator *accelerator)
{
    return TH__SLOT(accelerator->ops, class_name) ? accelerator->ops->class_name : accelerator->ops->name;
}

bool fabric_accelerator_is_available(fabric_accelerator *accelerator)
{
    CHECK(false);
    return !TH__SLOT(accelerator->ops, is_available) || accelerator->ops->is_available(accelerator);
}

const char *fabric_accelerator_unavailable_reason(fabric_accelerator *accelerator)
{
    CHECK("");
    return TH__SLOT(accelerator->ops, unavailable_reason) ? accelerator->ops->unavailable_reason(accelerator)
                                                          : "no such hardware was found";
}

int fabric_accelerator_auto_device_count(fabric_accelerator *accelerator)
{
    CHECK(-1);
    return TH__SLOT(accelerator->ops, auto_device_count) ? accelerator->ops->auto_device_count(accelerator) : 1;
}

/* N equal devices, as the CPU has them. */
static int parse_count(fabric_accelerator *accelerator, const char *devices, th_device *out, size_t capacity)
{
    int64_t n;
    if (devices == NULL || !th__parse_int(devices, &n) || n <= 0 || n > INT16_MAX || strpbrk(devices, "+-") != NULL)
        return TH__FAIL(TH_ERR_TYPE, "devices='%s' is not possible with %s; expected a whole number > 0",
                        devices != NULL ? devices : "(null)", class_name(accelerator));
    th_device_type type = accelerator->ops->device_type;
    for (size_t i = 0; i < (size_t)n && i < capacity; i++) out[i] = TH_DEVICE(type, type == TH_DEVICE_CPU ? -1 : (int)i);
    return (int)n;
}

int fabric_accelerator_parse_devices(fabric_accelerator *accelerator, const char *devices, th_device *out, size_t capacity)
{
    CHECK(th__pending());
    if (!TH__SLOT(accelerator->ops, parse_devices)) return parse_count(accelerator, devices, out, capacity);
    int n = accelerator->ops->parse_devices(accelerator, devices, out, capacity);
    if (n < 0 && th__pending() == TH_OK)
        return TH__FAIL(TH_ERR_VALUE, "devices='%s' is not possible with %s", devices != NULL ? devices : "(null)",
                        class_name(accelerator));
    return th__pending() == TH_OK ? n : th__pending();
}

th_status fabric_accelerator_setup_device(fabric_accelerator *accelerator, th_device device)
{
    CHECK(th__pending());
    return TH__SLOT(accelerator->ops, setup_device) ? accelerator->ops->setup_device(accelerator, device) : TH_OK;
}

/* Also while an error is pending: a failing program gives its memory back too. */
th_status fabric_accelerator_teardown(fabric_accelerator *accelerator)
{
    if (accelerator == NULL) return th__pending();
    return TH__SLOT(accelerator->ops, teardown) ? accelerator->ops->teardown(accelerator) : th__pending();
}

/* ---- names */

static const th__registry_item built_in[] = {
    {"cpu", &fabric__accelerator_cpu, "the processor"},
    {"cuda", &fabric__accelerator_cuda, "NVIDIA GPUs"},
    {"mps", &fabric__accelerator_mps, "the GPU of Apple silicon"},
    {"tpu", &fabric__accelerator_tpu, "TPUs through PyTorch/XLA"},
};
static th__registry registry = TH__REGISTRY("accelerator", built_in);

th_status fabric_accelerator_register(const fabric_accelerator_entry *entry)
{
    TH__CHECK_PENDING();
    if (entry == NULL || entry->size < offsetof(fabric_accelerator_entry, preset) || entry->create == NULL)
        return TH__FAIL(TH_ERR_VALUE,
                        "an accelerator's entry needs a size of sizeof(fabric_accelerator_entry), a name and create");
    return th__registry_add(&registry, entry->name, entry, entry->description, TH__SLOT(entry, override));
}

th_status fabric_accelerator_unregister(const char *name)
{
    TH__CHECK_PENDING();
    return th__registry_remove(&registry, name);
}

fabric_accelerator *fabric_accelerator_create(const char *name)
{
    TH__CHECK_PENDING_NULL();
    const fabric_accelerator_entry *entry = th__registry_get(&registry, name);
    if (entry == NULL) return NULL;
    fabric_accelerator *accelerator = entry->create(TH__SLOT(entry, preset) ? entry->preset : NULL);
    if (accelerator == NULL && th__pending() == TH_OK) TH__FAIL(TH_ERR_RUNTIME, "accelerator '%s' could not be made", name);
    return accelerator;
}

const char *fabric_accelerator_registered(size_t i)
{
    enum { MAX = 64 };
    const char *names[MAX];
    size_t n = th__registry_names(&registry, names, MAX);
    return i < n && i < MAX ? names[i] : NULL;
}
