/* launch/fork.c: workers made by fork alone, which share what the caller has prepared. Only before any tensor work: a child of a
 * process in which libtorch has run hangs in its first parallel operator. */
#include "launch/internal.h"
#include "launch/launchers.h"

#include "base/env.h"
#include "base/error.h"
#include "base/plugin.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct fork_body {
    const fabric_launch_request *request;
    int result_fd;
    bool share_processors; /* the caller's OMP_NUM_THREADS was not set; its running engine does not read the one we set */
} fork_body;

static int run_worker(void *user, int local_rank)
{
    const fork_body *body = user;
    fabric_launch_result mine = {0};
    (void)local_rank;
    if (body->share_processors) th__env_unset("OMP_NUM_THREADS");
    th_status status = fabric__run_here(body->request, &mine);
    if (status == TH_OK && strcmp(th__env_or("RANK", "0"), "0") == 0) status = fabric__result_write(body->result_fd, &mine);
    free(mine.data);
    return status == TH_OK && th__pending() == TH_OK ? 0 : 1;
}

static th_status launch_fork(const fabric_launch_request *request, fabric_launch_result *result)
{
    if (TH__SLOT(request, tensors_have_run) && request->tensors_have_run())
        return th__fail(TH_ERR_RUNTIME, "launch",
                        "processes cannot be forked any more: tensors were used before the launch; launch first, "
                        "or use strategy 'ddp_spawn' or 'ddp'");
    fabric__job job = {.launcher = "fork"};
    TH__TRY(fabric__job_from_request(&job, request));
    fork_body body = {request, fabric__result_open(), !th__env_is_set("OMP_NUM_THREADS")};
    if (body.result_fd < 0) return th__pending();
    job.body = run_worker;
    job.user = &body;
    fabric__outcome outcome;
    th_status status = fabric__supervise(&job, &outcome);
    if (status == TH_OK) status = fabric__outcome_status(&outcome);
    if (status == TH_OK) status = fabric__result_read(body.result_fd, result);
    close(body.result_fd);
    return status;
}

const fabric_launcher_ops fabric__launcher_fork = {
    .size = sizeof(fabric_launcher_ops),
    .name = "fork",
    .description = "forks workers before any tensor work, waits, brings back rank 0's result",
    .needs_function = true,
    .interactive_compatible = true,
    .launch = launch_fork,
};
