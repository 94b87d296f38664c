/* fabric/connector_flags.c: are the flags possible, and do they agree with each other? */
#include "fabric/connector_internal.h"

#include "base/registry.h"
#include "base/strings.h"
#include "strategies/internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 96 };

static bool one_of(const char *text, const char *const *names, size_t n)
{
    for (size_t i = 0; text != NULL && i < n; i++)
        if (strcmp(text, names[i]) == 0) return true;
    return false;
}

/* ---- strategy */

th_status fabric__check_strategy_name(fabric__choices *choices)
{
    if (choices->strategy_object != NULL) {
        fabric_strategy_name(choices->strategy_object); /* raises if this is no strategy */
        return th__pending();
    }
    const char *copy = fabric__choices_text(choices, choices->strategy);
    if (copy == NULL) return th__pending();
    choices->strategy = th__lower((char *)copy);
    const char *names[MAX_NAMES] = {"auto"}, *name;
    size_t n = 1;
    for (size_t i = 0; (name = fabric_strategy_registered(i)) != NULL && n < MAX_NAMES; i++) names[n++] = name;
    if (one_of(choices->strategy, names, n)) return TH_OK;
    return th__unknown_name(TH_ERR_VALUE, "fabric_new", "strategy", choices->strategy, names, n);
}

/* ---- accelerator */

th_status fabric__check_accelerator_name(fabric__choices *choices)
{
    if (choices->accelerator_object != NULL) {
        fabric_accelerator_is_available(choices->accelerator_object); /* raises if this is no accelerator */
        return th__pending();
    }
    const char *names[MAX_NAMES] = {"auto", "gpu"}, *name;
    size_t n = 2;
    for (size_t i = 0; (name = fabric_accelerator_registered(i)) != NULL && n < MAX_NAMES; i++) names[n++] = name;
    if (one_of(choices->accelerator, names, n)) return TH_OK;
    return th__unknown_name(TH_ERR_VALUE, "fabric_new", "accelerator", choices->accelerator, names, n);
}

static bool is_parallel(const fabric__choices *choices)
{
    if (choices->strategy_object != NULL) return !fabric__strategy_single_process(choices->strategy_object);
    return strstr(choices->strategy, "dp") != NULL || strstr(choices->strategy, "deepspeed") != NULL;
}

th_status fabric__check_mps_conflict(fabric__choices *choices)
{
    static const char *const may_be_mps[] = {"mps", "auto", "gpu"};
    bool mps = choices->accelerator_object != NULL
                   ? fabric_accelerator_ops_of(choices->accelerator_object)->device_type == TH_DEVICE_MPS
                   : one_of(choices->accelerator, may_be_mps, 3);
    if (!mps || !is_parallel(choices) || !fabric__accelerator_available("mps")) return th__pending();
    return TH__FAIL(TH_ERR_VALUE,
                    "strategy '%s' was chosen, but strategies from the DDP family are not supported on the MPS "
                    "accelerator; either choose accelerator 'cpu' or change the strategy",
                    choices->strategy != NULL ? choices->strategy : fabric_strategy_name(choices->strategy_object));
}

/* ---- precision */

static const struct {
    const char *alias, *canonical;
    bool discouraged;
} aliases[] = {
    {"64", "64-true", false},
    {"32", "32-true", false},
    {"16", "16-mixed", true},
    {"bf16", "bf16-mixed", true},
};
enum { ALIASES = sizeof aliases / sizeof aliases[0] };

th_status fabric__normalize_precision(fabric__choices *choices)
{
    if (choices->precision == NULL) return TH_OK;
    for (size_t i = 0; i < ALIASES; i++) {
        if (strcmp(choices->precision, aliases[i].alias) != 0) continue;
        if (aliases[i].discouraged)
            th__warn_rank_zero("precision '%s' is supported for historical reasons but its usage is discouraged. Please set your "
                               "precision to '%s' instead!",
                               aliases[i].alias, aliases[i].canonical);
        choices->precision = aliases[i].canonical;
        return TH_OK;
    }
    const char *names[MAX_NAMES], *name;
    size_t n = 0;
    for (size_t i = 0; (name = fabric_precision_registered(i)) != NULL && n < MAX_NAMES - ALIASES; i++) names[n++] = name;
    for (size_t i = 0; i < ALIASES; i++) names[n++] = aliases[i].alias;
    if (one_of(choices->precision, names, n)) return TH_OK;
    return th__unknown_name(TH_ERR_VALUE, "fabric_new", "precision", choices->precision, names, n);
}

/* ---- plugins */

static const char *const kind_names[] = {"", "Precision", "CheckpointIO", "ClusterEnvironment"};

/* Keeps the last of each kind, as upstream does; duplicates are an error anyway. */
static th_status take_plugin(fabric__choices *choices, fabric_plugin plugin, size_t i)
{
    if (plugin.object == NULL || plugin.kind <= FABRIC_PLUGIN_NONE || plugin.kind > FABRIC_PLUGIN_ENVIRONMENT)
        return TH__FAIL(TH_ERR_TYPE, "plugin number %zu is %s; expected one of: Precision, CheckpointIO, ClusterEnvironment", i,
                        plugin.object == NULL ? "NULL" : "of an unknown kind");
    if (plugin.kind == FABRIC_PLUGIN_PRECISION) {
        fabric_precision_free(choices->precision_object);
        choices->precision_object = fabric_precision_retain(plugin.object);
    } else if (plugin.kind == FABRIC_PLUGIN_CHECKPOINT_IO) {
        fabric_checkpoint_io_free(choices->checkpoint_io);
        choices->checkpoint_io = fabric_checkpoint_io_retain(plugin.object);
    } else {
        fabric_environment_free(choices->environment);
        choices->environment = fabric_environment_retain(plugin.object);
    }
    return TH_OK;
}

