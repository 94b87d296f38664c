/* base/device_ids.h: what `devices` means (lightning's device_parser). */
#ifndef FABRIC_BASE_DEVICE_IDS_H
#define FABRIC_BASE_DEVICE_IDS_H

#include <cfabric/base.h>

/* GPUs: "-1" all, "N" the first N, "1, 3" and "2," a list; "0", "" and "[]" none. Writes at most `capacity` ids and returns how
 * many there are. No number is TH_ERR_TYPE; an id that is not among 0..available-1, a double one, or all of none are
 * TH_ERR_VALUE. `launched`: torchelastic has made this process, which may see one of the GPUs that `devices` counts. `class_name`
 * is for messages. */
int th__parse_gpu_ids(const char *text, int available, const char *class_name, bool launched, int *out, size_t capacity);
/* A CPU's `devices`: a whole number above zero; else TH_ERR_TYPE (no number) or TH_ERR_VALUE (zero). */
th_status th__parse_cpu_count(const char *text, int *count);

#endif
