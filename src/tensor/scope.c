/* tensor/scope.c: which tensors end when. Each thread has one list of entries in the order they were made; a scope is the part of
 * the list above its mark. Every entry carries its own depth, so an escaped tensor only changes a number. */
#include "base/memory.h"
#include "base/object.h"
#include "bridge/bridge.h"
#include "tensor/internal.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    void *pointer; /* a th_tensor, or memory from th__scope_alloc; NULL: left the scope */
    int depth;
    bool is_memory;
} entry;

typedef struct th__thread_scope {
    entry *entries;
    size_t count, capacity;
    size_t *marks; /* marks[d - 1]: where scope d begins */
    size_t marks_capacity;
    int depth;
    size_t live;
} th__thread_scope;

static _Thread_local th__thread_scope *mine;
static pthread_key_t thread_key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

/* ---------------------------------------------------------------- dead handles */

#ifdef CFABRIC_DEBUG
/* Debug builds keep the last dead handles for a while, so that a late use finds the mark instead of other memory. */
enum { QUARANTINE = 4096 };
static _Thread_local th_tensor *quarantine[QUARANTINE];
static _Thread_local size_t quarantine_next;

static void end_tensor(th_tensor *tensor)
{
    th__handle_clear(tensor);
    free(quarantine[quarantine_next]);
    quarantine[quarantine_next] = tensor;
    quarantine_next = (quarantine_next + 1) % QUARANTINE;
}

static void empty_quarantine(void)
{
    for (size_t i = 0; i < QUARANTINE; i++) {
        free(quarantine[i]);
        quarantine[i] = NULL;
    }
}
#else
static void end_tensor(th_tensor *tensor) { th__handle_destroy(tensor); }
static void empty_quarantine(void) {}
#endif

bool th__tensor_check(const th_tensor *tensor, const char *function, const char *argument)
{
    if (tensor == NULL) th__fail(TH_ERR_TYPE, function, "%s is NULL, expected a tensor", argument);
    else if (tensor->magic == TH__TENSOR_DEAD)
        th__fail(TH_ERR_TYPE, function, "%s was used after its scope ended (made by %s)", argument, tensor->creator);
    else if (tensor->magic != TH__TENSOR_LIVE) th__fail(TH_ERR_TYPE, function, "%s is not a tensor", argument);
    else return true;
    return false;
}

/* ---------------------------------------------------------------- the list of this thread */

static void end_entry(entry *e)
{
    if (e->pointer == NULL) return;
    if (e->is_memory) free(e->pointer);
    else end_tensor(e->pointer);
    e->pointer = NULL;
}

static void end_thread(void *pointer)
{
    th__thread_scope *scope = pointer;
    for (size_t i = scope->count; i-- > 0;) end_entry(&scope->entries[i]);
    empty_quarantine();
    free(scope->entries);
    free(scope->marks);
    free(scope);
    mine = NULL;
}

static void make_key(void) { pthread_key_create(&thread_key, end_thread); }

static th__thread_scope *get_mine(void)
{
    if (TH__LIKELY(mine != NULL)) return mine;
    pthread_once(&key_once, make_key);
    mine = th__calloc(1, sizeof *mine);
    if (mine != NULL) pthread_setspecific(thread_key, mine);
    return mine;
}

static bool add_entry(th__thread_scope *scope, void *pointer, bool is_memory)
{
    entry e = {pointer, scope->depth, is_memory};
    return TH__PUSH(scope->entries, scope->count, scope->capacity, e) == 0;
}

static atomic_bool tensors_made;
bool th__tensors_have_run(void) { return atomic_load_explicit(&tensors_made, memory_order_relaxed); }

th_tensor *th__scope_adopt(th_tensor *tensor)
{
    if (TH__UNLIKELY(!th__tensors_have_run())) atomic_store_explicit(&tensors_made, true, memory_order_relaxed);
    th__thread_scope *scope = get_mine();
    if (scope == NULL || !add_entry(scope, tensor, false)) {
        th__handle_destroy(tensor);
        return NULL;
    }
    tensor->home = scope;
    tensor->slot = (uint32_t)(scope->count - 1);
    scope->live++;
    return tensor;
}

void *th__scope_alloc(size_t size)
{
    th__thread_scope *scope = get_mine();
    if (scope == NULL) return NULL;
    void *memory = th__malloc(size);
    if (memory == NULL) return NULL;
    if (!add_entry(scope, memory, true)) {
        free(memory);
        return NULL;
    }
    return memory;
}

/* Takes a scoped handle off its thread's list. False if it belongs to another thread. */
static bool detach(th_tensor *tensor, const char *function)
{
    if (tensor->home == NULL) return true;
    if (tensor->home != mine) {
        th__fail(TH_ERR_RUNTIME, function, "a scoped tensor of another thread; th_keep it there before it crosses threads");
        return false;
    }
    mine->entries[tensor->slot].pointer = NULL;
    while (mine->count > 0 && mine->entries[mine->count - 1].pointer == NULL &&
           (mine->depth == 0 || mine->count > mine->marks[mine->depth - 1]))
        mine->count--;
    mine->live--;
    tensor->home = NULL;
    return true;
}

/* ---------------------------------------------------------------- public */

int th_scope_push(void)
{
    th__thread_scope *scope = get_mine();
    if (scope == NULL) return -1;
    if (th__grow((void **)&scope->marks, (size_t)scope->depth, &scope->marks_capacity, sizeof *scope->marks) != 0) return -1;
    scope->marks[scope->depth] = scope->count;
    return ++scope->depth;
}

