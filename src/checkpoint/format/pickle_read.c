/* checkpoint/format/pickle_read.c: the unpickler's machine: opcodes, stack, marks and memo, every access checked. */
#include "checkpoint/format/pickle_read.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct machine {
    th__arena *arena;
    const unsigned char *data;
    size_t size, at;
    const char *what;
    th__node **stack;
    size_t n_stack, stack_capacity;
    size_t *marks;
    size_t n_marks, marks_capacity;
    th__node **memo;
    size_t memo_size, memo_used; /* slots, and how many were filled */
} machine;

#define BAD(m, ...) (bad((m), __VA_ARGS__))

static th_status bad(machine *m, const char *format, ...) FABRIC_PRINTF(2, 3);
static th_status bad(machine *m, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return th__fail(TH_ERR_DATA, "unpickle", "%s: %s (pickle byte %zu of %zu)", m->what, text, m->at, m->size);
}

/* ---------------------------------------------------------------- bytes */

static const unsigned char *take(machine *m, size_t n)
{
    if (m->size - m->at < n) {
        BAD(m, "the pickle ends in the middle of an item: %zu bytes wanted, %zu left", n, m->size - m->at);
        return NULL;
    }
    const unsigned char *p = m->data + m->at;
    m->at += n;
    return p;
}

static uint64_t little(const unsigned char *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = n; i-- > 0;) v = v << 8 | p[i];
    return v;
}

static bool take_int(machine *m, size_t n, uint64_t *out)
{
    const unsigned char *p = take(m, n);
    if (p == NULL) return false;
    *out = little(p, n);
    return true;
}

/* The text up to the next line end, without it. */
static bool take_line(machine *m, const char **text, size_t *length)
{
    const unsigned char *start = m->data + m->at;
    const unsigned char *end = m->at < m->size ? memchr(start, '\n', m->size - m->at) : NULL;
    if (end == NULL) {
        BAD(m, "a name without a line end");
        return false;
    }
    *text = (const char *)start;
    *length = (size_t)(end - start);
    m->at += *length + 1;
    return true;
}

/* ---------------------------------------------------------------- stack */

static th_status push(machine *m, th__node *node)
{
    if (node == NULL) return th__pending();
    return TH__PUSH(m->stack, m->n_stack, m->stack_capacity, node) == 0 ? TH_OK : th__pending();
}

static size_t floor_of(const machine *m) { return m->n_marks > 0 ? m->marks[m->n_marks - 1] : 0; }

static th__node *pop(machine *m)
{
    if (m->n_stack <= floor_of(m)) {
        BAD(m, "the stack is empty");
        return NULL;
    }
    return m->stack[--m->n_stack];
}

static th__node *top(machine *m)
{
    if (m->n_stack <= floor_of(m)) {
        BAD(m, "the stack is empty");
        return NULL;
    }
    return m->stack[m->n_stack - 1];
}

/* Takes the items above the last mark: they stay readable at m->stack[*start .. *start + *count). */
static bool pop_mark(machine *m, size_t *start, size_t *count)
{
    if (m->n_marks == 0) {
        BAD(m, "no mark on the stack");
        return false;
    }
    *start = m->marks[--m->n_marks];
    *count = m->n_stack - *start;
    m->n_stack = *start;
    return true;
}

static th_status push_kind(machine *m, th__node_kind kind) { return push(m, th__node_new(m->arena, kind)); }

static th_status push_int(machine *m, th__node_kind kind, int64_t value)
{
    th__node *node = th__node_new(m->arena, kind);
    if (node != NULL) node->v.i = value;
    return push(m, node);
}

static th_status push_text(machine *m, th__node_kind kind, uint64_t length)
{
    if (length > m->size) return BAD(m, "a text of %llu bytes", (unsigned long long)length);
    const unsigned char *p = take(m, (size_t)length);
    th__node *node = p == NULL ? NULL : th__node_new(m->arena, kind);
    if (node == NULL) return th__pending();
    node->v.text = (const char *)p;
    node->count = (size_t)length;
    return push(m, node);
}

static th_status push_counted(machine *m, th__node_kind kind, size_t length_bytes)
{
    uint64_t length;
    return take_int(m, length_bytes, &length) ? push_text(m, kind, length) : th__pending();
}

