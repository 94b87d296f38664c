/* checkpoint/format/node.c: the arena and the small questions one asks a pickle's tree. */
#include "checkpoint/format/node.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct block {
    struct block *next;
    size_t used, size;
} block;

struct th__arena {
    block *blocks;
    th__node *persistent;
};

enum { BLOCK_SIZE = 64 * 1024, BLOCK_HEADER = (sizeof(block) + 15) & ~(size_t)15 };

th__arena *th__arena_new(void) { return th__calloc(1, sizeof(th__arena)); }

void th__arena_free(th__arena *arena)
{
    if (arena == NULL) return;
    for (block *b = arena->blocks, *next; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    free(arena);
}

void *th__arena_alloc(th__arena *arena, size_t size)
{
    size = (size + 15) & ~(size_t)15;
    block *b = arena->blocks;
    if (b == NULL || b->size - b->used < size) {
        size_t room = size > BLOCK_SIZE / 4 ? size : BLOCK_SIZE;
        block *fresh = th__malloc(BLOCK_HEADER + room);
        if (fresh == NULL) return NULL;
        fresh->size = room;
        fresh->used = 0;
        if (b != NULL && room == size) { /* a big one gets its own block, behind the current one */
            fresh->next = b->next;
            b->next = fresh;
        } else {
            fresh->next = b;
            arena->blocks = fresh;
        }
        b = fresh;
    }
    void *at = (char *)b + BLOCK_HEADER + b->used;
    b->used += size;
    return at;
}

th__node *th__node_new(th__arena *arena, th__node_kind kind)
{
    th__node *node = th__arena_alloc(arena, sizeof *node);
    if (node == NULL) return NULL;
    memset(node, 0, sizeof *node);
    node->kind = kind;
    return node;
}

th__node *th__arena_persistent(const th__arena *arena) { return arena->persistent; }

void th__arena_add_persistent(th__arena *arena, th__node *node)
{
    node->extra = arena->persistent;
    arena->persistent = node;
}

th_status th__node_push(th__arena *arena, th__node *container, th__node *item)
{
    if (container->count == container->capacity) {
        size_t capacity = container->capacity == 0 ? 4 : container->capacity * 2;
        th__node **items = th__arena_alloc(arena, capacity * sizeof(th__node *));
        if (items == NULL) return th__pending();
        if (container->count > 0) memcpy(items, container->v.items, container->count * sizeof(th__node *));
        container->v.items = items;
        container->capacity = capacity;
    }
    container->v.items[container->count++] = item;
    return TH_OK;
}

const char *th__node_kind_name(const th__node *node)
{
    static const char *const names[] = {"None",  "bool", "int",  "int",    "float", "str",    "bytes",  "list",
                                        "tuple", "set",  "dict", "global", "call",  "object", "storage"};
    return node == NULL ? "nothing" : names[node->kind];
}

static bool same_text(const th__node *node, const char *text)
{
    size_t length = strlen(text);
    return node->count == length && memcmp(node->v.text, text, length) == 0;
}

bool th__node_is_text(const th__node *node, const char *text)
{
    return node != NULL && node->kind == TH__NODE_TEXT && same_text(node, text);
}

bool th__node_is_global(const th__node *node, const char *name)
{
    return node != NULL && node->kind == TH__NODE_GLOBAL && same_text(node, name);
}

bool th__node_is_call(const th__node *node, const char *name)
{
    return node != NULL && (node->kind == TH__NODE_CALL || node->kind == TH__NODE_OBJECT) &&
           th__node_is_global(node->v.call.callee, name);
}

th__node *th__node_arg(const th__node *node, size_t i)
{
    if (node == NULL) return NULL;
    switch (node->kind) {
    case TH__NODE_CALL:
    case TH__NODE_OBJECT:
    case TH__NODE_PERSISTENT: node = node->v.call.args; break;
    case TH__NODE_LIST:
    case TH__NODE_TUPLE:
    case TH__NODE_SET:
    case TH__NODE_DICT: break;
    default: return NULL;
    }
    if (node == NULL || node->kind < TH__NODE_LIST || node->kind > TH__NODE_DICT) return NULL;
    return i < node->count ? node->v.items[i] : NULL;
}

/* Dict-like classes that only store items. */
static bool is_dict_class(const th__node *callee)
{
    static const char *const names[] = {
        "collections.OrderedDict",
        "collections.Counter",
        "collections.defaultdict",
        "lightning_fabric.utilities.data.AttributeDict",
        "lightning.fabric.utilities.data.AttributeDict",
        "pytorch_lightning.utilities.parsing.AttributeDict",
        "lightning.pytorch.utilities.parsing.AttributeDict",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (th__node_is_global(callee, names[i])) return true;
    return false;
}

const th__node *th__node_as_dict(const th__node *node)
{
    static const th__node empty = {.kind = TH__NODE_DICT};
    if (node == NULL) return NULL;
    if (node->kind == TH__NODE_DICT) return node;
    if (node->kind != TH__NODE_CALL && node->kind != TH__NODE_OBJECT) return NULL;
    if (!is_dict_class(node->v.call.callee)) return NULL;
    if (node->extra != NULL && node->extra->kind == TH__NODE_DICT) return node->extra;
    const th__node *first = th__node_arg(node, 0); /* Counter({...}) */
    return first != NULL && first->kind == TH__NODE_DICT ? first : &empty;
}

th__node *th__node_get(const th__node *dict, const char *key)
{
    if (dict != NULL && dict->kind == TH__NODE_OBJECT && th__node_as_dict(dict) == NULL) dict = dict->state;
    const th__node *items = th__node_as_dict(dict);
    for (size_t i = 0; items != NULL && i + 1 < items->count; i += 2)
        if (th__node_is_text(items->v.items[i], key)) return items->v.items[i + 1];
    return NULL;
}

bool th__node_as_int(const th__node *node, int64_t *out)
{
    if (node == NULL || (node->kind != TH__NODE_INT && node->kind != TH__NODE_BOOL)) return false;
    *out = node->v.i;
    return true;
}

const char *th__node_show(const th__node *node, char *buffer, size_t size)
{
    if (node == NULL || (node->kind != TH__NODE_TEXT && node->kind != TH__NODE_GLOBAL)) {
        snprintf(buffer, size, "%s", th__node_kind_name(node));
        return buffer;
    }
    size_t n = node->count < size - 1 ? node->count : size - 1;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)node->v.text[i];
        buffer[i] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    buffer[n] = '\0';
    return buffer;
}
