/* launch/spawn.c: workers that run one function while the caller waits; rank 0's result comes back.
 *
 * A worker is this program started again. It runs up to the same launch call, runs the function there and ends. A program that
 * launches several times gets its earlier results replayed in later workers, so these reach the launch that is theirs. */
#include "launch/internal.h"
#include "launch/launchers.h"

#include "base/env.h"
#include "base/error.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In workers: which launch of the program is theirs, and the results of all up to it ("/proc/7/fd/5,/proc/7/fd/6"). */
#define ENV_INDEX "CFABRIC_SPAWN_INDEX"
#define ENV_RESULTS "CFABRIC_SPAWN_RESULTS"

static int launches; /* of this process so far */
static int *results; /* one file per launch, kept for workers of later ones */
static size_t result_count, result_capacity;

/* ---------------------------------------------------------------- in a worker */

static int open_result(int index, int flags)
{
    th__strings paths = {0};
    int fd = -1;
    if (th__split(&paths, th__env_or(ENV_RESULTS, ""), ',') == 0 && (size_t)index < paths.count)
        fd = open(paths.items[index], flags | O_CLOEXEC);
    if (fd < 0) th__fail(TH_ERR_RUNTIME, "launch", "the result of launch %d is not reachable: %s", index, strerror(errno));
    th__strings_free(&paths);
    return fd;
}

static th_status replay(int index, fabric_launch_result *result)
{
    int fd = open_result(index, O_RDONLY);
    if (fd < 0) return th__pending();
    fabric__result_read(fd, result);
    close(fd);
    return th__pending();
}

_Noreturn static void work(int index, const fabric_launch_request *request)
{
    fabric_launch_result mine = {0};
    int fd = -1;
    th_status status = fabric__run_here(request, &mine);
    if (status == TH_OK && strcmp(th__env_or("RANK", "0"), "0") == 0 && (fd = open_result(index, O_WRONLY)) >= 0)
        status = fabric__result_write(fd, &mine);
    if (status == TH_OK) status = th__pending();
    if (fd >= 0) close(fd);
    free(mine.data);
    fflush(NULL);
    exit(status == TH_OK ? 0 : 1);
}

static th_status in_worker(const fabric_launch_request *request, fabric_launch_result *result)
{
    int64_t mine;
    TH__TRY(th__env_int_required(ENV_INDEX, 0, INT32_MAX, &mine));
    int index = launches++;
    if (index < mine) return replay(index, result);
    work(index, request);
}

/* ---------------------------------------------------------------- in the caller */

static th_status run_workers(fabric__job *job, int index, fabric__outcome *outcome)
{
    th__text paths = {0};
    th__strings arguments = {0}, env = {0};
    char *program = NULL;
    int failed = th__text_add(&paths, ENV_RESULTS "=");
    for (size_t i = 0; i < result_count && failed == 0; i++)
        failed = th__text_add(&paths, "%s/proc/%ld/fd/%d", i > 0 ? "," : "", (long)getpid(), results[i]);
    if (failed == 0) failed = th__strings_add(&env, paths.text) | th__strings_addf(&env, ENV_INDEX "=%d", index);
    if (failed == 0 && fabric__own_command(&program, &arguments) == TH_OK &&
        TH__PUSH(env.items, env.count, env.capacity, NULL) == 0) {
        env.count--;
        job->program = program;
        job->argv = arguments.items;
        job->extra_env = (const char *const *)env.items;
        fflush(NULL);
        fabric__supervise(job, outcome);
    }
    th__strings_free(&arguments);
    th__strings_free(&env);
    free(paths.text);
    free(program);
    return th__pending();
}

static th_status launch_spawn(const fabric_launch_request *request, fabric_launch_result *result)
{
    if (fabric__is_rank_of("spawn", request)) {
        TH__CHECK_PENDING();
        return in_worker(request, result);
    }
    fabric__job job = {.launcher = "spawn"};
    TH__TRY(fabric__job_from_request(&job, request));
    int fd = fabric__result_open();
    if (fd < 0 || TH__PUSH(results, result_count, result_capacity, fd) != 0) return th__pending();
    fabric__outcome outcome;
    TH__TRY(run_workers(&job, launches++, &outcome));
    TH__TRY(fabric__outcome_status(&outcome));
    return fabric__result_read(fd, result);
}

const fabric_launcher_ops fabric__launcher_spawn = {
    .size = sizeof(fabric_launcher_ops),
    .name = "spawn",
    .description = "starts workers that run one function, waits, brings back rank 0's result",
    .needs_function = true,
    .launch = launch_spawn,
};
