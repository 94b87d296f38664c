/* cfabric/tensor.h: tensors, and the small value types that operators take.
 *
 * The operators themselves are in <cfabric/ops.h>, generated from the schemas of the libtorch that cfabric was built against. */
#ifndef CFABRIC_TENSOR_H
#define CFABRIC_TENSOR_H

#include <cfabric/base.h>

TH_BEGIN_DECLS

/* ---------------------------------------------------------------- dtype, layout, memory format, device */

/** torch.dtype. Zero means "not given". The numbers are cfabric's and do not change. */
typedef enum th_dtype {
    TH_DTYPE_NONE = 0,
    TH_UINT8 = 1,
    TH_INT8 = 2,
    TH_INT16 = 3,
    TH_INT32 = 4,
    TH_INT64 = 5,
    TH_FLOAT16 = 6,
    TH_FLOAT32 = 7,
    TH_FLOAT64 = 8,
    TH_COMPLEX32 = 9,
    TH_COMPLEX64 = 10,
    TH_COMPLEX128 = 11,
    TH_BOOL = 12,
    TH_QINT8 = 13,
    TH_QUINT8 = 14,
    TH_QINT32 = 15,
    TH_BFLOAT16 = 16,
    TH_FLOAT8_E5M2 = 24, /* libtorch 2.1 and later, as those below */
    TH_FLOAT8_E4M3FN = 25,
    TH_FLOAT8_E5M2FNUZ = 26,
    TH_FLOAT8_E4M3FNUZ = 27,
    TH_UINT16 = 28,
    TH_UINT32 = 29,
    TH_UINT64 = 30
} th_dtype;

/** torch.layout; zero means "not given". */
typedef enum th_layout { TH_LAYOUT_NONE = 0, TH_STRIDED = 1, TH_SPARSE = 2, TH_SPARSE_CSR = 3 } th_layout;

/** torch.memory_format; zero means "not given". */
typedef enum th_memory_format {
    TH_MEMORY_FORMAT_NONE = 0,
    TH_CONTIGUOUS_FORMAT = 1,
    TH_PRESERVE_FORMAT = 2,
    TH_CHANNELS_LAST = 3,
    TH_CHANNELS_LAST_3D = 4
} th_memory_format;

typedef enum th_device_type {
    TH_DEVICE_NONE = 0, /**< not given */
    TH_DEVICE_CPU = 1,
    TH_DEVICE_CUDA = 2,
    TH_DEVICE_MPS = 3,
    TH_DEVICE_XLA = 4,
    TH_DEVICE_META = 5,
    TH_DEVICE_OTHER = 6
} th_device_type;

/** torch.device. index -1 is the current device of that type. All zero means "not given". */
typedef struct th_device {
    th_device_type type;
    int index;
} th_device;

#ifdef __cplusplus
#define TH__LIT(type) type
#else
#define TH__LIT(type) (type)
#endif
#define TH_DEVICE(type, index) (TH__LIT(th_device){(type), (index)})
#define TH_CPU TH_DEVICE(TH_DEVICE_CPU, -1)
#define TH_CUDA(index) TH_DEVICE(TH_DEVICE_CUDA, (index))
#define TH_META TH_DEVICE(TH_DEVICE_META, -1)

/** Reads "cpu", "cuda", "cuda:1", "mps", "meta". Another text is a ValueError that names it. */
FABRIC_API th_device th_device_parse(const char *text);
/** Writes a device as PyTorch does ("cuda:1"). Returns `buffer`, always terminated. */
FABRIC_API const char *th_device_format(th_device device, char *buffer, size_t size);
/** "float32" for TH_FLOAT32. Never NULL. */
FABRIC_API const char *th_dtype_name(th_dtype dtype);
/** TH_FLOAT32 for "float32" or "torch.float32" or "float"; TH_DTYPE_NONE if unknown (no error). */
FABRIC_API th_dtype th_dtype_parse(const char *name);
/** Bytes of one element, 0 for an unknown dtype. */
FABRIC_API size_t th_dtype_size(th_dtype dtype);
FABRIC_API bool th_dtype_is_floating_point(th_dtype dtype);
FABRIC_API bool th_dtype_is_complex(th_dtype dtype);
/** torch.get_default_dtype / torch.set_default_dtype: what factories use for floating tensors. Process-wide. */
FABRIC_API th_dtype th_get_default_dtype(void);
FABRIC_API th_status th_set_default_dtype(th_dtype dtype);