void th_scope_pop(int depth)
{
    th__thread_scope *scope = mine;
    if (scope == NULL || depth < 1 || depth > scope->depth) return;
    size_t kept = scope->marks[depth - 1];
    /* Newest first, as C++ destructors run; survivors (escaped) move down afterwards. */
    for (size_t i = scope->count; i-- > kept;) {
        entry *e = &scope->entries[i];
        if (e->pointer == NULL || e->depth < depth) continue;
        if (!e->is_memory) scope->live--;
        end_entry(e);
    }
    for (size_t i = kept; i < scope->count; i++) {
        if (scope->entries[i].pointer == NULL) continue;
        scope->entries[kept] = scope->entries[i];
        if (!scope->entries[kept].is_memory) ((th_tensor *)scope->entries[kept].pointer)->slot = (uint32_t)kept;
        kept++;
    }
    scope->count = kept;
    scope->depth = depth - 1;
}

th_tensor *th_keep(th_tensor *tensor)
{
    if (tensor == NULL || !th__tensor_check(tensor, __func__, "tensor")) return NULL;
    return detach(tensor, __func__) ? tensor : NULL;
}

void th_free(th_tensor *tensor)
{
    if (tensor == NULL || !th__tensor_check(tensor, __func__, "tensor")) return;
    if (detach(tensor, __func__)) end_tensor(tensor);
}

void th_drop(th_tensor *tensor)
{
    if (tensor != NULL && tensor->magic == TH__TENSOR_LIVE && tensor->home != NULL && tensor->home == mine) th_free(tensor);
}

th_tensor *th_escape(th_tensor *tensor)
{
    if (tensor == NULL || !th__tensor_check(tensor, __func__, "tensor")) return NULL;
    if (tensor->home == NULL) return tensor; /* owned or borrowed: it outlives this scope anyway */
    if (tensor->home != mine) {
        TH__FAIL(TH_ERR_RUNTIME, "a scoped tensor of another thread cannot escape");
        return NULL;
    }
    entry *e = &mine->entries[tensor->slot];
    if (e->depth == mine->depth && e->depth > 0) e->depth--;
    return tensor;
}

th_tensor *th_assign(th_tensor **slot, th_tensor *tensor)
{
    if (tensor != NULL && tensor == *slot) return tensor;
    th_tensor *kept = NULL;
    if (tensor != NULL) {
        if (!th__tensor_check(tensor, __func__, "tensor")) return NULL;
        kept = tensor->home != NULL ? th_keep(tensor) : th__handle_dup(tensor);
        if (kept == NULL) return NULL;
    }
    th_tensor *old = *slot;
    *slot = kept;
    th_free(old);
    return kept;
}

th_tensor *th_retain(th_tensor *tensor)
{
    TH__CHECK_PENDING_NULL();
    if (!th__tensor_check(tensor, __func__, "tensor")) return NULL;
    return th__handle_dup(tensor);
}

th_tensors th_list(th_tensors tensors)
{
    th_tensor **data = th__scope_alloc((tensors.size + 1) * sizeof *data);
    if (data == NULL) return (th_tensors){NULL, 0};
    if (tensors.size > 0) memcpy(data, tensors.data, tensors.size * sizeof *data);
    return (th_tensors){data, tensors.size};
}

th_tensors th_escape_list(th_tensors tensors)
{
    if (tensors.data == NULL || mine == NULL) return tensors;
    for (size_t i = 0; i < tensors.size; i++) th_escape(tensors.data[i]);
    size_t mark = mine->depth > 0 ? mine->marks[mine->depth - 1] : 0;
    for (size_t i = mine->count; i-- > mark;) {
        entry *e = &mine->entries[i];
        if (e->pointer != (void *)tensors.data) continue;
        if (e->depth == mine->depth && e->depth > 0) e->depth--;
        return tensors;
    }
    /* The array is not of this scope (a compound literal, say): a copy in the parent scope is. */
    int depth = mine->depth;
    if (depth > 0) mine->depth = depth - 1;
    th_tensors copy = th_list(tensors);
    mine->depth = depth;
    return copy;
}

bool th__scope_holds(const th_tensor *tensor)
{
    return tensor != NULL && tensor->magic == TH__TENSOR_LIVE && tensor->home != NULL && tensor->home == mine &&
           mine->entries[tensor->slot].depth == mine->depth;
}

size_t th_scope_live(void) { return mine == NULL ? 0 : mine->live; }

void th_scope_dump(void)
{
    if (mine == NULL) return;
    fprintf(stderr, "%zu scoped tensors, depth %d, %zu objects\n", mine->live, mine->depth, th__objects_live(NULL));
    for (size_t i = 0; i < mine->count; i++) {
        if (mine->entries[i].pointer == NULL || mine->entries[i].is_memory) continue;
        th_tensor *t = mine->entries[i].pointer;
        th_ints sizes = th_sizes(t);
        fprintf(stderr, "  depth %d  %-10s [", mine->entries[i].depth, th_dtype_name(th_dtype_of(t)));
        for (size_t d = 0; d < sizes.size; d++) fprintf(stderr, "%s%" PRId64, d > 0 ? ", " : "", sizes.data[d]);
        fprintf(stderr, "]  %zu bytes  by %s\n", th_nbytes(t), t->creator);
    }
}

/* ---------------------------------------------------------------- init context */

static _Thread_local th__init_context init_context;

th__init_context th__init_context_get(void) { return init_context; }

th__init_context th__init_context_swap(th__init_context next)
{
    th__init_context old = init_context;
    init_context = next;
    return old;
}
