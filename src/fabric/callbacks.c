/* fabric/callbacks.c: callbacks by hook name, and loggers. */
#include "fabric/internal.h"
#include <stdlib.h>
#include <string.h>

th_status fabric_add_callback(fabric *fab, fabric_callback callback)
{
    FABRIC__ENTER(fab);
    (void)TH__PUSH(fab->callbacks, fab->n_callbacks, fab->callbacks_capacity, callback);
    return th__pending();
}

void fabric__free_callbacks(fabric *fab)
{
    for (size_t i = 0; i < fab->n_callbacks; i++)
        if (fab->callbacks[i].free != NULL) fab->callbacks[i].free(fab->callbacks[i].user);
    free(fab->callbacks);
    fab->callbacks = NULL;
    fab->n_callbacks = 0;
}

th_status fabric_call(fabric *fab, const char *hook, fabric_args args)
{
    FABRIC__ENTER(fab);
    for (size_t i = 0; i < fab->n_callbacks; i++) {
        const fabric_callback *callback = &fab->callbacks[i];
        for (const fabric_hook *h = callback->hooks; h != NULL && h->name != NULL; h++) {
            if (strcmp(h->name, hook) != 0) continue;
            if (h->fn == NULL) {
                th__warn("callback '%s' has '%s', but it is no function: skipped", callback->name != NULL ? callback->name : "", hook);
                continue;
            }
            th_status status = h->fn(fab, args, callback->user);
            if (status != TH_OK && th__pending() == TH_OK)
                th__fail(TH_ERR_CALLBACK, __func__, "'%s' of callback '%s' returned %s", hook,
                         callback->name != NULL ? callback->name : "", th_status_name(status));
            TH__CHECK_PENDING();
        }
    }
    return TH_OK;
}

/* ---- arguments */

const fabric_arg *fabric_args_find(fabric_args args, const char *name)
{
    for (size_t i = 0; i < args.size; i++)
        if (strcmp(args.data[i].name, name) == 0) return &args.data[i];
    return NULL;
}

static void *find_pointer(fabric_args args, const char *name, fabric_arg_kind kind)
{
    const fabric_arg *arg = fabric_args_find(args, name);
    return arg != NULL && arg->kind == kind ? (void *)(uintptr_t)arg->p : NULL;
}

th_tensor *fabric_args_tensor(fabric_args args, const char *name)
{
    return find_pointer(args, name, FABRIC_ARG_TENSOR);
}

th_module *fabric_args_module(fabric_args args, const char *name)
{
    return find_pointer(args, name, FABRIC_ARG_MODULE);
}

th_optimizer *fabric_args_optimizer(fabric_args args, const char *name)
{
    return find_pointer(args, name, FABRIC_ARG_OPTIMIZER);
}

int64_t fabric_args_int(fabric_args args, const char *name, int64_t fallback)
{
    const fabric_arg *arg = fabric_args_find(args, name);
    return arg != NULL && arg->kind == FABRIC_ARG_INT ? arg->i : fallback;
}

double fabric_args_double(fabric_args args, const char *name, double fallback)
{
    const fabric_arg *arg = fabric_args_find(args, name);
    if (arg == NULL) return fallback;
    if (arg->kind == FABRIC_ARG_INT) return (double)arg->i;
    return arg->kind == FABRIC_ARG_DOUBLE ? arg->d : fallback;
}

/* ---- logging */

/* A tensor of one element as a number, other leaves copied. [owned], NULL with an error raised. */
static th_value *as_number(const char *name, const th_value *value)
{
    th_tensor *tensor = th_value_as_tensor(value);
    if (tensor == NULL) return th_value_copy(value, false);
    int64_t n = th_numel(tensor);
    if (n != 1) {
        if (n >= 0) th__fail(TH_ERR_VALUE, "fabric_log", "metric '%s' is a tensor of %lld elements, expected a single one", name,
                             (long long)n);
        return NULL;
    }
    th_dtype dtype = th_dtype_of(tensor);
    if (dtype == TH_BOOL) return th_value_bool(th_item_int(tensor) != 0);
    if (!th_dtype_is_floating_point(dtype)) return th_value_int(th_item_int(tensor));
    return th_value_double(th_item(tensor));
}

static th_value *numbers(const th_value *metrics)
{
    th_value *result = th_value_dict();
    for (size_t i = 0; i < th_value_size(metrics) && th__pending() == TH_OK; i++) {
        const char *name = th_value_key_at(metrics, i, NULL);
        if (name == NULL) {
            th__fail(TH_ERR_TYPE, "fabric_log_dict", "metric %zu has a number as its name, expected text", i);
            break;
        }
        th_value *item = th_value_at(metrics, i);
        th_value_set(result, name, th_value_kind_of(item) == TH_VALUE_DICT ? numbers(item) : as_number(name, item));
    }
    if (th__pending() == TH_OK) return result;
    th_value_free(result);
    return NULL;
}

static th_status log_dict(struct fabric_log_args args)
{
    FABRIC__ENTER(args.fab);
    if (th_value_kind_of(args.value) != TH_VALUE_DICT)
        return th__fail(TH_ERR_TYPE, "fabric_log_dict", "the metrics are a %s, expected a dict",
                        th_value_kind_name(th_value_kind_of(args.value)));
    th_value *metrics = numbers(args.value);
    for (size_t i = 0; i < args.fab->loggers.size && th__pending() == TH_OK; i++)
        fabric_logger_log_metrics(args.fab->loggers.items[i], metrics, args.step);
    th_value_free(metrics);
    return th__pending();
}

th_status fabric_log_dict_call(struct fabric_log_args args)
{
    th_status status = log_dict(args);
    th_value_free(args.value);
    return status;
}

th_status fabric_log_call(struct fabric_log_args args)
{
    if (th__pending() != TH_OK || args.name == NULL) {
        th_value_free(args.value);
        return th__pending() != TH_OK ? th__pending() : TH__FAIL(TH_ERR_TYPE, "the metric's name is NULL");
    }
    th_value *dict = th_value_dict();
    th_value_set(dict, args.name, args.value);
    args.value = dict;
    return fabric_log_dict_call(args);
}
