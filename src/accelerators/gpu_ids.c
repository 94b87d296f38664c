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

/* Ranks made by torchrun usually see one GPU each, as number 0, while `devices` says how many the job uses on this machine. */
int fabric__parse_gpu_ids(const char *text, int available, const char *class_name, int *out, size_t capacity)
{
    return th__parse_gpu_ids(text, available, class_name, fabric_environment_detects("torchelastic"), out, capacity);
}
