/* base/object.c: reference counts and the list of live objects. */
#include "base/object.h"

#include "base/error.h"
#include "base/memory.h"
#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static th__object *list_head;

void *th__object_new(const th__class *cls, size_t size)
{
    th__object *object = th__calloc(1, size);
    if (object == NULL) return NULL;
    object->magic = TH__OBJECT_LIVE;
    atomic_init(&object->refs, 1);
    object->cls = cls;
    pthread_mutex_lock(&list_lock);
    object->next = list_head;
    if (list_head != NULL) list_head->prev = object;
    list_head = object;
    pthread_mutex_unlock(&list_lock);
    return object;
}

void *th__retain(void *pointer)
{
    th__object *object = pointer;
    if (object != NULL) atomic_fetch_add_explicit(&object->refs, 1, memory_order_relaxed);
    return pointer;
}

void th__release(void *pointer)
{
    th__object *object = pointer;
    if (object == NULL || object->magic != TH__OBJECT_LIVE) return;
    if (atomic_fetch_sub_explicit(&object->refs, 1, memory_order_acq_rel) != 1) return;
    pthread_mutex_lock(&list_lock);
    if (object->prev != NULL) object->prev->next = object->next;
    else list_head = object->next;
    if (object->next != NULL) object->next->prev = object->prev;
    pthread_mutex_unlock(&list_lock);
    object->magic = TH__OBJECT_DEAD;
    object->cls->destroy(object);
}

bool th__object_check(const void *pointer, const th__class *cls, const char *function, const char *what)
{
    const th__object *object = pointer;
    if (object == NULL)
        th__fail(TH_ERR_TYPE, function, "%s is NULL, expected a %s", what, cls->name);
    else if (object->magic != TH__OBJECT_LIVE)
        th__fail(TH_ERR_TYPE, function, "%s was used after it was freed, expected a live %s", what, cls->name);
    else if (object->cls != cls)
        th__fail(TH_ERR_TYPE, function, "%s is a %s, expected a %s", what, object->cls->name, cls->name);
    else
        return true;
    return false;
}

size_t th__objects_live(const th__class *cls)
{
    size_t count = 0;
    pthread_mutex_lock(&list_lock);
    for (const th__object *object = list_head; object != NULL; object = object->next)
        if (cls == NULL || object->cls == cls) count++;
    pthread_mutex_unlock(&list_lock);
    return count;
}