static th_status push_long(machine *m, size_t length_bytes)
{
    uint64_t n;
    if (!take_int(m, length_bytes, &n)) return th__pending();
    if (n > 8) {
        TH__TRY(push_text(m, TH__NODE_BIGINT, n));
        return TH_OK;
    }
    const unsigned char *p = take(m, (size_t)n);
    if (p == NULL) return th__pending();
    uint64_t bits = little(p, (size_t)n);
    if (n > 0 && n < 8 && (p[n - 1] & 0x80)) bits |= ~UINT64_C(0) << (8 * n);
    return push_int(m, TH__NODE_INT, (int64_t)bits);
}

static th_status push_float(machine *m)
{
    const unsigned char *p = take(m, 8);
    th__node *node = p == NULL ? NULL : th__node_new(m->arena, TH__NODE_FLOAT);
    if (node == NULL) return th__pending();
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++) bits = bits << 8 | p[i];
    memcpy(&node->v.d, &bits, sizeof bits);
    return push(m, node);
}

static th_status push_items(machine *m, th__node_kind kind, size_t start, size_t count)
{
    th__node *node = th__node_new(m->arena, kind);
    if (node == NULL) return th__pending();
    for (size_t i = 0; i < count; i++) TH__TRY(th__node_push(m->arena, node, m->stack[start + i]));
    return push(m, node);
}

static th_status push_tuple(machine *m, size_t count)
{
    if (m->n_stack - floor_of(m) < count) return BAD(m, "a tuple of %zu items from fewer", count);
    m->n_stack -= count;
    return push_items(m, TH__NODE_TUPLE, m->n_stack, count);
}

static th_status push_marked(machine *m, th__node_kind kind)
{
    size_t start, count;
    if (!pop_mark(m, &start, &count)) return th__pending();
    if (kind == TH__NODE_DICT && count % 2 != 0) return BAD(m, "a dict with a key but no value");
    return push_items(m, kind, start, count);
}

/* ---------------------------------------------------------------- memo */

static th_status memo_put(machine *m, uint64_t index)
{
    th__node *node = top(m);
    if (node == NULL) return th__pending();
    /* Picklers number consecutively; a large jump would only cost memory. */
    if (index > m->memo_used + 65536) return BAD(m, "memo index %llu after %zu entries", (unsigned long long)index, m->memo_used);
    if (index >= m->memo_size) {
        size_t size = m->memo_size == 0 ? 256 : m->memo_size;
        while (size <= index) size *= 2;
        th__node **memo = th__realloc(m->memo, size, sizeof *memo);
        if (memo == NULL) return th__pending();
        memset(memo + m->memo_size, 0, (size - m->memo_size) * sizeof *memo);
        m->memo = memo;
        m->memo_size = size;
    }
    if (m->memo[index] == NULL) m->memo_used++;
    m->memo[index] = node;
    return TH_OK;
}

static th_status memo_get(machine *m, uint64_t index)
{
    if (index >= m->memo_size || m->memo[index] == NULL)
        return BAD(m, "memo entry %llu does not exist", (unsigned long long)index);
    return push(m, m->memo[index]);
}

static th_status memo_op(machine *m, size_t bytes, bool put)
{
    uint64_t index;
    if (!take_int(m, bytes, &index)) return th__pending();
    return put ? memo_put(m, index) : memo_get(m, index);
}

/* ---------------------------------------------------------------- containers that grow */

/* The node that receives the items of APPEND / SETITEM: the container itself, or the items of a call's result. */
static th__node *receiver(machine *m, th__node *target, th__node_kind kind)
{
    if (target == NULL) return NULL;
    if (target->kind == kind) return target;
    if (target->kind == TH__NODE_CALL || target->kind == TH__NODE_OBJECT) {
        if (target->extra == NULL) target->extra = th__node_new(m->arena, kind);
        if (target->extra == NULL || target->extra->kind == kind) return target->extra;
    }
    BAD(m, "items for a %s given to a %s", kind == TH__NODE_DICT ? "dict" : "list", th__node_kind_name(target));
    return NULL;
}

static th_status add_items(machine *m, th__node_kind kind, size_t start, size_t count)
{
    th__node *into = receiver(m, top(m), kind);
    if (into == NULL) return th__pending();
    if (kind == TH__NODE_DICT && count % 2 != 0) return BAD(m, "a dict with a key but no value");
    for (size_t i = 0; i < count; i++) TH__TRY(th__node_push(m->arena, into, m->stack[start + i]));
    return TH_OK;
}

