/* strategies/registry.c: the names that `.strategy = "..."` accepts. */
#include "base/registry.h"
#include "base/strings.h"
#include "strategies/internal.h"
#include <stdlib.h>
#include <string.h>

#define ENTRY(name_, create_, preset_, description_)                                                                         \
    {name_, &(const fabric_strategy_entry){sizeof(fabric_strategy_entry), name_, description_, create_, preset_, false}, \
     description_}

static const th__registry_item builtins[] = {
    ENTRY("dp", fabric__strategy_dp_create, NULL, "one process, several devices"),
    ENTRY("ddp", fabric__strategy_ddp_create, "start_method=popen", "data parallel: one process per device"),
    ENTRY("ddp_spawn", fabric__strategy_ddp_create, "start_method=spawn", "ddp, processes started around a function"),
    ENTRY("ddp_fork", fabric__strategy_ddp_create, "start_method=fork", "ddp, processes forked before any tensor work"),
    ENTRY("ddp_notebook", fabric__strategy_ddp_create, "start_method=fork", "the same as ddp_fork"),
    ENTRY("ddp_find_unused_parameters_true", fabric__strategy_ddp_create, "start_method=popen,find_unused_parameters=true",
          "ddp for models that do not use every parameter in each step"),
    ENTRY("fsdp", fabric__strategy_unavailable, "fsdp", "fully sharded data parallel"),
    ENTRY("fsdp_cpu_offload", fabric__strategy_unavailable, "fsdp_cpu_offload", "fsdp with parameters on the CPU"),
    ENTRY("deepspeed", fabric__strategy_unavailable, "deepspeed", "ZeRO stage 2"),
    ENTRY("deepspeed_stage_1", fabric__strategy_unavailable, "deepspeed_stage_1", "ZeRO stage 1"),
    ENTRY("deepspeed_stage_1_offload", fabric__strategy_unavailable, "deepspeed_stage_1_offload", "ZeRO stage 1, offloaded"),
    ENTRY("deepspeed_stage_2", fabric__strategy_unavailable, "deepspeed_stage_2", "ZeRO stage 2"),
    ENTRY("deepspeed_stage_2_offload", fabric__strategy_unavailable, "deepspeed_stage_2_offload", "ZeRO stage 2, offloaded"),
    ENTRY("deepspeed_stage_3", fabric__strategy_unavailable, "deepspeed_stage_3", "ZeRO stage 3"),
    ENTRY("deepspeed_stage_3_offload", fabric__strategy_unavailable, "deepspeed_stage_3_offload", "ZeRO stage 3, offloaded"),
    ENTRY("deepspeed_stage_3_offload_nvme", fabric__strategy_unavailable, "deepspeed_stage_3_offload_nvme",
          "ZeRO stage 3, offloaded to NVMe"),
    ENTRY("xla", fabric__strategy_unavailable, "xla", "TPU"),
    ENTRY("xla_fsdp", fabric__strategy_unavailable, "xla_fsdp", "TPU, fully sharded"),
    ENTRY("single_xla", fabric__strategy_unavailable, "single_xla", "one TPU device"),
    ENTRY("single_tpu", fabric__strategy_unavailable, "single_tpu", "the old name of single_xla"),
};
static th__registry registry = TH__REGISTRY("strategy", builtins);

/* Names compare without case: everything is looked up in lower case. NULL with an error raised; free() it. */
static char *lowered(const char *name)
{
    char *copy = th__strdup(name != NULL ? name : "");
    return copy != NULL ? th__lower(copy) : NULL;
}

th_status fabric_strategy_register(const fabric_strategy_entry *entry)
{
    TH__CHECK_PENDING();
    if (entry == NULL || entry->size < offsetof(fabric_strategy_entry, preset) || entry->name == NULL || entry->create == NULL)
        return TH__FAIL(TH_ERR_VALUE, "a strategy's entry must have its size, a name and a create function");
    char *name = lowered(entry->name);
    if (name == NULL) return th__pending();
    th_status status = th__registry_add(&registry, name, entry, entry->description, TH__SLOT(entry, override));
    free(name);
    return status;
}

th_status fabric_strategy_unregister(const char *name)
{
    TH__CHECK_PENDING();
    char *lower = lowered(name);
    if (lower == NULL) return th__pending();
    th_status status = th__registry_remove(&registry, lower);
    free(lower);
    return status;
}

const fabric_strategy_entry *fabric_strategy_find(const char *name)
{
    char *lower = lowered(name);
    if (lower == NULL) return NULL;
    const fabric_strategy_entry *entry = th__registry_find(&registry, lower);
    free(lower);
    return entry;
}

/* Upstream calls an unknown strategy a ValueError, while the registry itself says KeyError. */
static void unknown(const char *name)
{
    const char *known[128];
    known[0] = "auto";
    size_t n = th__registry_names(&registry, known + 1, sizeof known / sizeof *known - 1);
    if (n > sizeof known / sizeof *known - 1) n = sizeof known / sizeof *known - 1;
    th__unknown_name(TH_ERR_VALUE, "fabric_new", "strategy", name, known, n + 1);
}

fabric_strategy *fabric_strategy_create(const char *name)
{
    TH__CHECK_PENDING_NULL();
    const fabric_strategy_entry *entry = fabric_strategy_find(name);
    if (entry == NULL) {
        if (th__pending() == TH_OK) unknown(name != NULL ? name : "");
        return NULL;
    }
    return entry->create(entry->preset);
}

const char *fabric_strategy_registered(size_t i)
{
    const char *names[128];
    size_t n = th__registry_names(&registry, names, sizeof names / sizeof *names);
    return i < n && i < sizeof names / sizeof *names ? names[i] : NULL;
}
