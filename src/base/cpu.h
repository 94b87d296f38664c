/* base/cpu.h: how many processors this process may really use. */
#ifndef FABRIC_BASE_CPU_H
#define FABRIC_BASE_CPU_H

#include <cfabric/base.h>

/* The processors of the affinity mask, cut by the CPU quota of the control group (rounded up). At least 1. */
int th__usable_cores(void);
/* The same with given files, for tests: `cores` from the mask, `cgroup_root` instead of /sys/fs/cgroup, `membership` instead of
 * /proc/self/cgroup. */
int th__limit_cores(int cores, const char *cgroup_root, const char *membership);
/* max(1, usable cores / processes on this machine). Fewer than one process: TH_ERR_VALUE. */
th_status th__threads_per_rank(int cores, int local_processes, int *threads);

#endif
