/* checkpoint/format/legacy_file.h: torch.save's format before 1.6: pickles in a row, then the storages. Used by torch_file.c
 * only. */
#ifndef FABRIC_CHECKPOINT_LEGACY_FILE_H
#define FABRIC_CHECKPOINT_LEGACY_FILE_H

#include "checkpoint/format/torch_file.h"

th_status th__legacy_open(th__torch_file *file);
th_status th__legacy_storage_of(const th__torch_file *file, th__storage *out);
/* The dtype of a storage class node; raises what is not supported. (torch_file.c) */
th_status th__storage_class(const th__torch_file *file, const th__node *type, const th__dtype_info **dtype, bool *untyped);

#endif
