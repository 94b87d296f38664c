/* cli/doctor.c: `fabric doctor`: what this machine and this installation look like. The engine's part comes from the library
 * beside this program, loaded in a child: a libtorch that crashes while it is loaded is a finding, not the end of the report. */
#include "cli/cli.h"

#include "base/cpu.h"
#include "base/env.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/memory.h"
#include "base/net.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

static const char usage[] = "fabric doctor";
static const char about[] =
    "Show what cfabric finds on this machine: versions, processors, devices, the libtorch behind the library, and the "
    "environment variables that matter.";

static const char *const variables[] = {"LT_CLI_USED",
                                        "LT_ACCELERATOR",
                                        "LT_STRATEGY",
                                        "LT_DEVICES",
                                        "LT_NUM_NODES",
                                        "LT_PRECISION",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "RANK",
                                        "LOCAL_RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_WORLD_SIZE",
                                        "GROUP_RANK",
                                        "NODE_RANK",
                                        "STANDALONE_PORT",
                                        "TORCHELASTIC_RUN_ID",
                                        "SLURM_JOB_ID",
                                        "SLURM_NTASKS",
                                        "LSB_JOBID",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "PMI_SIZE",
                                        "PL_GLOBAL_SEED",
                                        "PL_SEED_WORKERS",
                                        "OMP_NUM_THREADS",
                                        "MKL_NUM_THREADS",
                                        "OPENBLAS_NUM_THREADS",
                                        "CUDA_VISIBLE_DEVICES",
                                        "GLOO_SOCKET_IFNAME",
                                        "NCCL_SOCKET_IFNAME",
                                        "NCCL_DEBUG",
                                        "CFABRIC_ON_ERROR",
                                        "CFABRIC_GRACE_SECONDS",
                                        "CFABRIC_PROGRAM",
                                        "LD_LIBRARY_PATH",
                                        "LD_PRELOAD"};

static void print_machine(void)
{
    struct utsname name = {0};
    char host[256];
    uname(&name);
    th__net_hostname(host, sizeof host);
    printf("cfabric          %s\n", fabric_version());
    printf("machine          %s, %s %s, %s\n", host, name.sysname, name.release, name.machine);
    printf("processors       %d usable, %ld online\n", th__usable_cores(), sysconf(_SC_NPROCESSORS_ONLN));
    printf("GPUs (driver)    %d\n", cli_cuda_devices());
}

static void print_variables(void)
{
    bool any = false;
    puts("environment");
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        if (!th__env_is_set(variables[i])) continue;
        printf("  %s=%s\n", variables[i], getenv(variables[i]));
        any = true;
    }
    if (!any) puts("  none of the variables that matter is set");
}

/* The library in the folders that belong to this program's, else where the loader looks. */
static void *open_library(void)
{
    static const char *const places[] = {"../lib/libcfabric.so", "../lib/libcfabric.so.0", "../lib64/libcfabric.so.0",
                                         "../lib/x86_64-linux-gnu/libcfabric.so.0", "../lib/aarch64-linux-gnu/libcfabric.so.0"};
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    char *folder = th__path_dir(program);
    void *library = NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places && folder != NULL && library == NULL; i++) {
        char *path = th__path_join(folder, places[i]);
        if (path != NULL && th__path_exists(path)) library = dlopen(path, RTLD_NOW);
        free(path);
    }
    free(folder);
    return library != NULL ? library : dlopen("libcfabric.so.0", RTLD_NOW);
}

_Noreturn static void report_engine(void)
{
    void *library = open_library();
    int (*report)(FILE *) = NULL;
    if (library != NULL) *(void **)&report = dlsym(library, "fabric_doctor_report");
    if (report == NULL) printf("engine           not available: %s\n", dlerror());
    int code = report != NULL ? report(stdout) : 1;
    fflush(stdout);
    _exit(code);
}

int cli_doctor(int argc, char **argv)
{
    const cli_option options[] = {{0}};
    th__strings rest = {0};
    int code, status = 0;
    bool proceed = cli_parse(argc, argv, options, usage, about, &rest, &code);
    if (proceed && rest.count > 0)
        code = cli_usage_error(usage, "doctor", "Got unexpected extra argument '%s'.", rest.items[0]), proceed = false;
    th__strings_free(&rest);
    if (!proceed) return code;
    print_machine();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) report_engine();
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (child < 0 || WIFSIGNALED(status))
        printf("engine           loading it ended with signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    print_variables();
    return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? CLI_OK : CLI_FAILED;
}
