/* fabric/setup.c: fabric_setup and its parts: modules, optimizers, loaders. */
#include "base/env.h"
#include "data/internal.h"
#include "fabric/internal.h"
#include "strategies/internal.h"
#include <stdio.h>
#include <stdlib.h>

enum { MAX_SETUP = 8 };

/* ---- checks */

static th_status check_modules(th_module *module, const char *function)
{
    if (module == NULL) return th__fail(TH_ERR_TYPE, function, "the module is NULL");
    if (fabric_is_wrapped_module(module))
        return th__fail(TH_ERR_VALUE, function, "the module %s has been set up already", th_module_class(module));
    return th__pending();
}

static th_status check_optimizers(th_optimizer *const *optimizers, size_t n, const char *function)
{
    for (size_t i = 0; i < n; i++) {
        if (fabric_is_wrapped_optimizer(optimizers[i]))
            return th__fail(TH_ERR_VALUE, function, "optimizer %zu has been set up already", i);
        for (size_t k = 0; k < i; k++)
            if (optimizers[k] == optimizers[i])
                return th__fail(TH_ERR_VALUE, function, "optimizers %zu and %zu are the same", k, i);
    }
    return th__pending();
}

static bool has_parameter(th_module *module, th_tensor *tensor)
{
    th_tensors params = th_parameters(module);
    for (size_t i = 0; i < params.size; i++)
        if (th_is_same(params.data[i], tensor)) return true;
    return false;
}

/* Does the tensor belong to `module` (may be NULL) or to one that was set up before? */
static bool is_known(fabric *fab, th_module *module, th_tensor *tensor)
{
    if (module != NULL && has_parameter(module, tensor)) return true;
    for (size_t i = 0; i < fab->modules.size; i++)
        if (has_parameter(fab->modules.items[i], tensor)) return true;
    return false;
}

/* "[3, 4]" */
static void format_sizes(th_tensor *tensor, char *buffer, size_t size)
{
    th_ints sizes = th_sizes(tensor);
    size_t used = 0;
    buffer[0] = '\0';
    for (size_t i = 0; i < sizes.size && used + 24 < size; i++)
        used += (size_t)snprintf(buffer + used, size - used, "%s%lld", i > 0 ? ", " : "", (long long)sizes.data[i]);
}

/* An optimizer made before its model was changed holds tensors that nobody trains any more: name them. */
static th_status check_ownership(fabric *fab, th_module *module, th_optimizer *optimizer, const char *function)
{
    char names[400] = "", sizes[64];
    size_t used = 0, strangers = 0;
    for (size_t g = 0; g < th_optimizer_n_groups(optimizer); g++) {
        th_tensors params = th_optimizer_params(optimizer, g);
        for (size_t i = 0; i < params.size; i++) {
            if (is_known(fab, module, params.data[i])) continue;
            if (strangers++ >= 5) continue;
            format_sizes(params.data[i], sizes, sizeof sizes);
            used += (size_t)snprintf(names + used, sizeof names - used, "%sparameter %zu of group %zu (%s [%s])",
                                     strangers > 1 ? ", " : "", i, g, th_dtype_name(th_dtype_of(params.data[i])), sizes);
        }
    }
    if (strangers == 0 || th__pending() != TH_OK) return th__pending();
    return th__fail(TH_ERR_VALUE, function,
                    "%zu of the optimizer's tensors do not belong to the module: %s%s; make the optimizer after the last change of the "
                    "module", strangers, names, strangers > 5 ? ", ..." : "");
}

/* ---- mixed devices */

typedef struct placement { th_device first; bool seen; size_t elsewhere; char names[2][128]; } placement;

static int note_device(const char *name, th_tensor *tensor, void *user)
{
    placement *p = user;
    th_device device = th_device_of(tensor);
    if (!p->seen) {
        p->first = device;
        p->seen = true;
        snprintf(p->names[0], sizeof p->names[0], "%s", name);
    } else if (!fabric__same_device(device, p->first)) {
        if (p->elsewhere++ == 0) snprintf(p->names[1], sizeof p->names[1], "%s", name);
    }
    return 0;
}

