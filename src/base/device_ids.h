/* base/device_ids.h: what `devices` means for accelerators whose devices have numbers (lightning's device_parser). */
#ifndef FABRIC_BASE_DEVICE_IDS_H
#define FABRIC_BASE_DEVICE_IDS_H

#include <cfabric/base.h>

/* "-1" all, "N" the first N, "1, 3" and "2," a list, "0" none; `what` names the accelerator in messages. New list in *ids (free() it).
 * No number, an empty selection and duplicates are TH_ERR_VALUE; an id that is not among 0..available-1 is TH_ERR_RUNTIME and the message
 * lists what there is. `check` false leaves that check out (torchelastic shows each process one device). */
th_status th__parse_device_ids(const char *text, const char *what, int available, bool check, int **ids, size_t *count);
/* A CPU's `devices`: a whole number above zero; else TH_ERR_TYPE (no number) or TH_ERR_VALUE (zero). */
th_status th__parse_cpu_count(const char *text, int *count);

#endif
