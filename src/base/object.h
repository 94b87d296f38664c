/* base/object.h: the header of every reference-counted object (module, optimizer, loader, value, ...).
 *
 * All live objects hang in one list, so leak checkers see them and th__objects_live() can be asserted in tests. */
#ifndef FABRIC_BASE_OBJECT_H
#define FABRIC_BASE_OBJECT_H

#include <cfabric/base.h>
#include <stdatomic.h>

typedef struct th__object th__object;

typedef struct th__class {
    const char *name;                /* "module", "optimizer": shown in errors */
    void (*destroy)(void *object);   /* frees members and the object itself; runs when the last reference goes */
} th__class;

struct th__object {
    uint32_t magic;                  /* TH__OBJECT_LIVE, or TH__OBJECT_DEAD after the end */
    atomic_int refs;
    const th__class *cls;
    th__object *prev, *next;
};

#define TH__OBJECT_LIVE 0x0b1ec7a1u
#define TH__OBJECT_DEAD 0xdeadb0b0u

/* A zeroed object of `size` bytes whose first member is a th__object, with one reference. NULL with TH_ERR_MEMORY. */
void *th__object_new(const th__class *cls, size_t size);
/* NULL-safe. Any thread. */
void *th__retain(void *object);
void th__release(void *object);
/* True when `object` is a live object of that class; otherwise raises TH_ERR_TYPE naming `what` and returns false. */
bool th__object_check(const void *object, const th__class *cls, const char *function, const char *what);
/* How many objects of a class (NULL: of any) are alive. For tests and th_scope_dump. */
size_t th__objects_live(const th__class *cls);

#endif