th_status fabric__take_plugins(fabric__choices *choices, fabric_plugins plugins)
{
    int counts[FABRIC_PLUGIN_ENVIRONMENT + 1] = {0};
    for (size_t i = 0; i < plugins.size; i++) {
        TH__TRY(take_plugin(choices, plugins.data[i], i));
        counts[plugins.data[i].kind]++;
    }
    char doubled[64] = "";
    for (size_t i = 0; i < plugins.size; i++) { /* in the order they were given */
        fabric_plugin_kind kind = plugins.data[i].kind;
        if (counts[kind] < 2) continue;
        counts[kind] = 0;
        snprintf(doubled + strlen(doubled), sizeof doubled - strlen(doubled), "%s%s", doubled[0] != '\0' ? ", " : "",
                 kind_names[kind]);
    }
    if (doubled[0] != '\0')
        return TH__FAIL(TH_ERR_VALUE, "received multiple values for %s in .plugins; expected one value for each type at most",
                        doubled);
    if (choices->precision_object != NULL && choices->precision != NULL)
        return TH__FAIL(TH_ERR_VALUE, "received both .precision = '%s' and the plugin '%s'; choose one", choices->precision,
                        fabric_precision_name(choices->precision_object));
    return th__pending();
}

/* ---- parts that a strategy object brings along */

static const char *accelerator_text(const fabric__choices *choices)
{
    return choices->accelerator_object != NULL ? fabric__accelerator_class(choices->accelerator_object) : choices->accelerator;
}

static th_status set_twice(const char *part)
{
    return TH__FAIL(TH_ERR_VALUE, "%s set through both the strategy object and %s, choose one", part,
                    strcmp(part, "accelerator") == 0 ? "the accelerator flag" : "plugins");
}

/* The strategy's devices decide the accelerator. */
static th_status adopt_devices(fabric__choices *choices, fabric_devices devices)
{
    th_device_type type = devices.data[0].type;
    const char *forced = type == TH_DEVICE_CPU ? "cpu" : type == TH_DEVICE_CUDA ? "cuda" : NULL;
    if (forced == NULL) return TH_OK;
    bool agrees = choices->accelerator_object != NULL
                      ? fabric_accelerator_ops_of(choices->accelerator_object)->device_type == type
                      : strcmp(choices->accelerator, "auto") == 0 || strcmp(choices->accelerator, forced) == 0 ||
                            (type == TH_DEVICE_CUDA && strcmp(choices->accelerator, "gpu") == 0);
    if (!agrees)
        return TH__FAIL(TH_ERR_VALUE, "%s parallel_devices set through %s, but accelerator set to '%s'; choose one device type",
                        type == TH_DEVICE_CPU ? "CPU" : "GPU", fabric_strategy_name(choices->strategy_object),
                        accelerator_text(choices));
    if (choices->accelerator_object == NULL) choices->accelerator = forced;
    return TH_OK;
}

th_status fabric__take_strategy_parts(fabric__choices *choices)
{
    fabric_strategy *strategy = choices->strategy_object;
    if (strategy == NULL) return TH_OK;
    fabric_accelerator *accelerator = fabric_strategy_accelerator(strategy);
    fabric_precision *precision = fabric_strategy_precision(strategy);
    fabric_checkpoint_io *io = fabric_strategy_checkpoint_io(strategy);
    fabric_environment *environment = fabric_strategy_environment(strategy);
    fabric_devices devices = fabric_strategy_parallel_devices(strategy);
    TH__CHECK_PENDING();
    if (accelerator != NULL) {
        if (choices->accelerator_object != NULL || strcmp(choices->accelerator, "auto") != 0) return set_twice("accelerator");
        choices->accelerator_object = fabric_accelerator_retain(accelerator);
        choices->accelerator = NULL;
    }
    if (precision != NULL) {
        if (choices->precision_object != NULL) return set_twice("precision");
        choices->precision_object = fabric_precision_retain(precision);
    }
    if (io != NULL) {
        if (choices->checkpoint_io != NULL) return set_twice("checkpoint_io");
        choices->checkpoint_io = fabric_checkpoint_io_retain(io);
    }
    if (environment != NULL) {
        if (choices->environment != NULL) return set_twice("cluster_environment");
        choices->environment = fabric_environment_retain(environment);
    }
    return devices.size > 0 ? adopt_devices(choices, devices) : TH_OK;
}

/* ---- devices and nodes */

th_status fabric__check_devices(fabric__choices *choices)
{
    static const char *const nothing[] = {"0", "", "[]"};
    if (choices->num_nodes < 1)
        return TH__FAIL(TH_ERR_VALUE, "num_nodes must be a positive integer, but got %d", choices->num_nodes);
    if (one_of(choices->devices, nothing, 3))
        return TH__FAIL(TH_ERR_VALUE, "fabric_new(.devices = \"%s\") is not a valid input using the %s accelerator",
                        choices->devices, accelerator_text(choices));
    return TH_OK;
}
