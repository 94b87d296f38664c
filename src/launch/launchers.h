/* launch/launchers.h: the built-in launchers and what they share. */
#ifndef FABRIC_LAUNCH_LAUNCHERS_H
#define FABRIC_LAUNCH_LAUNCHERS_H

#include "base/strings.h"
#include "launch/job.h"
#include <cfabric/plugin/launcher.h>

extern const fabric_launcher_ops fabric__launcher_subprocess, fabric__launcher_spawn, fabric__launcher_fork;

/* Sets this process's share of the processors (unless OMP_NUM_THREADS says otherwise) and runs the request's function, if any. */
th_status fabric__run_here(const fabric_launch_request *request, fabric_launch_result *result);
/* True in a rank that this launcher has made; a request of another size than the job's is TH_ERR_RUNTIME there. */
bool fabric__is_rank_of(const char *launcher, const fabric_launch_request *request);
/* Node rank, address and port from the environment of the request. A process that is not local rank 0 is TH_ERR_RUNTIME. */
th_status fabric__job_from_request(fabric__job *job, const fabric_launch_request *request);
/* This program's file and its original arguments (a NULL lies behind the counted ones). */
th_status fabric__own_command(char **program, th__strings *arguments);

/* Results come back through files without names: fd of a new one; the path under which a child opens it; all of it, freeing the
 * fd. */
int fabric__result_open(void);
th_status fabric__result_write(int fd, const fabric_launch_result *result);
th_status fabric__result_read(int fd, fabric_launch_result *result);
/* What the supervised workers came to, as a status: TH_ERR_DISTRIBUTED with the culprit and its error. */
th_status fabric__outcome_status(const fabric__outcome *outcome);

#endif