static th_status add_marked(machine *m, th__node_kind kind)
{
    size_t start, count;
    return pop_mark(m, &start, &count) ? add_items(m, kind, start, count) : th__pending();
}

static th_status add_few(machine *m, th__node_kind kind, size_t count)
{
    if (m->n_stack - floor_of(m) < count + 1) return BAD(m, "the stack is empty");
    m->n_stack -= count;
    return add_items(m, kind, m->n_stack, count);
}

/* ---------------------------------------------------------------- globals and calls */

static th_status push_global(machine *m, const char *module, size_t n_module, const char *name, size_t n_name)
{
    th__node *node = th__node_new(m->arena, TH__NODE_GLOBAL);
    if (node == NULL) return th__pending();
    if (n_module == 11 && memcmp(module, "__builtin__", 11) == 0) { /* Python 2's name, which protocol 2 keeps */
        module = "builtins";
        n_module = 8;
    }
    char *text = th__arena_alloc(m->arena, n_module + n_name + 2);
    if (text == NULL) return th__pending();
    memcpy(text, module, n_module);
    text[n_module] = '.';
    memcpy(text + n_module + 1, name, n_name);
    node->v.text = text;
    node->count = n_module + 1 + n_name;
    return push(m, node);
}

static th_status op_global(machine *m)
{
    const char *module, *name;
    size_t n_module, n_name;
    if (!take_line(m, &module, &n_module) || !take_line(m, &name, &n_name)) return th__pending();
    return push_global(m, module, n_module, name, n_name);
}

static th_status op_stack_global(machine *m)
{
    th__node *name = pop(m), *module = name == NULL ? NULL : pop(m);
    if (module == NULL) return th__pending();
    if (name->kind != TH__NODE_TEXT || module->kind != TH__NODE_TEXT) return BAD(m, "a global whose name is no text");
    return push_global(m, module->v.text, module->count, name->v.text, name->count);
}

static th_status op_call(machine *m, th__node_kind kind)
{
    th__node *args = pop(m), *callee = args == NULL ? NULL : pop(m);
    if (callee == NULL) return th__pending();
    if (callee->kind != TH__NODE_GLOBAL) return BAD(m, "a %s is called, which is no known function", th__node_kind_name(callee));
    if (args->kind != TH__NODE_TUPLE) return BAD(m, "a call with a %s instead of a tuple", th__node_kind_name(args));
    th__node *node = th__node_new(m->arena, kind);
    if (node == NULL) return th__pending();
    node->v.call.callee = callee;
    node->v.call.args = args;
    return push(m, node);
}

static th_status op_build(machine *m)
{
    th__node *state = pop(m), *target = state == NULL ? NULL : top(m);
    if (target == NULL) return th__pending();
    if (target->kind != TH__NODE_CALL && target->kind != TH__NODE_OBJECT)
        return BAD(m, "a state is given to a %s", th__node_kind_name(target));
    target->state = state;
    return TH_OK;
}

static th_status op_persistent(machine *m)
{
    th__node *args = pop(m);
    if (args == NULL) return th__pending();
    if (args->kind != TH__NODE_TUPLE) return BAD(m, "a persistent id that is a %s, not a tuple", th__node_kind_name(args));
    th__node *node = th__node_new(m->arena, TH__NODE_PERSISTENT);
    if (node == NULL) return th__pending();
    node->v.call.args = args;
    th__arena_add_persistent(m->arena, node);
    return push(m, node);
}

/* ---------------------------------------------------------------- the loop */

static th_status op_number(machine *m, unsigned char op)
{
    uint64_t v = 0;
    switch (op) {
    case 'J': return take_int(m, 4, &v) ? push_int(m, TH__NODE_INT, (int32_t)(uint32_t)v) : th__pending();
    case 'K': return take_int(m, 1, &v) ? push_int(m, TH__NODE_INT, (int64_t)v) : th__pending();
    case 'M': return take_int(m, 2, &v) ? push_int(m, TH__NODE_INT, (int64_t)v) : th__pending();
    case 0x8a: return push_long(m, 1);
    case 0x8b: return push_long(m, 4);
    default: return push_float(m);
    }
}

static th_status op_skip(machine *m, unsigned char op)
{
    uint64_t v;
    if (op == 0x95) return take_int(m, 8, &v) ? TH_OK : th__pending(); /* FRAME: only a hint */
    if (!take_int(m, 1, &v)) return th__pending();
    return v >= 1 && v <= 5 ? TH_OK : BAD(m, "pickle protocol %d", (int)v);
}

