/* cfabric/plugin/checkpoint_io.h: writing a checkpoint IO (lightning.fabric.plugins.io): how a finished value reaches the disk. */
#ifndef CFABRIC_PLUGIN_CHECKPOINT_IO_H
#define CFABRIC_PLUGIN_CHECKPOINT_IO_H

#include <cfabric/plugin/types.h>

TH_BEGIN_DECLS

typedef struct fabric_checkpoint_io_ops {
    size_t size;                  /**< sizeof(fabric_checkpoint_io_ops) */
    const char *name;             /**< "TorchCheckpointIO", for messages */
    /** Writes a tree without live objects in it. Required. Called on the rank that writes only. */
    th_status (*save)(fabric_checkpoint_io *io, const char *path, const th_value *checkpoint);
    /** Reads it back, tensors on the CPU. Required. Called on every rank. [owned] */
    th_value *(*load)(fabric_checkpoint_io *io, const char *path);
    /** Removes a checkpoint; absent is no error. NULL: removes the file or the folder. */
    th_status (*remove)(fabric_checkpoint_io *io, const char *path);
    /** Waits for writes still under way. NULL: nothing to do. */
    th_status (*teardown)(fabric_checkpoint_io *io);
    /** Ends `self`. NULL: nothing to free. */
    void (*free)(void *self);
} fabric_checkpoint_io_ops;

/** A checkpoint IO from a table. [owned] */
FABRIC_API FABRIC_NODISCARD fabric_checkpoint_io *fabric_checkpoint_io_new(const fabric_checkpoint_io_ops *ops, void *self);
/** TorchCheckpointIO: the default, for one of your own to wrap: one file that torch.load reads (".safetensors": that format). [owned] */
FABRIC_API FABRIC_NODISCARD fabric_checkpoint_io *fabric_checkpoint_io_torch(void);
FABRIC_API fabric_checkpoint_io *fabric_checkpoint_io_retain(fabric_checkpoint_io *io);
/** NULL is allowed. */
FABRIC_API void fabric_checkpoint_io_free(fabric_checkpoint_io *io);
FABRIC_API void *fabric_checkpoint_io_self(fabric_checkpoint_io *io);
FABRIC_API const fabric_checkpoint_io_ops *fabric_checkpoint_io_ops_of(fabric_checkpoint_io *io);

/* ---- the slots with their defaults */
FABRIC_API th_status fabric_checkpoint_io_save(fabric_checkpoint_io *io, const char *path, const th_value *checkpoint);
FABRIC_API th_value *fabric_checkpoint_io_load(fabric_checkpoint_io *io, const char *path);
FABRIC_API th_status fabric_checkpoint_io_remove(fabric_checkpoint_io *io, const char *path);
FABRIC_API th_status fabric_checkpoint_io_teardown(fabric_checkpoint_io *io);

TH_END_DECLS
#endif
