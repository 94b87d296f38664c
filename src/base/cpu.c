/* base/cpu.c: affinity mask and control-group quota. */
#include "base/cpu.h"

#include "base/error.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int affinity_cores(void)
{
    for (int size = 1024; size <= 1 << 20; size *= 4) { /* machines with more processors than a cpu_set_t holds */
        cpu_set_t *set = CPU_ALLOC((size_t)size);
        if (set == NULL) break;
        size_t bytes = CPU_ALLOC_SIZE((size_t)size);
        CPU_ZERO_S(bytes, set);
        int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) return count;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

/* Cores that quota per period is worth, rounded up; `cores` when there is no limit. */
static int quota_cores(int cores, double quota, double period)
{
    if (quota <= 0 || period <= 0 || quota / period >= cores) return cores;
    int whole = (int)(quota / period);
    if (whole * period < quota) whole++;
    return whole > 1 ? whole : 1;
}

static bool read_line(const char *path, char *line, int size)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    bool ok = fgets(line, size, file) != NULL;
    fclose(file);
    return ok;
}

static int limit_v2(int cores, const char *folder)
{
    char path[1200], line[128], *end;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (!read_line(path, line, sizeof line)) return cores;
    double quota = strtol(line, &end, 10); /* "max" reads as 0: no limit */
    return quota_cores(cores, quota, (double)strtol(end, NULL, 10));
}

static int limit_v1(int cores, const char *folder)
{
    char path[1200], quota[64], period[64];
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!read_line(path, quota, sizeof quota)) return cores;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (!read_line(path, period, sizeof period)) return cores;
    return quota_cores(cores, (double)strtol(quota, NULL, 10), (double)strtol(period, NULL, 10));
}

/* The limits of a group and of all its parents apply. */
static int limit_upwards(int cores, const char *base, const char *group, int (*limit)(int, const char *))
{
    char folder[1100];
    if (snprintf(folder, sizeof folder, "%s%s", base, group) >= (int)sizeof folder) return cores;
    for (;;) {
        cores = limit(cores, folder);
        char *slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < strlen(base)) return cores;
        *slash = '\0';
    }
}

int th__limit_cores(int cores, const char *cgroup_root, const char *membership)
{
    char line[1024], base[600];
    FILE *file = fopen(membership, "re");
    if (file == NULL) return cores;
    while (fgets(line, sizeof line, file) != NULL) { /* "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1) */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL) continue;
        *group++ = '\0';
        controllers++;
        if (*controllers == '\0') {
            cores = limit_upwards(cores, cgroup_root, group, limit_v2);
            continue;
        }
        for (char *save, *name = strtok_r(controllers, ",", &save); name != NULL; name = strtok_r(NULL, ",", &save))
            if (strcmp(name, "cpu") == 0) {
                snprintf(base, sizeof base, "%s/cpu", cgroup_root);
                cores = limit_upwards(cores, base, group, limit_v1);
            }
    }
    fclose(file);
    return cores;
}

int th__usable_cores(void) { return th__limit_cores(affinity_cores(), "/sys/fs/cgroup", "/proc/self/cgroup"); }

th_status th__threads_per_rank(int cores, int local_processes, int *threads)
{
    if (local_processes < 1)
        return th__fail(TH_ERR_VALUE, "threads", "the number of processes is %d, expected at least 1", local_processes);
    *threads = cores / local_processes > 1 ? cores / local_processes : 1;
    return TH_OK;
}