static void warn_if_scattered(fabric *fab, th_module *module)
{
    placement p = {.seen = false};
    th_named_parameters(module, note_device, &p);
    if (p.elsewhere == 0) return;
    char device[32];
    th__warn("%zu parameters are on other devices than the first one (for example '%s' and '%s'); all of them are moved to %s",
             p.elsewhere, p.names[0], p.names[1], th_device_format(fabric_device(fab), device, sizeof device));
}

/* ---- modules and optimizers */

static th_status prepare_module(fabric *fab, th_module *module, bool move_to_device)
{
    TH__TRY(fabric_precision_convert_module(fab->strategy->precision, module));
    if (!move_to_device) return TH_OK;
    warn_if_scattered(fab, module);
    return fabric_strategy_module_to_device(fab->strategy, module);
}

static th_status set_up(fabric *fab, th_module *module, th_optimizer *const *optimizers, size_t n, th_scheduler *scheduler,
                        bool move_to_device, const char *function)
{
    TH__TRY(check_modules(module, function));
    TH__TRY(check_optimizers(optimizers, n, function));
    for (size_t i = 0; i < n; i++) TH__TRY(check_ownership(fab, module, optimizers[i], function));
    TH__TRY(prepare_module(fab, module, move_to_device));
    void *state = NULL;
    th_status status = n > 0 ? fabric_strategy_setup_module_and_optimizers(fab->strategy, module, optimizers, n, scheduler, &state)
                             : fabric_strategy_setup_module(fab->strategy, module, &state);
    if (status == TH_OK) status = fabric__wrap_module(fab, module, state);
    if (status != TH_OK && state != NULL && !fabric_is_wrapped_module(module))
        fabric_strategy_free_module(fab->strategy, module, state);
    for (size_t i = 0; i < n && status == TH_OK; i++) status = fabric__wrap_optimizer(fab, optimizers[i]);
    return status;
}

/* Counts the leading non-NULL ones; a gap is an error, so that a failed constructor is not skipped silently. */
static th_status count(void *const *items, size_t *n, const char *function, const char *what)
{
    *n = 0;
    while (*n < MAX_SETUP && items[*n] != NULL) ++*n;
    for (size_t i = *n; i < MAX_SETUP; i++)
        if (items[i] != NULL) return th__fail(TH_ERR_TYPE, function, "%s %zu is NULL", what, *n);
    return TH_OK;
}

th_status fabric_setup_call(struct fabric_setup_args args)
{
    FABRIC__ENTER_LAUNCHED(args.fab);
    th_optimizer *optimizers[MAX_SETUP] = {args.optimizer,  args.optimizer2, args.optimizer3, args.optimizer4,
                                           args.optimizer5, args.optimizer6, args.optimizer7, args.optimizer8};
    size_t n = 0;
    TH__TRY(count((void *const *)optimizers, &n, __func__, "optimizer"));
    int depth = th_scope_push();
    th_status status = set_up(args.fab, args.module, optimizers, n, args.scheduler, args.move_to_device, __func__);
    th_scope_pop(depth);
    if (status != TH_OK) return status;
    return fabric_call(args.fab, "on_after_setup", FABRIC_ARGS(FABRIC_ARG("module", args.module)));
}

th_status fabric_setup_module_call(struct fabric_setup_module_args args)
{
    FABRIC__ENTER_LAUNCHED(args.fab);
    int depth = th_scope_push();
    th_status status = set_up(args.fab, args.module, NULL, 0, NULL, args.move_to_device, __func__);
    th_scope_pop(depth);
    return status;
}

