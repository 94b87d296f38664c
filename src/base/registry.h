/* base/registry.h: the one table "name -> const implementation" behind strategies, accelerators, precisions, environments,
 * launchers, checkpoint IO and loggers.
 *
 *     static const th__registry_item builtins[] = {{"cpu", &cpu_ops, "the processor"}, ...};
 *     static th__registry registry = TH__REGISTRY("accelerator", builtins);
 *
 * Thread-safe. Names are compared exactly; rooms with case-insensitive names lower them first. */
#ifndef FABRIC_BASE_REGISTRY_H
#define FABRIC_BASE_REGISTRY_H

#include <cfabric/base.h>
#include <pthread.h>

typedef struct th__registry_item {
    const char *name;
    const void *table;       /* the implementation, or a preset of it; never freed by the registry */
    const char *description; /* one line, may be NULL */
} th__registry_item;

typedef struct th__registry {
    const char *what; /* "strategy", for messages */
    const th__registry_item *builtins;
    size_t builtin_count;
    pthread_mutex_t lock;
    th__registry_item *items; /* built-ins first, then in order of registration; names are copies */
    size_t count, capacity;
    bool filled;
} th__registry;

#define TH__REGISTRY(kind, builtin_items)                                                                                        \
    {                                                                                                                            \
        .what = (kind), .builtins = (builtin_items), .builtin_count = sizeof(builtin_items) / sizeof *(builtin_items),           \
        .lock = PTHREAD_MUTEX_INITIALIZER                                                                                        \
    }
#define TH__REGISTRY_EMPTY(kind)                                                                                                 \
    {                                                                                                                            \
        .what = (kind), .lock = PTHREAD_MUTEX_INITIALIZER                                                                        \
    }

/* NULL or empty name or NULL table: TH_ERR_VALUE. Taken name: TH_ERR_VALUE unless `override`, which replaces in place. The name
 * is copied, table and description must stay valid. */
th_status th__registry_add(th__registry *registry, const char *name, const void *table, const char *description, bool override);
/* The table; TH_ERR_KEY with the known names and the nearest one when there is none. */
const void *th__registry_get(th__registry *registry, const char *name);
/* The table or NULL, without an error. */
const void *th__registry_find(th__registry *registry, const char *name);
/* TH_ERR_KEY when unknown. */
th_status th__registry_remove(th__registry *registry, const char *name);
/* How many there are; writes the first `capacity` of them in order. [borrowed] until the next add or remove. */
size_t th__registry_list(th__registry *registry, th__registry_item *items, size_t capacity);
size_t th__registry_names(th__registry *registry, const char **names, size_t capacity);
/* "cpu, cuda, mps" in new memory; free() it. */
char *th__registry_names_text(th__registry *registry);

/* Raises "<what> '<name>' is not known; did you mean '<nearest>'? known: a, b, c". For choices that are no registry. */
th_status th__unknown_name(th_status status, const char *function, const char *what, const char *name, const char *const *known,
                           size_t count);

#endif
