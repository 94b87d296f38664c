/* checkpoint/storages.c: a table of storages by key, filled one by one or, for large files, by several threads. */
#include "checkpoint/storages.h"

#include "base/memory.h"
#include <cfabric/scope.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 4, LARGE_FILE = 32 * 1024 * 1024 };

/* ---------------------------------------------------------------- the table */

static size_t hash_text(const char *text, size_t n)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)text[i]) * 1099511628211u;
    return (size_t)(h ^ h >> 32);
}

static th__loaded *slot_of(th__loaded *slots, size_t size, const char *key, size_t length)
{
    size_t at = hash_text(key, length) & (size - 1);
    while (slots[at].tensor != NULL && (slots[at].key_length != length || memcmp(slots[at].key, key, length) != 0))
        at = (at + 1) & (size - 1);
    return &slots[at];
}

static th_status grow(th__storage_table *table)
{
    size_t size = table->size == 0 ? 64 : table->size * 2;
    th__loaded *slots = th__calloc(size, sizeof *slots);
    if (slots == NULL) return th__pending();
    for (size_t i = 0; i < table->size; i++)
        if (table->slots[i].tensor != NULL)
            *slot_of(slots, size, table->slots[i].key, table->slots[i].key_length) = table->slots[i];
    free(table->slots);
    table->slots = slots;
    table->size = size;
    return TH_OK;
}

void th__storages_free(th__storage_table *table)
{
    for (size_t i = 0; i < table->size; i++)
        if (table->slots[i].tensor != NULL) th_free(table->slots[i].tensor);
    free(table->slots);
    table->slots = NULL;
    table->count = table->size = 0;
}

/* The slot of a storage, with memory but, when `*fresh` is set, without its contents yet. NULL with an error. */
static th__loaded *find_or_make(th__storage_table *table, const th__node *persistent, th__storage *what, bool *fresh)
{
    *fresh = false;
    if (th__torch_file_storage(table->file, persistent, what) != TH_OK) return NULL;
    if (table->count * 2 >= table->size && grow(table) != TH_OK) return NULL;
    th__loaded *slot = slot_of(table->slots, table->size, what->key, what->key_length);
    if (slot->tensor != NULL) {
        if (slot->what.nbytes == what->nbytes) return slot;
        th__fail(TH_ERR_DATA, "th_load", "'%s': one storage has two sizes", table->file->source->path);
        return NULL;
    }
    *slot = (th__loaded){.key = what->key, .key_length = what->key_length, .what = *what};
    slot->tensor = th__storage_tensor(what->numel, what->dtype, &slot->data);
    if (slot->tensor == NULL) return NULL;
    table->count++;
    *fresh = true;
    return slot;
}

th_tensor *th__storages_get(th__storage_table *table, const th__node *persistent, th__storage *what)
{
    bool fresh;
    th__loaded *slot = find_or_make(table, persistent, what, &fresh);
    if (slot == NULL || (fresh && th__torch_file_read(table->file, what, slot->data) != TH_OK)) return NULL;
    return slot->tensor;
}

/* ---------------------------------------------------------------- several threads */

typedef struct reading {
    th__torch_file *file;
    th__loaded **todo;
    size_t count;
    atomic_size_t next;
    atomic_bool failed;
} reading;

typedef struct reader {
    reading *shared;
    th__saved_error error;
} reader;

/* Reads and verifies storages until none is left. Needs no libtorch. */
static void *read_some(void *argument)
{
    reader *me = argument;
    reading *r = me->shared;
    while (!atomic_load(&r->failed)) {
        size_t i = atomic_fetch_add(&r->next, 1);
        if (i >= r->count) break;
        if (th__torch_file_read(r->file, &r->todo[i]->what, r->todo[i]->data) != TH_OK) atomic_store(&r->failed, true);
    }
    th__error_suspend(&me->error);
    return NULL;
}

static th_status read_in_parallel(reading *r, int threads)
{
    reader readers[THREADS_MAX] = {0};
    pthread_t ids[THREADS_MAX];
    int started = 1;
    for (int i = 0; i < threads; i++) readers[i].shared = r;
    while (started < threads && pthread_create(&ids[started], NULL, read_some, &readers[started]) == 0) started++;
    read_some(&readers[0]);
    for (int i = 1; i < started; i++) pthread_join(ids[i], NULL);
    for (int i = 0; i < started && th__pending() == TH_OK; i++) th__error_resume(&readers[i].error);
    return th__pending();
}

/* Memory for every storage first: the table must not move afterwards. */
static th_status collect(th__storage_table *table, reading *r, size_t mentions)
{
    while (table->size < mentions * 2 + 2) TH__TRY(grow(table));
    for (const th__node *p = th__arena_persistent(table->file->arena); p != NULL; p = p->extra) {
        th__storage what;
        bool fresh;
        th__loaded *slot = find_or_make(table, p, &what, &fresh);
        if (slot == NULL) return th__pending();
        if (fresh) r->todo[r->count++] = slot;
    }
    return TH_OK;
}

th_status th__storages_prefetch(th__storage_table *table)
{
    TH__CHECK_PENDING();
    int threads = th_get_num_threads();
    if (threads > THREADS_MAX) threads = THREADS_MAX;
    if (threads < 2 || table->file->length < LARGE_FILE || !table->file->is_zip) return TH_OK;
    size_t mentions = 0;
    for (const th__node *p = th__arena_persistent(table->file->arena); p != NULL; p = p->extra) mentions++;
    reading r = {.file = table->file, .todo = th__calloc(mentions + 1, sizeof *r.todo)};
    if (r.todo == NULL) return th__pending();
    th_status status = collect(table, &r, mentions);
    if (status == TH_OK) status = read_in_parallel(&r, threads);
    free(r.todo);
    return status;
}
