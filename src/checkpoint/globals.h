/* checkpoint/globals.h: the remaining names of the allow-list: what each becomes. */
#ifndef FABRIC_CHECKPOINT_GLOBALS_H
#define FABRIC_CHECKPOINT_GLOBALS_H

#include "checkpoint/from_nodes.h"

/* torch.float32 and its like, read as text. */
bool th__is_known_name(const th__node *global);
/* bytes, device, complex, paths, NumPy scalars. `*known` false: not on the list, nothing raised. [owned] */
th_value *th__convert_known_call(th__loader *loader, const th__node *call, bool *known);

#endif
