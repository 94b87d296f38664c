/* accelerators/gpu_ids.c: how many GPUs there are (or tests pretend), and which ones a text means in this process. */
#include "accelerators/internal.h"

#include "base/device_ids.h"
#include "bridge/bridge.h"
#include <cfabric/plugin/environment.h>
#include <stdlib.h>
#include <string.h>

static int fake_cuda = -1, fake_mps = -1;

void fabric__accelerators_fake(int cuda, int mps)
{
    fake_cuda = cuda;
    fake_mps = mps;
}

int fabric__cuda_count(void) { return fake_cuda >= 0 ? fake_cuda : th__cuda_device_count(); }

/* libtorch also runs "mps" on Intel Macs with an AMD GPU, where upstream does not offer it. */
static bool is_arm(void)
{
#if defined(__aarch64__) || defined(__arm__)
    return true;
#else
    return false;
#endif
}

int fabric__mps_count(void)
{
    const char *disabled = getenv("DISABLE_MPS");
    if (disabled != NULL && strcmp(disabled, "1") == 0) return 0;
    if (fake_mps >= 0) return fake_mps;
    return is_arm() && th__mps_is_available() ? 1 : 0;
}

/* A scheduler that made the ranks may show each task only the GPUs it asked for, numbered from 0. */
static bool scheduled(void)
{
    return fabric_environment_detects("slurm") || fabric_environment_detects("lsf") || fabric_environment_detects("mpi");
}

/* Ranks made by torchrun usually see one GPU each, as number 0, while `devices` says how many the job uses on this machine. Under
 * a scheduler the same goes for any number of visible GPUs: asking for more than this task sees is asking for other tasks' GPUs.
 */
int fabric__parse_gpu_ids(const char *text, int available, const char *class_name, int *out, size_t capacity)
{
    enum { SOMEWHERE = 1024 };
    bool launched = fabric_environment_detects("torchelastic");
    if (!launched && available > 0 && text != NULL && strcmp(text, "-1") != 0 && scheduled()) {
        int n = th__parse_gpu_ids(text, SOMEWHERE, class_name, false, out, capacity);
        if (n < 0 || n > available) return n;
    }
    return th__parse_gpu_ids(text, available, class_name, launched, out, capacity);
}
