/* checkpoint/checkpoint_io.c: the checkpoint IO object, a user's way to the disk, and the defaults of its slots. */
#include "base/error.h"
#include "base/fs.h"
#include "base/object.h"
#include "base/plugin.h"
#include "checkpoint/internal.h"
#include <cfabric/plugin/checkpoint_io.h>
#include <stdlib.h>

struct fabric_checkpoint_io {
    th__object object;
    const fabric_checkpoint_io_ops *ops;
    void *self;
};

static void destroy(void *object)
{
    fabric_checkpoint_io *io = object;
    if (TH__SLOT(io->ops, free)) io->ops->free(io->self);
    free(io);
}

static const th__class io_class = {"checkpoint IO", destroy};

#define CHECK(failed)                                                                                                            \
    do {                                                                                                                         \
        if (th__pending() != TH_OK || !th__object_check(io, &io_class, __func__, "io")) return (failed);                         \
    } while (0)

fabric_checkpoint_io *fabric_checkpoint_io_new(const fabric_checkpoint_io_ops *ops, void *self)
{
    TH__CHECK_PENDING_NULL();
    if (ops == NULL || ops->size < offsetof(fabric_checkpoint_io_ops, remove) || ops->name == NULL || ops->save == NULL ||
        ops->load == NULL) {
        TH__FAIL(TH_ERR_VALUE,
                 "the checkpoint IO's table needs a size of sizeof(fabric_checkpoint_io_ops), a name, save and load");
        return NULL;
    }
    fabric_checkpoint_io *io = th__object_new(&io_class, sizeof *io);
    if (io == NULL) return NULL;
    io->ops = ops;
    io->self = self;
    return io;
}

fabric_checkpoint_io *fabric_checkpoint_io_retain(fabric_checkpoint_io *io) { return th__retain(io); }
void fabric_checkpoint_io_free(fabric_checkpoint_io *io) { th__release(io); }
void *fabric_checkpoint_io_self(fabric_checkpoint_io *io) { return io != NULL ? io->self : NULL; }
const fabric_checkpoint_io_ops *fabric_checkpoint_io_ops_of(fabric_checkpoint_io *io) { return io != NULL ? io->ops : NULL; }

th_status fabric_checkpoint_io_save(fabric_checkpoint_io *io, const char *path, const th_value *checkpoint)
{
    CHECK(th__pending());
    return io->ops->save(io, path, checkpoint);
}

th_value *fabric_checkpoint_io_load(fabric_checkpoint_io *io, const char *path)
{
    CHECK(NULL);
    th_value *checkpoint = io->ops->load(io, path);
    if (checkpoint == NULL && th__pending() == TH_OK)
        TH__FAIL(TH_ERR_IO, "%s could not read the checkpoint '%s'", io->ops->name, path != NULL ? path : "(null)");
    return checkpoint;
}

th_status fabric_checkpoint_io_remove(fabric_checkpoint_io *io, const char *path)
{
    CHECK(th__pending());
    return TH__SLOT(io->ops, remove) ? io->ops->remove(io, path) : th__remove_tree(path);
}

th_status fabric_checkpoint_io_teardown(fabric_checkpoint_io *io)
{
    if (io == NULL) return th__pending();
    return TH__SLOT(io->ops, teardown) ? io->ops->teardown(io) : th__pending();
}

/* ---------------------------------------------------------------- the default, as an object */

static th_status save_torch(fabric_checkpoint_io *io, const char *path, const th_value *checkpoint)
{
    (void)io;
    return th__checkpoint_write(path, (th_value *)checkpoint);
}

static th_value *load_torch(fabric_checkpoint_io *io, const char *path)
{
    (void)io;
    return th__checkpoint_read(path);
}

static const fabric_checkpoint_io_ops torch_ops = {
    .size = sizeof(fabric_checkpoint_io_ops), .name = "TorchCheckpointIO", .save = save_torch, .load = load_torch};

fabric_checkpoint_io *fabric_checkpoint_io_torch(void) { return fabric_checkpoint_io_new(&torch_ops, NULL); }