/* ---------------------------------------------------------------- scalars, optionals, lists */

typedef enum th_scalar_kind {
    TH_SCALAR_NONE = 0,
    TH_SCALAR_INT,
    TH_SCALAR_DOUBLE,
    TH_SCALAR_BOOL,
    TH_SCALAR_COMPLEX
} th_scalar_kind;

/** A Python number. All zero means "not given". Make one with TH_S(x): an int stays an int, a double a double. */
typedef struct th_scalar {
    th_scalar_kind kind;
    int64_t i;    /**< TH_SCALAR_INT, and 0 or 1 for TH_SCALAR_BOOL */
    double d;     /**< TH_SCALAR_DOUBLE, and the real part */
    double imag;  /**< TH_SCALAR_COMPLEX */
} th_scalar;

static inline th_scalar th_scalar_int(int64_t v) { th_scalar s = {TH_SCALAR_INT, v, 0.0, 0.0}; return s; }
static inline th_scalar th_scalar_double(double v) { th_scalar s = {TH_SCALAR_DOUBLE, 0, v, 0.0}; return s; }
static inline th_scalar th_scalar_bool(bool v) { th_scalar s = {TH_SCALAR_BOOL, v, 0.0, 0.0}; return s; }
static inline th_scalar th_scalar_complex(double re, double im) { th_scalar s = {TH_SCALAR_COMPLEX, 0, re, im}; return s; }

/** An optional int, float or bool argument: all zero is None. */
typedef struct th_opt_int { bool has; int64_t value; } th_opt_int;
typedef struct th_opt_double { bool has; double value; } th_opt_double;
typedef struct th_opt_bool { bool has; bool value; } th_opt_bool;
#define TH_INT(x) (TH__LIT(th_opt_int){true, (x)})
#define TH_DOUBLE(x) (TH__LIT(th_opt_double){true, (x)})
#define TH_SOME_BOOL(x) (TH__LIT(th_opt_bool){true, (x)})

/** Lists. They do not own their elements. `data` NULL means "not given" (None, or the schema's default). */
typedef struct th_ints { const int64_t *data; size_t size; } th_ints;
typedef struct th_doubles { const double *data; size_t size; } th_doubles;
typedef struct th_bools { const bool *data; size_t size; } th_bools;
typedef struct th_scalars { const th_scalar *data; size_t size; } th_scalars;
typedef struct th_tensors { th_tensor *const *data; size_t size; } th_tensors;

#ifndef __cplusplus
#define TH_S(x) \
    _Generic((x), float: th_scalar_double, double: th_scalar_double, bool: th_scalar_bool, default: th_scalar_int)(x)
#define TH_INTS(...) \
    ((th_ints){(const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)})
#define TH_DOUBLES(...) \
    ((th_doubles){(const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double)})
#define TH_BOOLS(...) ((th_bools){(const bool[]){__VA_ARGS__}, sizeof((const bool[]){__VA_ARGS__}) / sizeof(bool)})
#define TH_SCALARS(...) \
    ((th_scalars){(const th_scalar[]){__VA_ARGS__}, sizeof((const th_scalar[]){__VA_ARGS__}) / sizeof(th_scalar)})
#define TH_TENSORS(...) \
    ((th_tensors){(th_tensor *const[]){__VA_ARGS__}, sizeof((th_tensor *const[]){__VA_ARGS__}) / sizeof(th_tensor *)})
/** An empty list that is given (not None), for example the shape of a 0-dimensional tensor. */
#define TH_NO_INTS ((th_ints){(const int64_t[]){0}, 0})
#endif

/* ---------------------------------------------------------------- from and to C memory */

/** torch.tensor: copies `sizes` elements of `dtype` from C memory (dense, row-major) into a new CPU tensor. [scoped] */
FABRIC_API th_tensor *th_tensor_from(const void *data, th_ints sizes, th_dtype dtype);

/** A 0-dimensional tensor of a number; `dtype` TH_DTYPE_NONE means int64, the default dtype, or bool. [scoped] */
FABRIC_API th_tensor *th_tensor_scalar(th_scalar value, th_dtype dtype);

struct th_from_blob_args {
    void *data;
    th_ints sizes;
    th_dtype dtype;
    th_ints strides;                           /**< in elements; not given: dense, row-major */
    void (*deleter)(void *data, void *user);   /**< called once, on whichever thread drops the last reference; may be NULL */
    void *user;
    th_device device;                          /**< where `data` lies; not given: CPU */
};
/** torch.from_blob: wraps memory without copying. `data` must outlive every reference; `deleter` tells when they are gone. If the
 * call fails the deleter is not called. [scoped] */
