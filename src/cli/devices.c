/* cli/devices.c: from --accelerator and --devices to a number of processes, without libtorch. */
#include "cli/cli.h"

#include "base/device_ids.h"
#include "base/error.h"
#include "base/memory.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---------------------------------------------------------------- the driver */

static int ask_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == NULL) return 0;
    int count = 0;
    int (*init)(unsigned), (*get_count)(int *); /* POSIX's way to get a function out of dlsym */
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&get_count = dlsym(driver, "cuDeviceGetCount");
    if (init == NULL || get_count == NULL || init(0) != 0 || get_count(&count) != 0) return 0;
    return count;
}

int cli_cuda_devices(void)
{
    int ends[2], count = 0;
    if (pipe(ends) != 0) return 0;
    pid_t child = fork();
    if (child == 0) {
        count = ask_driver();
        ssize_t written = write(ends[1], &count, sizeof count);
        _exit(written == sizeof count ? 0 : 1);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &count, sizeof count) != sizeof count) count = 0;
    close(ends[0]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
    return count > 0 ? count : 0;
}

/* ---------------------------------------------------------------- counting */

static bool is(const char *text, const char *word) { return text != NULL && strcmp(text, word) == 0; }

static bool count_gpus(const char *devices, const char *accelerator, int available, int *processes)
{
    if (available == 0)
        return th__fail(TH_ERR_RUNTIME, "run", "accelerator '%s' was asked for, but this machine has none; available: cpu",
                        accelerator) == TH_OK;
    *processes = th__parse_gpu_ids(devices, available, accelerator, false, NULL, 0);
    if (*processes == 0)
        th__fail(TH_ERR_VALUE, "run", "devices='%s' selects no device; %s needs at least one", devices, accelerator);
    return th__pending() == TH_OK;
}

static bool count_for(const char *accelerator, const char *devices, int *processes)
{
    int64_t number;
    bool chosen = accelerator != NULL && !is(accelerator, "auto");
    if (is(accelerator, "tpu"))
        return th__fail(TH_ERR_VALUE, "run", "accelerator 'tpu' cannot be launched through the command line") == TH_OK;
    if (is(accelerator, "mps")) /* Apple's GPU, one at most; not on the systems this program runs on */
        return count_gpus(devices, accelerator, 0, processes);
    if (is(accelerator, "cpu")) return th__parse_cpu_count(devices, processes) == TH_OK;
    if (!chosen && th__parse_int(devices, &number) &&
        number > 0) /* the same number on any hardware: the driver need not be asked */
        return th__parse_cpu_count(devices, processes) == TH_OK;
    int available = cli_cuda_devices();
    if (chosen || available > 0) return count_gpus(devices, chosen ? accelerator : "cuda", available, processes);
    return th__parse_cpu_count(devices, processes) == TH_OK;
}

bool cli_count_processes(const cli_run_options *options, int *processes, char **devices)
{
    const char *text =
        is(options->devices, "auto") ? "1" : options->devices; /* as upstream; and the processes get the same answer */
    *devices = NULL;
    if (!count_for(options->accelerator, text, processes)) return false;
    if (is(options->strategy, "dp")) *processes = 1; /* one process for all devices */
    *devices = th__strdup(text);
    return *devices != NULL;
}
