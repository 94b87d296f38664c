/* base/registry.c: named implementations. */
#include "base/registry.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/strings.h"
#include <stdlib.h>
#include <string.h>

th_status th__unknown_name(th_status status, const char *function, const char *what, const char *name, const char *const *known,
                           size_t count)
{
    const char *near = th__closest(name, known, count);
    char *list = th__join(known, count, ", ");
    if (list == NULL) return th__pending();
    if (near != NULL)
        th__fail(status, function, "%s '%s' is not known; did you mean '%s'? known: %s", what, name, near, list);
    else
        th__fail(status, function, "%s '%s' is not known; known: %s", what, name, count > 0 ? list : "none");
    free(list);
    return th__pending();
}

/* All of the following run with the lock held. */
static th_status append(th__registry *registry, const char *name, const void *table, const char *description)
{
    char *copy = th__strdup(name);
    if (copy == NULL) return th__pending();
    th__registry_item item = {copy, table, description};
    if (TH__PUSH(registry->items, registry->count, registry->capacity, item) != 0) {
        free(copy);
        return th__pending();
    }
    return TH_OK;
}

static th_status fill(th__registry *registry)
{
    if (registry->filled) return TH_OK;
    for (size_t i = registry->count; i < registry->builtin_count; i++) {
        const th__registry_item *item = &registry->builtins[i];
        TH__TRY(append(registry, item->name, item->table, item->description));
    }
    registry->filled = true;
    return TH_OK;
}

static th__registry_item *find(th__registry *registry, const char *name)
{
    if (name == NULL || fill(registry) != TH_OK) return NULL;
    for (size_t i = 0; i < registry->count; i++)
        if (strcmp(registry->items[i].name, name) == 0) return &registry->items[i];
    return NULL;
}

static th_status unknown(th__registry *registry, const char *name)
{
    const char **names = th__calloc(registry->count, sizeof *names);
    if (names == NULL) return th__pending();
    for (size_t i = 0; i < registry->count; i++) names[i] = registry->items[i].name;
    th__unknown_name(TH_ERR_KEY, "registry", registry->what, name != NULL ? name : "(null)", names, registry->count);
    free(names);
    return th__pending();
}

static th_status add(th__registry *registry, const char *name, const void *table, const char *description, bool override)
{
    TH__TRY(fill(registry));
    th__registry_item *item = find(registry, name);
    if (item == NULL) return append(registry, name, table, description);
    if (!override)
        return th__fail(TH_ERR_VALUE, "registry", "%s '%s' is already registered; pass override to replace it", registry->what,
                        name);
    item->table = table;
    item->description = description;
    return TH_OK;
}

/* ---------------------------------------------------------------- with the lock */

th_status th__registry_add(th__registry *registry, const char *name, const void *table, const char *description, bool override)
{
    TH__CHECK_PENDING();
    if (name == NULL || *name == '\0' || table == NULL)
        return th__fail(TH_ERR_VALUE, "registry", "a %s needs a name and an implementation, got %s", registry->what,
                        table == NULL ? "no implementation" : "no name");
    pthread_mutex_lock(&registry->lock);
    th_status status = add(registry, name, table, description, override);
    pthread_mutex_unlock(&registry->lock);
    return status;
}

const void *th__registry_find(th__registry *registry, const char *name)
{
    pthread_mutex_lock(&registry->lock);
    const th__registry_item *item = find(registry, name);
    const void *table = item != NULL ? item->table : NULL;
    pthread_mutex_unlock(&registry->lock);
    return table;
}

const void *th__registry_get(th__registry *registry, const char *name)
{
    TH__CHECK_PENDING_NULL();
    pthread_mutex_lock(&registry->lock);
    const th__registry_item *item = find(registry, name);
    const void *table = item != NULL ? item->table : NULL;
    if (item == NULL) unknown(registry, name);
    pthread_mutex_unlock(&registry->lock);
    return table;
}

th_status th__registry_remove(th__registry *registry, const char *name)
{
    TH__CHECK_PENDING();
    pthread_mutex_lock(&registry->lock);
    th__registry_item *item = find(registry, name);
    if (item == NULL) {
        unknown(registry, name);
    } else {
        free((char *)item->name);
        size_t after = (size_t)(registry->items + registry->count - item - 1);
        memmove(item, item + 1, after * sizeof *item);
        registry->count--;
    }
    pthread_mutex_unlock(&registry->lock);
    return th__pending();
}

size_t th__registry_list(th__registry *registry, th__registry_item *items, size_t capacity)
{
    pthread_mutex_lock(&registry->lock);
    fill(registry);
    size_t count = registry->count;
    for (size_t i = 0; i < count && i < capacity; i++) items[i] = registry->items[i];
    pthread_mutex_unlock(&registry->lock);
    return count;
}

size_t th__registry_names(th__registry *registry, const char **names, size_t capacity)
{
    pthread_mutex_lock(&registry->lock);
    fill(registry);
    size_t count = registry->count;
    for (size_t i = 0; i < count && i < capacity; i++) names[i] = registry->items[i].name;
    pthread_mutex_unlock(&registry->lock);
    return count;
}

char *th__registry_names_text(th__registry *registry)
{
    th__text text = {0};
    int failed = th__text_add(&text, "%s", "");
    pthread_mutex_lock(&registry->lock);
    fill(registry);
    for (size_t i = 0; i < registry->count && failed == 0; i++)
        failed = th__text_add(&text, "%s%s", i > 0 ? ", " : "", registry->items[i].name);
    pthread_mutex_unlock(&registry->lock);
    if (failed == 0) return text.text;
    free(text.text);
    return NULL;
}
