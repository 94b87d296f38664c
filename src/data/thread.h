/* data/thread.h: what makes a thread a worker of a loader. */
#ifndef FABRIC_DATA_THREAD_H
#define FABRIC_DATA_THREAD_H

#include <cfabric/dataset.h>

/* Makes `info` what th_get_worker_info() returns on this thread, keeps its errors from being printed twice (they are raised again
 * where the batch is asked for) and its operators on one core. */
void th__thread_enter_worker(const th_worker_info *info);
void th__thread_leave_worker(void);

#endif