FABRIC_API th_tensor *th_from_blob_call(struct th_from_blob_args args);
#define th_from_blob(...) th_from_blob_call((struct th_from_blob_args){.data = __VA_ARGS__})

/** Copies the elements, dense and row-major, converted to `dtype`, into `out`, which holds `size` bytes. A size that does not
 * match exactly is a ValueError naming both. Reads from any device. */
FABRIC_API th_status th_copy_to(th_tensor *tensor, void *out, size_t size, th_dtype dtype);

/** The address of the first element. NULL for tensors without memory (meta). [borrowed] from the tensor. */
FABRIC_API void *th_data_ptr(th_tensor *tensor);

/** Tensor.item() as a double / as an int64. More than one element is a ValueError. NaN / 0 with an error pending. */
FABRIC_API double th_item(th_tensor *tensor);
FABRIC_API int64_t th_item_int(th_tensor *tensor);

/* ---------------------------------------------------------------- looking at a tensor */

/** Number of dimensions, -1 with an error pending. */
FABRIC_API int64_t th_dim(th_tensor *tensor);
/** Size of one dimension; negative dims count from the end. -1 with an error pending. */
FABRIC_API int64_t th_size(th_tensor *tensor, int64_t dim);
/** Stride of one dimension in elements. */
FABRIC_API int64_t th_stride(th_tensor *tensor, int64_t dim);
/** All sizes / strides. [borrowed] from the tensor; ends when the tensor is resized or freed. */
FABRIC_API th_ints th_sizes(th_tensor *tensor);
FABRIC_API th_ints th_strides(th_tensor *tensor);
FABRIC_API int64_t th_numel(th_tensor *tensor);
FABRIC_API int64_t th_storage_offset(th_tensor *tensor);
FABRIC_API th_dtype th_dtype_of(th_tensor *tensor);
FABRIC_API th_device th_device_of(th_tensor *tensor);
/** TH_STRIDED for dense tensors; TH_LAYOUT_NONE for layouts this header has no name for, and with an error pending. */
FABRIC_API th_layout th_layout_of(th_tensor *tensor);
FABRIC_API bool th_is_contiguous_of(th_tensor *tensor);
/** Tensor.nbytes: elements times element size. */
FABRIC_API size_t th_nbytes(th_tensor *tensor);
/** True when both handles are the same tensor object (Python's `is`). */
FABRIC_API bool th_is_same(const th_tensor *a, const th_tensor *b);
/** An address that is equal for two tensors exactly when they share a storage. */
FABRIC_API const void *th_storage_id(th_tensor *tensor);

/* ---------------------------------------------------------------- printing */

/** Prints a tensor to stdout as Python's print(tensor) does, and a newline. */
FABRIC_API void th_print(th_tensor *tensor);
/** The same text as a string. [owned] free() it. NULL with an error pending. */
FABRIC_API char *th_to_string(th_tensor *tensor);

/* ---------------------------------------------------------------- any operator by its name */

typedef enum th_arg_kind {
    TH_ARG_NONE = 0, TH_ARG_TENSOR, TH_ARG_SCALAR, TH_ARG_INT, TH_ARG_DOUBLE, TH_ARG_BOOL, TH_ARG_STRING, TH_ARG_INTS,
    TH_ARG_DOUBLES, TH_ARG_BOOLS, TH_ARG_TENSORS, TH_ARG_DTYPE, TH_ARG_LAYOUT, TH_ARG_MEMORY_FORMAT, TH_ARG_DEVICE,
    TH_ARG_GENERATOR, TH_ARG_SCALARS
} th_arg_kind;

/** One argument or result of a boxed operator call. */
typedef struct th_arg {
    th_arg_kind kind;
    union {
        th_tensor *tensor;
        th_scalar scalar;
        int64_t i;
        double d;
        bool b;
        const char *s;
        th_ints ints;
        th_doubles doubles;
        th_bools bools;
        th_scalars scalars;
        th_tensors tensors;
        th_dtype dtype;
        th_layout layout;
        th_memory_format memory_format;
        th_device device;
        th_generator *generator;
    } v;
} th_arg;

