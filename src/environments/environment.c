/* environments/environment.c: the registry of cluster environments and their detection. */
#include "environments/internal.h"

#include "base/memory.h"
#include "base/object.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct fabric_environment {
    th__object object;
    fabric_environment_ops ops; /* a copy, members an older caller does not know are NULL */
    void *self;
};

/* In the order of detection; kubeflow has no detect. TorchElastic is first because it is also used inside SLURM. */
static const fabric_environment_ops *const built_in[] = {
    &fabric__environment_torchelastic, &fabric__environment_slurm,     &fabric__environment_lsf,
    &fabric__environment_mpi,          &fabric__environment_lightning, &fabric__environment_kubeflow,
};
enum { BUILT_IN = sizeof built_in / sizeof built_in[0] };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const fabric_environment_ops **registered;
static size_t n_registered, registered_capacity;

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

/* ---- registry; the caller holds the lock */

static const fabric_environment_ops *find(const char *name)
{
    for (size_t i = n_registered; i-- > 0;)
        if (strcmp(registered[i]->name, name) == 0) return registered[i];
    for (size_t i = 0; i < BUILT_IN; i++)
        if (strcmp(built_in[i]->name, name) == 0) return built_in[i];
    return NULL;
}

/* The i-th table in the order of detection: registered ones newest first, then the built-in ones that are not overridden. */
static const fabric_environment_ops *at(size_t i)
{
    if (i < n_registered) return registered[n_registered - 1 - i];
    for (size_t k = 0, seen = n_registered; k < BUILT_IN; k++) {
        if (find(built_in[k]->name) != built_in[k]) continue;
        if (seen++ == i) return built_in[k];
    }
    return NULL;
}

static bool take_out(const char *name)
{
    for (size_t i = 0; i < n_registered; i++) {
        if (strcmp(registered[i]->name, name) != 0) continue;
        memmove(&registered[i], &registered[i + 1], (n_registered - i - 1) * sizeof registered[0]);
        n_registered--;
        return true;
    }
    return false;
}

static const fabric_environment_ops *lookup(const char *name)
{
    pthread_mutex_lock(&lock);
    const fabric_environment_ops *ops = find(name);
    pthread_mutex_unlock(&lock);
    return ops;
}

th_status fabric_environment_register(const fabric_environment_ops *ops, bool override)
{
    TH__CHECK_PENDING();
    if (!ops_valid(ops, __func__)) return th__pending();
    pthread_mutex_lock(&lock);
    bool taken = find(ops->name) != NULL && !override, failed = false;
    if (!taken) {
        take_out(ops->name);
        failed = TH__PUSH(registered, n_registered, registered_capacity, ops) != 0;
    }
    pthread_mutex_unlock(&lock);
    if (failed) return th__pending();
    if (taken)
        return TH__FAIL(TH_ERR_VALUE, "environment '%s' is already present in the registry; use override to replace it",
                        ops->name);
    return TH_OK;
}

static th_status unknown_name(const char *function, const char *name)
{
    enum { MAX = 64 };
    const char *names[MAX];
    size_t n = fabric_environment_list(names, MAX);
    char list[512] = "";
    for (size_t i = 0; i < n && i < MAX; i++) {
        if (strlen(list) + strlen(names[i]) + 3 >= sizeof list) break;
        if (i > 0) strcat(list, ", ");
        strcat(list, names[i]);
    }
    return th__fail(TH_ERR_KEY, function, "environment '%s' is not known; known: %s", name != NULL ? name : "", list);
}

th_status fabric_environment_unregister(const char *name)
{
    TH__CHECK_PENDING();
    pthread_mutex_lock(&lock);
    bool found = name != NULL && take_out(name);
    if (n_registered == 0) { /* nothing stays allocated when everything was taken back */
        free(registered);
        registered = NULL;
        registered_capacity = 0;
    }
    pthread_mutex_unlock(&lock);
    return found ? TH_OK : unknown_name(__func__, name);
}

size_t fabric_environment_list(const char **names, size_t capacity)
{
    size_t n = 0;
    pthread_mutex_lock(&lock);
    for (const fabric_environment_ops *ops; (ops = at(n)) != NULL; n++)
        if (n < capacity) names[n] = ops->name;
    pthread_mutex_unlock(&lock);
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
    const fabric_environment_ops *ops = name != NULL ? lookup(name) : NULL;
    if (ops != NULL) return create(ops);
    if (name != NULL && strcmp(name, "xla") == 0)
        TH__FAIL(TH_ERR_UNAVAILABLE, "environment 'xla' is not available here because PyTorch/XLA has no C interface");
    else unknown_name(__func__, name);
    return NULL;
}

fabric_environment *fabric_environment_detect(void)
{
    TH__CHECK_PENDING_NULL();
    for (size_t i = 0;; i++) {
        pthread_mutex_lock(&lock);
        const fabric_environment_ops *ops = at(i);
        pthread_mutex_unlock(&lock);
        if (ops == NULL) return create(&fabric__environment_lightning);
        if (ops->detect == NULL) continue;
        bool detected = ops->detect();
        if (th__pending() != TH_OK) return NULL;
        if (detected) return create(ops);
    }
}

bool fabric_environment_detects(const char *name)
{
    if (th__pending() != TH_OK) return false;
    const fabric_environment_ops *ops = name != NULL ? lookup(name) : NULL;
    if (ops == NULL) return unknown_name(__func__, name) == TH_OK;
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
