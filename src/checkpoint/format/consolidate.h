/* checkpoint/format/consolidate.h: one file from a sharded checkpoint, as `fabric consolidate` makes it. */
#ifndef FABRIC_CHECKPOINT_CONSOLIDATE_H
#define FABRIC_CHECKPOINT_CONSOLIDATE_H

#include "base/error.h"

/* Writes what torch.load reads as one nested dict: the items of the index under their keys, then those of meta.pt. Memory stays
 * bounded by the largest strided chunk and the index, whatever the tensors' sizes. */
th_status th__consolidate(const char *folder, const char *output);

#endif
