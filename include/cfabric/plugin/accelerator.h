/* cfabric/plugin/accelerator.h: writing an accelerator (lightning.fabric.accelerators). */
#ifndef CFABRIC_PLUGIN_ACCELERATOR_H
#define CFABRIC_PLUGIN_ACCELERATOR_H

#include <cfabric/plugin/types.h>

TH_BEGIN_DECLS

typedef struct fabric_accelerator_ops {
    size_t size;                                          /**< sizeof(fabric_accelerator_ops) */
    const char *name;                                     /**< "cuda": the name in the registry and in messages */
    const char *class_name;                               /**< "CUDAAccelerator", for messages. NULL: the name */
    /** Can it be used here? NULL: always. */
    bool (*is_available)(fabric_accelerator *accelerator);
    /** Why not, one line without a full stop. NULL: "no such hardware was found". */
    const char *(*unavailable_reason)(fabric_accelerator *accelerator);
    /** Devices that `devices="auto"` means. NULL: 1. */
    int (*auto_device_count)(fabric_accelerator *accelerator);
    /** Reads `devices` ("2", "0,1", "-1") into at most `capacity` devices; "auto" never comes here. Returns how many there are, which may
     * be more than `capacity`, or a negative status with an error raised. NULL: a positive number N of equal devices. */
    int (*parse_devices)(fabric_accelerator *accelerator, const char *devices, th_device *out, size_t capacity);
    /** Prepares a device for this process; a foreign device is TH_ERR_VALUE. NULL: nothing to do. */
    th_status (*setup_device)(fabric_accelerator *accelerator, th_device device);
    /** Frees caches at the end. NULL: nothing to do. */
    th_status (*teardown)(fabric_accelerator *accelerator);
    /** The device type of its tensors. Required. */
    th_device_type device_type;
    /** Ends `self`. NULL: nothing to free. */
    void (*free)(void *self);
} fabric_accelerator_ops;

/** An accelerator from a table. [owned] */
FABRIC_API FABRIC_NODISCARD fabric_accelerator *fabric_accelerator_new(const fabric_accelerator_ops *ops, void *self);
FABRIC_API fabric_accelerator *fabric_accelerator_retain(fabric_accelerator *accelerator);
/** NULL is allowed. */
FABRIC_API void fabric_accelerator_free(fabric_accelerator *accelerator);
/** The `self` it was made with. [borrowed] */
FABRIC_API void *fabric_accelerator_self(fabric_accelerator *accelerator);
FABRIC_API const fabric_accelerator_ops *fabric_accelerator_ops_of(fabric_accelerator *accelerator);

/* ---- the slots with their defaults */
FABRIC_API const char *fabric_accelerator_name(fabric_accelerator *accelerator);
FABRIC_API bool fabric_accelerator_is_available(fabric_accelerator *accelerator);
FABRIC_API const char *fabric_accelerator_unavailable_reason(fabric_accelerator *accelerator);
FABRIC_API int fabric_accelerator_auto_device_count(fabric_accelerator *accelerator);
FABRIC_API int fabric_accelerator_parse_devices(fabric_accelerator *accelerator, const char *devices, th_device *out, size_t capacity);
FABRIC_API th_status fabric_accelerator_setup_device(fabric_accelerator *accelerator, th_device device);
FABRIC_API th_status fabric_accelerator_teardown(fabric_accelerator *accelerator);

/** A name that `.accelerator = "..."` accepts. */
typedef struct fabric_accelerator_entry {
    size_t size;              /**< sizeof(fabric_accelerator_entry) */
    const char *name;
    const char *description;
    fabric_accelerator *(*create)(const char *preset);  /**< [owned] */
    const char *preset;       /**< handed to `create`; may be NULL */
    bool override;            /**< replaces an entry of that name instead of being TH_ERR_VALUE */
} fabric_accelerator_entry;

/** Adds a name; the entry and its texts must stay valid. Call it before fabric_new. Any thread. */
FABRIC_API th_status fabric_accelerator_register(const fabric_accelerator_entry *entry);
/** Removes a name. An unknown one is TH_ERR_KEY. */
FABRIC_API th_status fabric_accelerator_unregister(const char *name);
/** Makes one by name. An unknown name is TH_ERR_KEY and lists the known ones. [owned] */
FABRIC_API FABRIC_NODISCARD fabric_accelerator *fabric_accelerator_create(const char *name);
/** The i-th registered name, NULL past the end. [borrowed] */
FABRIC_API const char *fabric_accelerator_registered(size_t i);

/** find_usable_cuda_devices(): the numbers of GPUs on which a tensor can be made now (in exclusive mode another process may hold one).
 * `num_devices` -1: all of them. Writes up to `capacity` numbers, returns how many there are, or a negative status when fewer than
 * asked for exist or are free. */
FABRIC_API int fabric_find_usable_cuda_devices(int num_devices, int *out, size_t capacity);

TH_END_DECLS
#endif
