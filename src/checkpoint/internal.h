/* checkpoint/internal.h: what the rooms above use of the checkpoint room. The file formats themselves are in format/ (no torch).
 */
#ifndef FABRIC_CHECKPOINT_INTERNAL_H
#define FABRIC_CHECKPOINT_INTERNAL_H

#include "base/error.h"
#include <cfabric/value.h>

/* ---- one file in PyTorch's format. A path is replaced atomically: the old file is there until the new one is complete. */

/* torch.save(state, path). `state` is any tree without TH_VALUE_OBJECT. Parent folders are created. A path that ends in
 * ".safetensors" gets that format, which holds a flat dict of tensors only. */
th_status th__checkpoint_write(const char *path, th_value *state);
/* torch.load(path, map_location="cpu", weights_only=True). [owned] */
th_value *th__checkpoint_read(const char *path);
bool th__is_safetensors_path(const char *path);

/* ---- states (fabric_save, fabric_load, fabric_load_raw): conversions between live objects and plain values */

/* A filter of fabric_save: which entries of state[key] are kept. */
typedef struct th__state_filter {
    const char *key;
    bool (*keep)(const char *name, th_value *item, void *user);
    void *user;
} th__state_filter;

/* Every TH_VALUE_OBJECT, at any depth, becomes what its state_dict returns; filters are applied to the top level of their key's
 * dict. `state` is unchanged; tensors are shared. Unknown key: TH_ERR_VALUE; keep NULL: TH_ERR_TYPE. [owned] */
th_value *th__state_to_plain(th_value *state, const th__state_filter *filters, size_t n_filters);
/* Restores `state` (a dict) from `checkpoint` (a dict): live objects in place, plain values replaced in `state`. What was used is
 * removed from `checkpoint`, so what is left there was not requested. Strict: a requested key that is missing is TH_ERR_KEY
 * naming the first. */
th_status th__state_from_plain(th_value *state, th_value *checkpoint, bool strict);
/* load_raw: `checkpoint` is the bare state of one object. */
th_status th__state_load_raw(th_value *object, th_value *checkpoint, bool strict);

/* ---- asynchronous saves: the state is copied before the call returns, a thread writes the file */

/* One save at a time: waits for the previous one first and reports its error here. */
th_status th__checkpoint_write_async(const char *path, th_value *state);
/* Waits for the running save, if any; raises its error. Call it before exit too. */
th_status th__checkpoint_wait(void);

#endif
