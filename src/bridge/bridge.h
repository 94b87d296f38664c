/* bridge/bridge.h: the pure-C face of everything that is C++. Every function is noexcept: failures become the pending error.
 *
 * Functions of the public headers that need no work in C (th_from_blob, th_backward, ...) are implemented in the bridge under their
 * own names; this header adds what only the library's C rooms use. */
#ifndef FABRIC_BRIDGE_H
#define FABRIC_BRIDGE_H

#include <cfabric/autograd.h>
#include <cfabric/tensor.h>

TH_BEGIN_DECLS

/* ---------------------------------------------------------------- handles */

#define TH__TENSOR_LIVE 0x7e450a11u
#define TH__TENSOR_DEAD 0x7e45deadu

struct th__thread_scope;

/* A handle: one at::Tensor (which is one counted pointer) and where it hangs. */
struct th_tensor {
    uint32_t magic;
    uint32_t slot;                    /* index in home's list */
    struct th__thread_scope *home;    /* the thread scope that owns it; NULL: [owned] by the caller or by an object */
    void *impl;                       /* storage of the at::Tensor; only the bridge looks inside */
    const char *creator;              /* operator that made it; static text */
};

/* Ends the at::Tensor but keeps the handle's memory (debug quarantine) / frees the whole handle. Neither touches scopes. */
void th__handle_clear(th_tensor *tensor);
void th__handle_destroy(th_tensor *tensor);
/* A new handle to the same tensor, in no scope. */
th_tensor *th__handle_dup(const th_tensor *tensor);
/* Implemented by tensor/scope.c: hangs a fresh handle into the innermost scope. On failure the handle is destroyed, NULL. */
th_tensor *th__scope_adopt(th_tensor *tensor);

/* True once this process has made a tensor: a later fork without exec is an error. */
bool th__engine_has_run(void);

/* ---------------------------------------------------------------- operators */

/* A call site of an operator; `plan` is filled at the first call. */
typedef struct th__op {
    const char *name, *overload;
    void *plan;
} th__op;

/* Calls boxed. `args` are in schema order; TH_ARG_NONE means None or the schema's default. Results that alias an argument (in-place
 * and out forms) return that argument's handle. Returns the number of results or a negative status. */
int th__op_call(th__op *op, const th_arg *args, size_t n_args, th_arg *results, size_t n_results);
/* The same for the usual case of exactly one tensor result. [scoped] */
th_tensor *th__op_call_tensor(th__op *op, const th_arg *args, size_t n_args);

/* What a schema says about one argument or result; the generator's input. */
typedef enum th__type {
    TH__TYPE_UNSUPPORTED = 0, TH__TYPE_TENSOR, TH__TYPE_SCALAR, TH__TYPE_INT, TH__TYPE_DOUBLE, TH__TYPE_BOOL, TH__TYPE_STRING,
    TH__TYPE_INTS, TH__TYPE_DOUBLES, TH__TYPE_BOOLS, TH__TYPE_TENSORS, TH__TYPE_SCALARS, TH__TYPE_DTYPE, TH__TYPE_LAYOUT,
    TH__TYPE_MEMORY_FORMAT, TH__TYPE_DEVICE, TH__TYPE_GENERATOR
} th__type;

typedef struct th__schema_arg {
    const char *name;          /* "" for unnamed results */
    const char *type_text;     /* as in the schema */
    th__type type;
    bool optional;
    bool optional_elements;    /* Tensor?[] */
    bool kwarg_only;
    bool has_default;
    const char *default_text;  /* "" without a default */
    int64_t default_int;       /* TH__TYPE_INT and TH__TYPE_BOOL */
    double default_double;     /* TH__TYPE_DOUBLE */
    int alias_of;              /* results: the argument whose handle is returned, -1 for a new tensor */
} th__schema_arg;

typedef struct th__schema {
    const char *name, *overload, *text;
    const th__schema_arg *args, *results;
    size_t n_args, n_results;
} th__schema;

/* Visits the schema of every registered operator, sorted by name and overload, until fn returns non-zero. */
int th__schema_each(int (*fn)(const th__schema *schema, void *user), void *user);

/* True if an operator has a kernel registered for the CPU ("aten::_fused_adamw_"). No error. */
bool th__op_has_cpu_kernel(const char *name, const char *overload);

/* ---------------------------------------------------------------- storage surgery, for sharding and checkpoints */

/* A tensor over the storage of `bytes` with its own dtype, offset (elements), sizes and strides. [scoped] */
th_tensor *th__tensor_on_storage(th_tensor *bytes, th_dtype dtype, int64_t offset, th_ints sizes, th_ints strides);
/* The start of the whole storage and its size in bytes. */
void *th__storage_data(th_tensor *tensor, size_t *bytes);
/* Frees / reallocates the storage's memory in place; views keep pointing at it. */
th_status th__storage_free(th_tensor *tensor);
th_status th__storage_alloc(th_tensor *tensor, size_t bytes);
/* Bumps the version counter, as an in-place write does. */
th_status th__bump_version(th_tensor *tensor);

/* "MulBackward0": the name of the graph node that made the tensor, NULL for a leaf. [owned] free() */
char *th__grad_fn_name(th_tensor *tensor);

/* ---------------------------------------------------------------- devices, configuration */

int th__cuda_device_count(void);
bool th__mps_is_available(void);
/* torch.cuda.set_device, for any kind of device that has a current one. */
th_status th__set_current_device(th_device device);
/* torch.cuda.empty_cache, where this libtorch can do it without CUDA's headers (2.9); otherwise nothing. */
th_status th__empty_device_cache(th_device_type type);
/* True while float32 matrix products use full float32 (torch.get_float32_matmul_precision() == "highest"). */
bool th__float32_matmul_is_highest(void);
/* Parallel backend, BLAS, versions: the text of torch.__config__.show(). [owned] free() */
char *th__engine_config(void);

/* ---------------------------------------------------------------- autocast, thread-local */

typedef struct th__autocast_state { th_device_type device; th_dtype dtype; bool enabled; bool entered; } th__autocast_state;
/* Enters torch.autocast(device, dtype, enabled) and fills `old` for th__autocast_exit. */
th_status th__autocast_enter(th_device_type device, th_dtype dtype, bool enabled, th__autocast_state *old);
/* Works with an error pending. Nothing happens for a state that was not entered. */
void th__autocast_exit(const th__autocast_state *old);
/* Can autocast on that device compute in that dtype? */
bool th__autocast_supports(th_device_type device, th_dtype dtype);
/* th_set_default_dtype for leaving a region: works with an error pending. */
void th__restore_default_dtype(th_dtype dtype);
/* Do float16 matrix products exist on the CPU? They came with 2.x. */
bool th__half_works_on_cpu(void);

TH_END_DECLS
#endif
