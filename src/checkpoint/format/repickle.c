/* checkpoint/format/repickle.c: the inverse of the unpickler for what it lets through. */
#include "checkpoint/format/repickle.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 500 };

static th_status write_node(th__repickler *r, th__node *node, int depth);

static th_status write_items(th__repickler *r, const th__node *node, char kind, int depth)
{
    TH__TRY(th__pickle_open(r->pickler, kind));
    for (size_t i = 0; i < node->count; i++) TH__TRY(write_node(r, node->v.items[i], depth + 1));
    return th__pickle_close(r->pickler, kind);
}

/* The writer keeps module and name by address, so they are not copied there: write the opcode without its memo. */
static th_status write_global(th__repickler *r, const th__node *node)
{
    size_t dot = node->count;
    while (dot > 0 && node->v.text[dot - 1] != '.') dot--;
    if (dot < 2 || memchr(node->v.text, '\n', node->count) != NULL)
        return th__fail(TH_ERR_DATA, "consolidate", "'%s': a global without a module", r->path);
    TH__TRY(th__pickle_op(r->pickler, 'c'));
    bool builtin = dot == 9 && memcmp(node->v.text, "builtins", 8) == 0; /* protocol 2 uses Python 2's name */
    if (builtin)
        TH__TRY(th__buffer_add(&r->pickler->out, "__builtin__", 11));
    else
        TH__TRY(th__buffer_add(&r->pickler->out, node->v.text, dot - 1));
    TH__TRY(th__pickle_op(r->pickler, '\n'));
    TH__TRY(th__buffer_add(&r->pickler->out, node->v.text + dot, node->count - dot));
    return th__pickle_op(r->pickler, '\n');
}

static th_status write_call(th__repickler *r, th__node *node, int depth)
{
    TH__TRY(write_node(r, node->v.call.callee, depth + 1));
    TH__TRY(write_node(r, node->v.call.args, depth + 1));
    TH__TRY(th__pickle_op(r->pickler, node->kind == TH__NODE_CALL ? 'R' : '\x81'));
    if (node->extra != NULL) {
        char kind = node->extra->kind == TH__NODE_DICT ? '{' : '[';
        TH__TRY(th__pickle_op(r->pickler, '('));
        for (size_t i = 0; i < node->extra->count; i++) TH__TRY(write_node(r, node->extra->v.items[i], depth + 1));
        TH__TRY(th__pickle_close(r->pickler, kind));
    }
    if (node->state == NULL) return TH_OK;
    TH__TRY(write_node(r, node->state, depth + 1));
    return th__pickle_op(r->pickler, 'b');
}

static th_status write_set(th__repickler *r, const th__node *node, int depth)
{
    TH__TRY(th__pickle_global(r->pickler, "__builtin__", "set"));
    TH__TRY(write_items(r, node, '[', depth));
    return th__buffer_add(&r->pickler->out, "\x85R", 2);
}

static th_status write_bigint(th__repickler *r, const th__node *node)
{
    unsigned char head[5] = {0x8b};
    th__put32(head + 1, (uint32_t)node->count);
    TH__TRY(th__buffer_add(&r->pickler->out, head, 5));
    return th__buffer_add(&r->pickler->out, node->v.text, node->count);
}

static th_status write_inner(th__repickler *r, th__node *node, int depth)
{
    th__pickler *p = r->pickler;
    switch (node->kind) {
    case TH__NODE_NONE: return th__pickle_none(p);
    case TH__NODE_BOOL: return th__pickle_bool(p, node->v.i != 0);
    case TH__NODE_INT: return th__pickle_int(p, node->v.i);
    case TH__NODE_BIGINT: return write_bigint(r, node);
    case TH__NODE_FLOAT: return th__pickle_double(p, node->v.d);
    case TH__NODE_TEXT: return th__pickle_text_n(p, node->v.text, node->count);
    case TH__NODE_BYTES: return th__pickle_bytes(p, node->v.text, node->count);
    case TH__NODE_LIST: return write_items(r, node, '[', depth);
    case TH__NODE_TUPLE: return write_items(r, node, '(', depth);
    case TH__NODE_DICT: return write_items(r, node, '{', depth);
    case TH__NODE_SET: return write_set(r, node, depth);
    case TH__NODE_GLOBAL: return write_global(r, node);
    case TH__NODE_CALL:
    case TH__NODE_OBJECT: return write_call(r, node, depth);
    case TH__NODE_PERSISTENT: return r->special(r, node);
    }
    return TH_OK;
}

static th_status write_node(th__repickler *r, th__node *node, int depth)
{
    TH__CHECK_PENDING();
    if (node == NULL || node->mark || depth > DEPTH_MAX)
        return th__fail(TH_ERR_DATA, "consolidate", "'%s': a value %s", r->path,
                        node == NULL ? "is missing"
                        : node->mark ? "contains itself"
                                     : "is nested too deeply");
    if (r->pickler->out.size > (size_t)1 << 32)
        return th__fail(TH_ERR_DATA, "consolidate", "'%s': values are shared too often", r->path);
    if (node->user != NULL) return r->special(r, node);
    node->mark = 1;
    th_status status = write_inner(r, node, depth);
    node->mark = 0;
    return status;
}

th_status th__repickle(th__repickler *repickler, th__node *node) { return write_node(repickler, node, 0); }
