/* cfabric/plugin/types.h: what the plugin headers share. Fabric's parts, and how a table of functions becomes one.
 *
 * A part is made from a constant table of functions (`*_ops`) and a pointer of its maker's (`self`). Tables begin with their size and
 * only ever grow at the end; a slot that is NULL, or lies beyond the size, has the default stated beside it. Parts are [owned]
 * reference-counted objects; giving one to fabric_new or to a strategy hands it over.
 *
 * Callbacks return a status (or NULL) and raise errors with th_error_set. Unless a slot says otherwise it is called on the thread
 * that called Fabric, with no scope opened around it. */
#ifndef CFABRIC_PLUGIN_TYPES_H
#define CFABRIC_PLUGIN_TYPES_H

#include <cfabric/autograd.h>
#include <cfabric/data.h>
#include <cfabric/nn.h>
#include <cfabric/optim.h>
#include <cfabric/value.h>

TH_BEGIN_DECLS

typedef struct fabric_accelerator fabric_accelerator;     /**< a kind of hardware */
typedef struct fabric_strategy fabric_strategy;           /**< how a model is spread over processes and devices */
typedef struct fabric_precision fabric_precision;         /**< in which number formats it computes */
typedef struct fabric_environment fabric_environment;     /**< who started the processes, and where they meet */
typedef struct fabric_checkpoint_io fabric_checkpoint_io; /**< how checkpoints reach the disk */
typedef struct fabric_logger fabric_logger;               /**< where metrics go */
typedef struct th_process_group th_process_group;         /**< a torch.distributed.ProcessGroup: see dist.h */

/** Devices, for example one per local process. */
typedef struct fabric_devices {
    const th_device *data;
    size_t size;
} fabric_devices;

TH_END_DECLS
#endif
