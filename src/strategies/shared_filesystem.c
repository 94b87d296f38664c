/* strategies/shared_filesystem.c: do all ranks see the same folder? */
#include "strategies/internal.h"
#include <cfabric/strategies.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#define CHECK_FILE ".lightning_shared_fs_check"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* "s3://bucket", but not "file:///tmp". */
static bool is_remote(const char *path)
{
    const char *colon = path ? strstr(path, "://") : NULL;
    return colon && strncmp(path, "file://", 7) != 0;
}

/* Rank 0's path is this rank's, on every rank. */
static bool same_path(fabric_strategy *s, const char *path)
{
    th_value *own = th_value_string(path), *first = fabric_strategy_broadcast(s, own, 0);
    bool same = strcmp(th_value_as_string(first, ""), path) == 0;
    th_value_free(own);
    th_value_free(first);
    return fabric_strategy_reduce_boolean_decision(s, same, true);
}

/* Rank 0 makes the file, the others wait for it. */
static bool found_by_all(fabric_strategy *s, const char *file, double timeout)
{
    const bool first = fabric_strategy_global_rank(s) == 0;
    bool found = false;
    unlink(file);
    if (fabric_strategy_barrier(s, NULL) != TH_OK) return false;
    if (first) {
        int fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        found = fd >= 0;
        if (fd >= 0) close(fd);
    }
    for (double start = now(); !first && !found && now() - start < timeout;) {
        found = access(file, F_OK) == 0;
        if (!found) nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    if (fabric_strategy_barrier(s, NULL) != TH_OK) return false;
    bool all = fabric_strategy_reduce_boolean_decision(s, found, true);
    unlink(file);
    return all;
}

bool fabric_strategy_is_shared_filesystem(fabric_strategy *strategy, const char *path, double timeout)
{
    char resolved[PATH_MAX], file[PATH_MAX + sizeof CHECK_FILE + 1];
    struct stat info;
    if (th__pending() != TH_OK || !fabric__strategy_check(strategy, __func__)) return false;
    if (is_remote(path) || fabric_strategy_world_size(strategy) == 1) return true;
    if (path && strncmp(path, "file://", 7) == 0) path += 7;
    /* A path that is not there has no resolved form; its text is compared instead. */
    bool exists = realpath(path ? path : ".", resolved) != NULL && stat(resolved, &info) == 0;
    if (!exists) snprintf(resolved, sizeof resolved, "%s", path);
    if (!same_path(strategy, resolved) || th__pending() != TH_OK) return false;
    if (!fabric_strategy_reduce_boolean_decision(strategy, exists, true)) {
        if (th__pending() == TH_OK)
            TH__FAIL(TH_ERR_NOT_FOUND, "'%s' does not exist on every rank, so it cannot be said whether it is shared", resolved);
        return false;
    }
    if (!S_ISDIR(info.st_mode)) *strrchr(resolved, '/') = '\0';
    snprintf(file, sizeof file, "%s/%s", resolved, CHECK_FILE);
    return found_by_all(strategy, file, timeout > 0 ? timeout : 3.0);
}
