/* fabric/connector_parts.c: choosing accelerator, devices, environment, strategy and precision where "auto" left it open. */
#include "fabric/connector_internal.h"

#include "base/memory.h"
#include "strategies/internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- accelerator */

bool fabric__accelerator_available(const char *name)
{
    const char *registered;
    for (size_t i = 0; (registered = fabric_accelerator_registered(i)) != NULL; i++) {
        if (strcmp(registered, name) != 0) continue;
        fabric_accelerator *accelerator = fabric_accelerator_create(name);
        bool available = fabric_accelerator_is_available(accelerator);
        fabric_accelerator_free(accelerator);
        return available;
    }
    return false;
}

static th_status not_available(fabric_accelerator *accelerator)
{
    const char *reason = fabric_accelerator_unavailable_reason(accelerator), *name;
    TH__CHECK_PENDING();
    char list[256] = "";
    for (size_t i = 0; (name = fabric_accelerator_registered(i)) != NULL; i++)
        if (fabric__accelerator_available(name) && strlen(list) + strlen(name) + 4 < sizeof list)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s'%s'", list[0] != '\0' ? ", " : "", name);
    return TH__FAIL(TH_ERR_UNAVAILABLE, "%s can not run on your system: %s. Available and accepted as .accelerator: [%s]",
                    fabric__accelerator_class(accelerator), reason, list);
}

th_status fabric__choose_accelerator(fabric__choices *choices)
{
    static const char *const preferred[] = {"tpu", "mps", "cuda"};
    if (choices->accelerator_object == NULL) {
        bool automatic = strcmp(choices->accelerator, "auto") == 0, gpu = strcmp(choices->accelerator, "gpu") == 0;
        const char *name = automatic ? "cpu" : gpu ? NULL : choices->accelerator;
        for (size_t i = gpu ? 1 : 0; (automatic || gpu) && i < 3; i++)
            if (fabric__accelerator_available(preferred[i])) {
                name = preferred[i];
                break;
            }
        TH__CHECK_PENDING();
        if (name == NULL)
            return TH__FAIL(TH_ERR_UNAVAILABLE, "accelerator 'gpu': no supported gpu backend found (neither MPS nor CUDA)");
        choices->accelerator_object = fabric_accelerator_create(name);
        if (choices->accelerator_object == NULL) return th__pending();
    }
    bool available = fabric_accelerator_is_available(choices->accelerator_object);
    TH__CHECK_PENDING();
    return available ? TH_OK : not_available(choices->accelerator_object);
}

static th_device_type device_type(const fabric__choices *choices)
{
    return fabric_accelerator_ops_of(choices->accelerator_object)->device_type;
}

/* ---- devices */

th_status fabric__choose_devices(fabric__choices *choices)
{
    char automatic[16];
    const char *devices = choices->devices;
    if (strcmp(devices, "auto") == 0) {
        int n = fabric_accelerator_auto_device_count(choices->accelerator_object);
        TH__CHECK_PENDING();
        snprintf(automatic, sizeof automatic, "%d", n);
        devices = automatic;
    }
    th_device first[64];
    int n = fabric_accelerator_parse_devices(choices->accelerator_object, devices, first, 64);
    TH__CHECK_PENDING();
    if (n < 1)
        return TH__FAIL(TH_ERR_VALUE, "fabric_new(.devices = \"%s\") is not a valid input using the %s accelerator",
                        choices->devices, fabric__accelerator_class(choices->accelerator_object));
    choices->parallel_devices = th__calloc((size_t)n, sizeof *choices->parallel_devices);
    if (choices->parallel_devices == NULL) return th__pending();
    choices->n_parallel_devices = (size_t)n;
    fabric_devices own = {NULL, 0};
    if (choices->strategy_object != NULL) own = fabric_strategy_parallel_devices(choices->strategy_object);
    if (own.size > 0) { /* the strategy's own devices win over what the flag says */
        th_device *copy = th__realloc(choices->parallel_devices, own.size, sizeof *copy);
        if (copy == NULL) return th__pending();
        memcpy(copy, own.data, own.size * sizeof *copy);
        choices->parallel_devices = copy;
        choices->n_parallel_devices = own.size;
        return TH_OK;
    }
    if (n <= 64)
        memcpy(choices->parallel_devices, first, (size_t)n * sizeof first[0]);
    else
        fabric_accelerator_parse_devices(choices->accelerator_object, devices, choices->parallel_devices, (size_t)n);
    return th__pending();
}

