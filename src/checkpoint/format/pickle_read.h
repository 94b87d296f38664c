/* checkpoint/format/pickle_read.h: a safe unpickler for protocols 2 to 5. It builds nodes and calls nothing.
 *
 * Opcodes outside the allow-list are an error that names them; so are globals when they are resolved (see node users). Memory
 * grows only with the pickle's own length. */
#ifndef FABRIC_CHECKPOINT_PICKLE_READ_H
#define FABRIC_CHECKPOINT_PICKLE_READ_H

#include "checkpoint/format/node.h"

/* Reads one pickle from `data` (which must outlive the arena). `*used` is where it ended. `what` names the file for messages.
 * NULL with TH_ERR_DATA. */
th__node *th__pickle_read(th__arena *arena, const void *data, size_t size, size_t *used, const char *what);

#endif
