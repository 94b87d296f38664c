/* environments/environment.c: the registry of cluster environments and their detection. */
#include "environments/internal.h"

#include "base/memory.h"
#include "base/object.h"
#include "base/registry.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct fabric_environment {
    th__object object;
    fabric_environment_ops ops; /* a copy, members an older caller does not know are NULL */
    void *self;
};

/* In the order of detection; kubeflow has no detect. TorchElastic is first because it is also used inside SLURM. */
static const th__registry_item built_in[] = {
    {"torchelastic", &fabric__environment_torchelastic, "torchrun or `fabric run`"},
    {"slurm", &fabric__environment_slurm, "SLURM's srun"},
    {"lsf", &fabric__environment_lsf, "LSF's jsrun"},
    {"mpi", &fabric__environment_mpi, "mpirun or mpiexec"},
    {"lightning", &fabric__environment_lightning, "the default: this machine, or processes started by hand"},
    {"kubeflow", &fabric__environment_kubeflow, "a Kubeflow PyTorchJob"},
};
static th__registry registry = TH__REGISTRY("environment", built_in);

static void destroy(void *object)
{
    fabric_environment *environment = object;
    if (environment->ops.destroy != NULL) environment->ops.destroy(environment->self);
    free(environment);
}

static const th__class environment_class = {"environment", destroy};

static bool ops_valid(const fabric_environment_ops *ops, const char *function)
{
    if (ops == NULL || ops->size < offsetof(fabric_environment_ops, node_rank) || ops->name == NULL || ops->name[0] == '\0') {
        th__fail(TH_ERR_VALUE, function, "the environment's table needs a size of sizeof(fabric_environment_ops) and a name");
        return false;
    }
    if (ops->main_address == NULL || ops->main_port == NULL || ops->world_size == NULL || ops->global_rank == NULL ||
        ops->local_rank == NULL) {
        th__fail(TH_ERR_VALUE, function,
                 "environment '%s' must define main_address, main_port, world_size, global_rank and local_rank", ops->name);
        return false;
    }
    return true;
}

th_status fabric_environment_register(const fabric_environment_ops *ops, bool override)
{
    TH__CHECK_PENDING();
    if (!ops_valid(ops, __func__)) return th__pending();
    return th__registry_add(&registry, ops->name, ops, NULL, override);
}

th_status fabric_environment_unregister(const char *name)
{
    TH__CHECK_PENDING();
    return th__registry_remove(&registry, name);
}

static bool is_built_in(const void *table)
{
    for (size_t i = 0; i < sizeof built_in / sizeof built_in[0]; i++)
        if (built_in[i].table == table) return true;
    return false;
}

/* All tables in the order of detection: registered ones, the newest first, then the built-in ones. */
enum { MAX_ENVIRONMENTS = 64 };
static size_t in_order(th__registry_item out[MAX_ENVIRONMENTS])
{
    th__registry_item items[MAX_ENVIRONMENTS];
    size_t all = th__registry_list(&registry, items, MAX_ENVIRONMENTS), n = 0;
    if (all > MAX_ENVIRONMENTS) all = MAX_ENVIRONMENTS;
    for (size_t i = all; i-- > 0;)
        if (!is_built_in(items[i].table)) out[n++] = items[i];
    for (size_t i = 0; i < all; i++)
        if (is_built_in(items[i].table)) out[n++] = items[i];
    return n;
}

size_t fabric_environment_list(const char **names, size_t capacity)
{
    th__registry_item items[MAX_ENVIRONMENTS];
    size_t n = in_order(items);
    for (size_t i = 0; i < n && i < capacity; i++) names[i] = items[i].name;
    return n;
}

/* ---- objects */

static fabric_environment *wrap(const fabric_environment_ops *ops, void *self)
{
    fabric_environment *environment = th__object_new(&environment_class, sizeof *environment);
    if (environment == NULL) return NULL;
    memcpy(&environment->ops, ops, ops->size < sizeof environment->ops ? ops->size : sizeof environment->ops);
    environment->self = self;
    return environment;
}

fabric_environment *fabric_environment_new(const fabric_environment_ops *ops, void *self)
{
    TH__CHECK_PENDING_NULL();
    return ops_valid(ops, __func__) ? wrap(ops, self) : NULL;
}

static fabric_environment *create(const fabric_environment_ops *ops)
{
    void *self = NULL;
    if (ops->create != NULL && ops->create(&self) != TH_OK) return NULL;
    fabric_environment *environment = wrap(ops, self);
    if (environment == NULL && ops->destroy != NULL) ops->destroy(self);
    return environment;
}

fabric_environment *fabric_environment_create(const char *name)
{
    TH__CHECK_PENDING_NULL();
    const fabric_environment_ops *ops = name != NULL ? th__registry_find(&registry, name) : NULL;
    if (ops == NULL && name != NULL && strcmp(name, "xla") == 0) {
        TH__FAIL(TH_ERR_UNAVAILABLE, "environment 'xla' is not available here because PyTorch/XLA has no C interface");
        return NULL;
    }
    if (ops == NULL) ops = th__registry_get(&registry, name != NULL ? name : "");
    return ops != NULL ? create(ops) : NULL;
}

fabric_environment *fabric_environment_detect(void)
{
    TH__CHECK_PENDING_NULL();
    th__registry_item items[MAX_ENVIRONMENTS];
    size_t n = in_order(items);
    for (size_t i = 0; i < n; i++) {
        const fabric_environment_ops *ops = items[i].table;
        if (ops->detect == NULL) continue;
        bool detected = ops->detect();
        TH__CHECK_PENDING_NULL();
        if (detected) return create(ops);
    }
    return create(&fabric__environment_lightning);
}

bool fabric_environment_detects(const char *name)
{
    if (th__pending() != TH_OK) return false;
    const fabric_environment_ops *ops = th__registry_get(&registry, name != NULL ? name : "");
    if (ops == NULL) return false;
    if (ops->detect != NULL) return ops->detect();
    TH__FAIL(TH_ERR_NOT_IMPLEMENTED, "the '%s' environment can't be detected automatically; pass it as a plugin", name);
    return false;
}

fabric_environment *fabric_environment_retain(fabric_environment *environment) { return th__retain(environment); }
void fabric_environment_free(fabric_environment *environment) { th__release(environment); }

const fabric_environment_ops *fabric__environment_ops_of(fabric_environment *environment, const char *function, void **self)
{
    if (th__pending() != TH_OK || !th__object_check(environment, &environment_class, function, "environment")) return NULL;
    *self = environment->self;
    return &environment->ops;
}