/* ---- environment */

th_status fabric__choose_environment(fabric__choices *choices)
{
    if (choices->environment == NULL) choices->environment = fabric_environment_detect();
    return th__pending();
}

/* ---- strategy */

static const char *automatic_strategy(const fabric__choices *choices)
{
    if (device_type(choices) == TH_DEVICE_XLA) return choices->n_parallel_devices > 1 ? "xla" : "single_xla";
    if (choices->num_nodes > 1 || choices->n_parallel_devices > 1) return "ddp";
    return NULL; /* a single device */
}

static bool is_missing(const char *name)
{
    const fabric_strategy_entry *entry = fabric_strategy_find(name);
    return entry == NULL || entry->create == fabric__strategy_unavailable;
}

/* Where a name cannot be had, another one or an error. Upstream looks at the flag's text; here the accelerator that was resolved
 * decides, so that one given as an object behaves alike. */
static th_status fall_back(fabric__choices *choices)
{
    static const char *const sharded[] = {"fsdp", "fsdp_cpu_offload"};
    th_device_type type = device_type(choices);
    const char *name = choices->strategy;
    if (strcmp(name, "fsdp") == 0 && type == TH_DEVICE_XLA) {
        choices->strategy = "xla_fsdp";
    } else if (strcmp(name, "dp") == 0 && type == TH_DEVICE_CPU) {
        th__warn_rank_zero("'dp' is not supported on CPUs, hence setting strategy 'ddp'.");
        choices->strategy = "ddp";
    }
    for (size_t i = 0; i < 2; i++) /* an FSDP that is linked says itself where it works */
        if (strcmp(choices->strategy, sharded[i]) == 0 && type != TH_DEVICE_CUDA && is_missing(sharded[i]))
            return TH__FAIL(TH_ERR_VALUE,
                            "strategy '%s' was chosen, but FSDP is only available on GPU; choose accelerator 'gpu' or a "
                            "different strategy",
                            sharded[i]);
    return TH_OK;
}

th_status fabric__choose_strategy(fabric__choices *choices)
{
    if (choices->strategy_object != NULL) return TH_OK;
    if (strcmp(choices->strategy, "auto") == 0) {
        choices->strategy = automatic_strategy(choices);
        if (choices->strategy == NULL) {
            choices->strategy_object = fabric_strategy_single_device(choices->parallel_devices[0]);
            return th__pending();
        }
    }
    TH__TRY(fall_back(choices));
    choices->strategy_object = fabric_strategy_create(choices->strategy);
    return th__pending();
}

/* ---- precision */

th_status fabric__choose_precision(fabric__choices *choices)
{
    if (choices->precision_object != NULL) return TH_OK;
    const char *name = choices->precision != NULL ? choices->precision : "32-true";
    if (strcmp(name, "16-mixed") == 0 && device_type(choices) == TH_DEVICE_CPU) {
        th__warn_rank_zero(
            "You passed accelerator 'cpu' and precision '16-mixed', but AMP with fp16 is not supported on CPU. Using "
            "precision 'bf16-mixed' instead.");
        name = "bf16-mixed";
    }
    if (strcmp(name, "16-mixed") == 0) th__info_rank_zero("Using 16-bit Automatic Mixed Precision (AMP)");
    if (strcmp(name, "bf16-mixed") == 0) th__info_rank_zero("Using bfloat16 Automatic Mixed Precision (AMP)");
    choices->precision_object = fabric_precision_create(name, device_type(choices));
    return th__pending();
}