th_status fabric_setup_optimizers_call(struct fabric_setup_optimizers_args args)
{
    FABRIC__ENTER_LAUNCHED(args.fab);
    th_optimizer *optimizers[MAX_SETUP] = {args.optimizer,  args.optimizer2, args.optimizer3, args.optimizer4,
                                           args.optimizer5, args.optimizer6, args.optimizer7, args.optimizer8};
    size_t n = 0;
    TH__TRY(count((void *const *)optimizers, &n, __func__, "optimizer"));
    if (fabric__strategy_requires_joint_setup(args.fab->strategy))
        return TH__FAIL(TH_ERR_RUNTIME, "%s needs module and optimizers together: use fabric_setup", args.fab->strategy->ops->name);
    if (n == 0) return TH__FAIL(TH_ERR_VALUE, "no optimizer was given, expected at least one");
    TH__TRY(check_optimizers(optimizers, n, __func__));
    int depth = th_scope_push();
    th_status status = TH_OK;
    for (size_t i = 0; i < n && status == TH_OK && args.fab->modules.size > 0; i++)
        status = check_ownership(args.fab, NULL, optimizers[i], __func__);
    for (size_t i = 0; i < n && status == TH_OK; i++) {
        status = fabric_strategy_setup_optimizer(args.fab->strategy, optimizers[i]);
        if (status == TH_OK) status = fabric__wrap_optimizer(args.fab, optimizers[i]);
    }
    th_scope_pop(depth);
    return status;
}

/* ---- loaders */

typedef struct mover { th_device device; } mover;

static th_tensor *move_batch(th_tensor *tensor, void *wrapper)
{
    return fabric__move(tensor, ((mover *)wrapper)->device);
}

static const th__dataloader_wrapper moving = {move_batch, free};
static const th__dataloader_wrapper staying = {NULL, free};

static th_status inject_sampler(fabric *fab, th_dataloader *loader)
{
    int replicas = 1, rank = 0;
    int64_t seed = 0;
    if (!fabric_strategy_sampler_args(fab->strategy, &replicas, &rank)) return th__pending();
    TH__TRY(th__env_int("PL_GLOBAL_SEED", 0, 0, UINT32_MAX, &seed));
    return th__dataloader_shard(loader, (struct th__dataloader_shard_args){replicas, rank, (uint64_t)seed, {0}, false});
}

static th_status set_up_loader(fabric *fab, th_dataloader *loader, bool use_distributed_sampler, bool move_to_device)
{
    int64_t seed_workers = 0;
    if (use_distributed_sampler) TH__TRY(inject_sampler(fab, loader));
    TH__TRY(th__env_int("PL_SEED_WORKERS", 0, 0, 1, &seed_workers));
    if (seed_workers == 1) TH__TRY(th__dataloader_seed_workers(loader, fabric_global_rank(fab)));
    TH__TRY(fabric_strategy_process_dataloader(fab->strategy, loader));
    mover *m = th__malloc(sizeof *m);
    if (m == NULL) return th__pending();
    m->device = fabric_device(fab);
    TH__TRY(th__dataloader_wrap(loader, move_to_device ? &moving : &staying, m));
    if (fabric__list_add(&fab->loaders, th_dataloader_retain(loader)) != 0) th_dataloader_free(loader);
    return th__pending();
}

th_status fabric_setup_dataloaders_call(struct fabric_setup_dataloaders_args args)
{
    FABRIC__ENTER_LAUNCHED(args.fab);
    th_dataloader *loaders[MAX_SETUP] = {args.loader,  args.loader2, args.loader3, args.loader4,
                                         args.loader5, args.loader6, args.loader7, args.loader8};
    size_t n = 0;
    TH__TRY(count((void *const *)loaders, &n, __func__, "loader"));
    if (n == 0) return TH__FAIL(TH_ERR_VALUE, "no loader was given, expected at least one");
    for (size_t i = 0; i < n; i++) {
        if (fabric_is_wrapped_dataloader(loaders[i])) return TH__FAIL(TH_ERR_VALUE, "loader %zu has been set up already", i);
        for (size_t k = 0; k < i; k++)
            if (loaders[k] == loaders[i]) return TH__FAIL(TH_ERR_VALUE, "loaders %zu and %zu are the same", k, i);
    }
    for (size_t i = 0; i < n; i++)
        TH__TRY(set_up_loader(args.fab, loaders[i], args.use_distributed_sampler, args.move_to_device));
    return th__pending();
}

bool fabric_is_wrapped_dataloader(th_dataloader *loader)
{
    return th__dataloader_is_wrapped(loader);
}
