/* checkpoint/format/node.h: what a pickle says, as a tree of plain nodes. Nothing in it is ever executed.
 *
 * Nodes live in an arena and end with it. Texts point into the pickle, which must outlive the arena. A node may be reachable
 * twice (memo), even from itself: whoever walks must use `mark` against cycles and count its steps. */
#ifndef FABRIC_CHECKPOINT_NODE_H
#define FABRIC_CHECKPOINT_NODE_H

#include "base/error.h"

typedef enum th__node_kind {
    TH__NODE_NONE,
    TH__NODE_BOOL,
    TH__NODE_INT,
    TH__NODE_BIGINT,
    TH__NODE_FLOAT,
    TH__NODE_TEXT,
    TH__NODE_BYTES,
    TH__NODE_LIST,
    TH__NODE_TUPLE,
    TH__NODE_SET,
    TH__NODE_DICT,
    TH__NODE_GLOBAL,    /* a name, "torch.float32" */
    TH__NODE_CALL,      /* REDUCE: callee(args) */
    TH__NODE_OBJECT,    /* NEWOBJ: callee.__new__(args) */
    TH__NODE_PERSISTENT /* a storage: args is the tuple */
} th__node_kind;

typedef struct th__node th__node;
struct th__node {
    th__node_kind kind;
    int mark;     /* for walks: 1 while inside */
    size_t count; /* items of a container (a dict: keys and values alternate), bytes of a text */
    size_t capacity;
    union {
        int64_t i; /* also bool */
        double d;
        const char *text; /* not terminated */
        th__node **items;
        struct {
            th__node *callee; /* TH__NODE_GLOBAL, or NULL for a persistent id */
            th__node *args;   /* a tuple */
        } call;
    } v;
    th__node *state; /* BUILD's argument; NULL if there was none */
    th__node *extra; /* items given to a call's result: a list or dict (SETITEMS on an OrderedDict); of a persistent id the
                        one before it */
    void *user;      /* for whoever walks */
};

typedef struct th__arena th__arena;
/* NULL with TH_ERR_MEMORY. */
th__arena *th__arena_new(void);
void th__arena_free(th__arena *arena);
/* 16-byte aligned memory that ends with the arena. */
void *th__arena_alloc(th__arena *arena, size_t size);
th__node *th__node_new(th__arena *arena, th__node_kind kind);
/* The last persistent id that was read; its `extra` is the one before, and so on. */
th__node *th__arena_persistent(const th__arena *arena);
void th__arena_add_persistent(th__arena *arena, th__node *node);
/* Adds to a container. */
th_status th__node_push(th__arena *arena, th__node *container, th__node *item);

/* "dict", "int": for messages. */
const char *th__node_kind_name(const th__node *node);
/* Is this the text / the global of that name? NULL-safe. */
bool th__node_is_text(const th__node *node, const char *text);
bool th__node_is_global(const th__node *node, const char *name);
/* A call of, or an object of, that global. NULL-safe. */
bool th__node_is_call(const th__node *node, const char *name);
/* The value under a text key of a dict, an OrderedDict or an object's state; NULL if absent. */
th__node *th__node_get(const th__node *dict, const char *key);
/* The i-th argument of a call or item of a container; NULL if there is none. */
th__node *th__node_arg(const th__node *node, size_t i);
/* The dict behind a dict, an OrderedDict or another dict-like object; NULL if it is none. An empty one gives a node without
 * items. */
const th__node *th__node_as_dict(const th__node *node);
bool th__node_as_int(const th__node *node, int64_t *out);
/* Copies a text for messages into `buffer`, cut and with unprintable bytes replaced. Returns `buffer`. */
const char *th__node_show(const th__node *node, char *buffer, size_t size);

#endif
