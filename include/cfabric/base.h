/* cfabric/base.h: what every other header needs. Attributes, version, status codes, opaque types. */
#ifndef CFABRIC_BASE_H
#define CFABRIC_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CFABRIC_VERSION_MAJOR 0
#define CFABRIC_VERSION_MINOR 1
#define CFABRIC_VERSION_PATCH 0
#define CFABRIC_VERSION "0.1.0"

#ifdef __cplusplus
#define TH_BEGIN_DECLS extern "C" {
#define TH_END_DECLS }
#else
#define TH_BEGIN_DECLS
#define TH_END_DECLS
#endif

#if defined(__GNUC__)
#define FABRIC_API __attribute__((visibility("default")))
#define FABRIC_NODISCARD __attribute__((warn_unused_result))
#define FABRIC_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
/* Keyword macros put the defaults first and the caller's fields last, as Python does; overriding a default is the point of
 * them, so the one warning that objects is switched off here. See docs/guide/conventions.md. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Winitializer-overrides"
#elif !defined(__cplusplus)
#pragma GCC diagnostic ignored "-Woverride-init"
#endif
#else
#define FABRIC_API
#define FABRIC_NODISCARD
#define FABRIC_PRINTF(fmt, first)
#endif

TH_BEGIN_DECLS

/** What went wrong. Zero is success; everything else is negative. The names follow the exceptions PyTorch and Fabric raise. */
typedef enum th_status {
    TH_OK = 0,
    TH_ERR_VALUE = -1,           /**< ValueError: a value outside what is accepted */
    TH_ERR_TYPE = -2,            /**< TypeError: a wrong kind of object or dtype */
    TH_ERR_RUNTIME = -3,         /**< RuntimeError: called at the wrong time or in the wrong state */
    TH_ERR_KEY = -4,             /**< KeyError: a name that is not there */
    TH_ERR_NOT_FOUND = -5,       /**< FileNotFoundError */
    TH_ERR_IO = -6,              /**< OSError: reading or writing failed */
    TH_ERR_NOT_IMPLEMENTED = -7, /**< NotImplementedError */
    TH_ERR_UNAVAILABLE = -8,     /**< the name is known, this machine or build cannot do it */
    TH_ERR_TIMEOUT = -9,         /**< a deadline passed */
    TH_ERR_MEMORY = -10,         /**< out of memory */
    TH_ERR_ENGINE = -11,         /**< libtorch refused (c10::Error): shapes, dtypes, missing kernels */
    TH_ERR_DATA = -12,           /**< a file's contents are damaged or not of the expected format */
    TH_ERR_DISTRIBUTED = -13,    /**< a peer failed or ranks disagree */
    TH_ERR_CALLBACK = -14,       /**< a user's callback said stop without setting an error of its own */
    TH_ERR_FORKED = -15,         /**< used in a child that was forked after libtorch had run */
    TH_ERR_INTERNAL = -16        /**< a bug in cfabric */
} th_status;

/** The name of a status, for example "ValueError". Never NULL. Any thread. */
FABRIC_API const char *th_status_name(th_status status);

/** The version of the cfabric library that is running, "major.minor.patch". Any thread. */
FABRIC_API const char *fabric_version(void);

typedef struct th_tensor th_tensor;       /**< a handle to a torch.Tensor */
typedef struct th_generator th_generator; /**< a torch.Generator */
typedef struct th_value th_value;         /**< a nested Python-like value: see value.h */
typedef struct th_module th_module;       /**< an nn.Module */
typedef struct th_optimizer th_optimizer; /**< an optim.Optimizer */
typedef struct th_scheduler th_scheduler; /**< an optim.lr_scheduler */
typedef struct th_dataset th_dataset;     /**< a utils.data.Dataset */
typedef struct th_sampler th_sampler;     /**< a utils.data.Sampler */
typedef struct th_dataloader th_dataloader; /**< a utils.data.DataLoader */
typedef struct fabric fabric;             /**< a lightning Fabric */

TH_END_DECLS
#endif
