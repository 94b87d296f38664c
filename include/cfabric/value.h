/* cfabric/value.h: nested values, as Python's None, bool, int, float, str, bytes, list, tuple and dict with tensors in them.
 *
 * State dicts, checkpoints and nested collectives are values. A value is reference counted. */
#ifndef CFABRIC_VALUE_H
#define CFABRIC_VALUE_H

#include <cfabric/tensor.h>

TH_BEGIN_DECLS

typedef enum th_value_kind {
    TH_VALUE_NONE = 0, TH_VALUE_BOOL, TH_VALUE_INT, TH_VALUE_DOUBLE, TH_VALUE_STRING, TH_VALUE_BYTES, TH_VALUE_TENSOR,
    TH_VALUE_LIST, TH_VALUE_TUPLE, TH_VALUE_DICT, TH_VALUE_OBJECT
} th_value_kind;

/* ---- making values. [owned]: th_value_free, or hand over to th_value_append / th_value_set, which consume it. */
FABRIC_API th_value *th_value_none(void);
FABRIC_API th_value *th_value_bool(bool v);
FABRIC_API th_value *th_value_int(int64_t v);
FABRIC_API th_value *th_value_double(double v);
/** Copies the text. */
FABRIC_API th_value *th_value_string(const char *text);
FABRIC_API th_value *th_value_bytes(const void *data, size_t size);
/** Retains the tensor (no copy of its data). */
FABRIC_API th_value *th_value_tensor(th_tensor *tensor);
FABRIC_API th_value *th_value_list(void);
FABRIC_API th_value *th_value_tuple(void);
/** A dict that keeps insertion order, as Python's. */
FABRIC_API th_value *th_value_dict(void);

/** What a stateful object can do; th_state() wraps modules, optimizers, schedulers, loaders and generators in such objects. */
typedef struct th_stateful {
    size_t size;                                              /**< sizeof(th_stateful) */
    const char *type;                                         /**< "module", "optimizer", ...; shown in errors */
    th_value *(*state_dict)(void *object);                    /**< [owned] */
    th_status (*load_state_dict)(void *object, th_value *state, bool strict);
} th_stateful;
/** A live object in a state: saved through state_dict, restored in place through load_state_dict. `object` is borrowed. */
FABRIC_API th_value *th_value_object(const th_stateful *ops, void *object);

FABRIC_API th_value *th_value_retain(th_value *value);
/** NULL is allowed. */
FABRIC_API void th_value_free(th_value *value);

/* ---- containers. append and set consume `item` (also on error); item NULL only propagates a pending error. */
FABRIC_API th_status th_value_append(th_value *list_or_tuple, th_value *item);
/** Sets or replaces a key. */
FABRIC_API th_status th_value_set(th_value *dict, const char *key, th_value *item);
FABRIC_API th_status th_value_set_int(th_value *dict, int64_t key, th_value *item);
/** Removes a key; absent is no error. Returns whether it was there. */
FABRIC_API bool th_value_remove(th_value *dict, const char *key);

/* ---- reading. NULL-safe: a NULL value has kind TH_VALUE_NONE and size 0. Results are [borrowed] from the container. */
FABRIC_API th_value_kind th_value_kind_of(const th_value *value);
FABRIC_API const char *th_value_kind_name(th_value_kind kind);
FABRIC_API size_t th_value_size(const th_value *container);
/** NULL if out of range. For dicts the i-th value in insertion order. */
FABRIC_API th_value *th_value_at(const th_value *container, size_t i);
/** The i-th key of a dict: its text, or NULL when that key is an int (then *int_key is set; int_key may be NULL). */
FABRIC_API const char *th_value_key_at(const th_value *dict, size_t i, int64_t *int_key);
/** NULL if absent (no error). */
FABRIC_API th_value *th_value_get(const th_value *dict, const char *key);
FABRIC_API th_value *th_value_get_int(const th_value *dict, int64_t key);
/** The payload; a value of another kind gives the fallback. as_double and as_int convert between numbers. */
FABRIC_API bool th_value_as_bool(const th_value *value, bool fallback);
FABRIC_API int64_t th_value_as_int(const th_value *value, int64_t fallback);
FABRIC_API double th_value_as_double(const th_value *value, double fallback);
FABRIC_API const char *th_value_as_string(const th_value *value, const char *fallback);
FABRIC_API const void *th_value_as_bytes(const th_value *value, size_t *size);
/** [borrowed] from the value; NULL if it is not a tensor. */
FABRIC_API th_tensor *th_value_as_tensor(const th_value *value);
FABRIC_API const th_stateful *th_value_as_object(const th_value *value, void **object);

/** A deep copy of the containers; tensors are shared, or cloned when `clone_tensors`. [owned] */
FABRIC_API th_value *th_value_copy(const th_value *value, bool clone_tensors);
/** Calls `fn` for every tensor in the tree, depth first; fn returns the tensor to put in its place (itself for no change) or NULL
 * with an error set. Used by collectives and device moves. */
FABRIC_API th_status th_value_map_tensors(th_value *value, th_tensor *(*fn)(th_tensor *tensor, void *user), void *user);
/** Same structure, keys and payloads; tensors compare dtype, sizes and bits. */
FABRIC_API bool th_value_equal(const th_value *a, const th_value *b);
/** Python-like text, tensors as tensor(dtype, sizes). [owned] free() it. */
FABRIC_API char *th_value_to_string(const th_value *value);

/* ---- from C things to values: th_state(x) picks by type. [owned] */
FABRIC_API th_value *th_state_module(th_module *module);
FABRIC_API th_value *th_state_optimizer(th_optimizer *optimizer);
FABRIC_API th_value *th_state_scheduler(th_scheduler *scheduler);
FABRIC_API th_value *th_state_dataloader(th_dataloader *loader);
FABRIC_API th_value *th_state_generator(th_generator *generator);
static inline th_value *th__state_value(th_value *v) { return v; }
#ifndef __cplusplus
#define th_state(x)                                                                                                       \
    _Generic((x), th_module *: th_state_module, th_optimizer *: th_state_optimizer, th_scheduler *: th_state_scheduler,  \
             th_dataloader *: th_state_dataloader, th_generator *: th_state_generator, th_tensor *: th_value_tensor,     \
             th_value *: th__state_value, char *: th_value_string, const char *: th_value_string,                        \
             float: th_value_double, double: th_value_double, bool: th_value_bool, default: th_value_int)(x)
#endif

typedef struct th_state_entry { const char *key; th_value *value; } th_state_entry;
/** A dict from entries; consumes their values. [owned] */
FABRIC_API th_value *th_state_of(const th_state_entry *entries, size_t n);
#ifndef __cplusplus
/** TH_STATE({"model", th_state(model)}, {"epoch", th_state(epoch)}): a dict. [owned] */
#define TH_STATE(...) \
    th_state_of((const th_state_entry[]){__VA_ARGS__}, sizeof((const th_state_entry[]){__VA_ARGS__}) / sizeof(th_state_entry))
#endif

TH_END_DECLS
#endif