static th_status op_mark(machine *m)
{
    return TH__PUSH(m->marks, m->n_marks, m->marks_capacity, m->n_stack) == 0 ? TH_OK : th__pending();
}

static th_status op_pop(machine *m)
{
    if (m->n_stack > floor_of(m)) {
        m->n_stack--;
        return TH_OK;
    }
    if (m->n_marks == 0) return BAD(m, "the stack is empty");
    m->n_marks--;
    return TH_OK;
}

static th_status step(machine *m, unsigned char op)
{
    size_t start, count;
    switch (op) {
    case 0x80:
    case 0x95: return op_skip(m, op);
    case 'N': return push_kind(m, TH__NODE_NONE);
    case 0x88: return push_int(m, TH__NODE_BOOL, 1);
    case 0x89: return push_int(m, TH__NODE_BOOL, 0);
    case 'J':
    case 'K':
    case 'M':
    case 'G':
    case 0x8a:
    case 0x8b: return op_number(m, op);
    case 'X': return push_counted(m, TH__NODE_TEXT, 4);
    case 0x8c: return push_counted(m, TH__NODE_TEXT, 1);
    case 0x8d: return push_counted(m, TH__NODE_TEXT, 8);
    case 'U': return push_counted(m, TH__NODE_TEXT, 1); /* Python 2's str */
    case 'T': return push_counted(m, TH__NODE_TEXT, 4);
    case 'C': return push_counted(m, TH__NODE_BYTES, 1);
    case 'B': return push_counted(m, TH__NODE_BYTES, 4);
    case 0x8e:
    case 0x96: return push_counted(m, TH__NODE_BYTES, 8);
    case ']': return push_kind(m, TH__NODE_LIST);
    case '}': return push_kind(m, TH__NODE_DICT);
    case ')': return push_kind(m, TH__NODE_TUPLE);
    case 0x8f: return push_kind(m, TH__NODE_SET);
    case '(': return op_mark(m);
    case '0': return op_pop(m);
    case '1': return pop_mark(m, &start, &count) ? TH_OK : th__pending();
    case '2': return push(m, top(m));
    case 't': return push_marked(m, TH__NODE_TUPLE);
    case 'l': return push_marked(m, TH__NODE_LIST);
    case 'd': return push_marked(m, TH__NODE_DICT);
    case 0x91: return push_marked(m, TH__NODE_SET);
    case 0x85: return push_tuple(m, 1);
    case 0x86: return push_tuple(m, 2);
    case 0x87: return push_tuple(m, 3);
    case 'a': return add_few(m, TH__NODE_LIST, 1);
    case 'e': return add_marked(m, TH__NODE_LIST);
    case 's': return add_few(m, TH__NODE_DICT, 2);
    case 'u': return add_marked(m, TH__NODE_DICT);
    case 0x90: return add_marked(m, TH__NODE_SET);
    case 'q': return memo_op(m, 1, true);
    case 'r': return memo_op(m, 4, true);
    case 0x94: return memo_put(m, m->memo_used);
    case 'h': return memo_op(m, 1, false);
    case 'j': return memo_op(m, 4, false);
    case 'c': return op_global(m);
    case 0x93: return op_stack_global(m);
    case 'R': return op_call(m, TH__NODE_CALL);
    case 0x81: return op_call(m, TH__NODE_OBJECT);
    case 'b': return op_build(m);
    case 'Q': return op_persistent(m);
    default: m->at--; return BAD(m, "opcode 0x%02x ('%c') is not allowed", op, op >= 0x20 && op < 0x7f ? op : '?');
    }
}

th__node *th__pickle_read(th__arena *arena, const void *data, size_t size, size_t *used, const char *what)
{
    machine m = {.arena = arena, .data = data, .size = size, .what = what};
    th__node *result = NULL;
    while (th__pending() == TH_OK) {
        if (m.at >= m.size) {
            BAD(&m, "the pickle has no end");
            break;
        }
        unsigned char op = m.data[m.at++];
        if (op == '.') {
            if (m.n_stack != 1 || m.n_marks != 0)
                BAD(&m, "%zu items on the stack at the end, not one", m.n_stack);
            else
                result = m.stack[0];
            break;
        }
        step(&m, op);
    }
    if (used != NULL) *used = m.at;
    free(m.stack);
    free(m.marks);
    free(m.memo);
    return result;
}