/** Calls any registered operator, "namespace::name" or "namespace::name.overload", with its arguments in schema order; missing
 * trailing arguments take the schema's defaults. Up to `n_results` results are written; tensors are [scoped]. Returns the
 * number of results, or a negative status. */
FABRIC_API int th_call_args(const char *op, const th_arg *args, size_t n_args, th_arg *results, size_t n_results);

/** The same for operators that take tensors (and macros of th_arg: TH_A_INT(3)...) and return one tensor. [scoped]
 *     th_call("aten::add.Tensor", TH_A(x), TH_A(y), TH_A_SCALAR(TH_S(2)))  */
FABRIC_API th_tensor *th_call_one(const char *op, const th_arg *args, size_t n_args);
#ifndef __cplusplus
#define th_call(op, ...) \
    th_call_one(op, (const th_arg[]){__VA_ARGS__}, sizeof((const th_arg[]){__VA_ARGS__}) / sizeof(th_arg))
#define TH_A(x) {.kind = TH_ARG_TENSOR, .v.tensor = (x)}
#define TH_A_SCALAR(x) {.kind = TH_ARG_SCALAR, .v.scalar = (x)}
#define TH_A_INT(x) {.kind = TH_ARG_INT, .v.i = (x)}
#define TH_A_DOUBLE(x) {.kind = TH_ARG_DOUBLE, .v.d = (x)}
#define TH_A_BOOL(x) {.kind = TH_ARG_BOOL, .v.b = (x)}
#define TH_A_STRING(x) {.kind = TH_ARG_STRING, .v.s = (x)}
#define TH_A_INTS(x) {.kind = TH_ARG_INTS, .v.ints = (x)}
#define TH_A_TENSORS(x) {.kind = TH_ARG_TENSORS, .v.tensors = (x)}
#define TH_A_DTYPE(x) {.kind = TH_ARG_DTYPE, .v.dtype = (x)}
#define TH_A_NONE {.kind = TH_ARG_NONE}
#endif

/** Loads a shared library that registers operators of its own (torch.ops.load_library). */
FABRIC_API th_status th_load_library(const char *path);

/** True when the linked libtorch has this operator ("aten::relu"). No error. */
FABRIC_API bool th_has_op(const char *op);

/* ---------------------------------------------------------------- random numbers, threads */

/** torch.manual_seed: seeds the default generators of every device. */
FABRIC_API th_status th_manual_seed(uint64_t seed);
/** torch.initial_seed of the default CPU generator. */
FABRIC_API uint64_t th_initial_seed(void);
/** The default CPU generator. [borrowed] */
FABRIC_API th_generator *th_default_generator(void);
/** torch.Generator(): a CPU generator with a fixed default seed. [owned] th_generator_free. */
FABRIC_API FABRIC_NODISCARD th_generator *th_generator_new(th_device device);
FABRIC_API void th_generator_free(th_generator *generator);
FABRIC_API th_status th_generator_manual_seed(th_generator *generator, uint64_t seed);
/** Generator.get_state: a uint8 tensor in PyTorch's layout. [scoped] */
FABRIC_API th_tensor *th_generator_get_state(th_generator *generator);
FABRIC_API th_status th_generator_set_state(th_generator *generator, th_tensor *state);
/** The next 64 random bits of a generator (what torch.empty((), dtype=int64).random_() consumes). */
FABRIC_API uint64_t th_generator_random64(th_generator *generator);
/** torch.get_rng_state / set_rng_state of the default CPU generator. [scoped] */
FABRIC_API th_tensor *th_get_rng_state(void);
FABRIC_API th_status th_set_rng_state(th_tensor *state);

/** torch.set_float32_matmul_precision: "highest" (the default), "high" or "medium" let float32 matrix products use tensor cores. */
FABRIC_API th_status th_set_float32_matmul_precision(const char *precision);

FABRIC_API int th_get_num_threads(void);
FABRIC_API th_status th_set_num_threads(int threads);
/** The version of the libtorch that is running, for example "2.13.0". */
FABRIC_API const char *th_torch_version(void);

TH_END_DECLS

#ifdef __cplusplus
extern "C++" {
static inline th_scalar TH_S(int v) { return th_scalar_int(v); }
static inline th_scalar TH_S(int64_t v) { return th_scalar_int(v); }
static inline th_scalar TH_S(double v) { return th_scalar_double(v); }
static inline th_scalar TH_S(bool v) { return th_scalar_bool(v); }
}
#endif
#endif
