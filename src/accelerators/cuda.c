/* accelerators/cuda.c: NVIDIA GPUs, as far as the linked libtorch can use them. */
#include "accelerators/internal.h"

#include "bridge/bridge.h"
#include <cfabric/ops.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>

#define CLASS "CUDAAccelerator"

static bool is_available(fabric_accelerator *accelerator)
{
    (void)accelerator;
    return fabric__cuda_count() > 0;
}

static const char *unavailable_reason(fabric_accelerator *accelerator)
{
    (void)accelerator;
    return "libtorch sees no CUDA device (it may be built for the CPU only, the driver may be missing, or CUDA_VISIBLE_DEVICES "
           "hides "
           "them all)";
}

static int auto_device_count(fabric_accelerator *accelerator)
{
    (void)accelerator;
    return fabric__cuda_count();
}

/* Under a launcher that shows each rank one GPU, every rank's own is number 0. */
static int parse_devices(fabric_accelerator *accelerator, const char *devices, th_device *out, size_t capacity)
{
    (void)accelerator;
    enum { MAX = 1024 };
    int ids[MAX], available = fabric__cuda_count();
    int n = fabric__parse_gpu_ids(devices, available, CLASS, ids, MAX);
    for (int i = 0; i < n && (size_t)i < capacity; i++)
        out[i] = TH_CUDA(available > 0 && ids[i] >= available ? ids[i] % available : ids[i]);
    return n;
}

/* Name and major compute capability of a GPU, asked of the driver: libtorch's own question needs CUDA's headers. */
static int compute_capability(int index, char *name, int size)
{
    int (*get_attribute)(int *, int, int), (*get_name)(char *, int, int);
    int major = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); /* loaded by libtorch if there is a GPU */
    if (driver == NULL) return 0;
    *(void **)&get_attribute = dlsym(driver, "cuDeviceGetAttribute");
    *(void **)&get_name = dlsym(driver, "cuDeviceGetName");
    enum { COMPUTE_CAPABILITY_MAJOR = 75 };
    if (get_attribute == NULL || get_name == NULL || get_attribute(&major, COMPUTE_CAPABILITY_MAJOR, index) != 0 ||
        get_name(name, size, index) != 0)
        major = 0;
    dlclose(driver);
    return major;
}

/* Said once per process, on GPUs with tensor cores whose float32 matrix products do not use them. */
static void hint_at_tensor_cores(th_device device)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    char name[128];
    if (atomic_flag_test_and_set(&said) || !th__float32_matmul_is_highest()) return;
    if (compute_capability(device.index >= 0 ? device.index : 0, name, (int)sizeof name) >= 8)
        th__info_rank_zero(
            "You are using a CUDA device ('%s') that has Tensor Cores. To properly utilize them, you should call "
            "th_set_float32_matmul_precision(\"medium\" or \"high\"), which will trade-off precision for performance",
            name);
}

static th_status setup_device(fabric_accelerator *accelerator, th_device device)
{
    (void)accelerator;
    char text[32];
    if (device.type != TH_DEVICE_CUDA)
        return TH__FAIL(TH_ERR_VALUE, "device should be CUDA, got %s instead", th_device_format(device, text, sizeof text));
    hint_at_tensor_cores(device);
    return th__set_current_device(device);
}

static th_status teardown(fabric_accelerator *accelerator)
{
    (void)accelerator;
    return th__empty_device_cache(TH_DEVICE_CUDA);
}

/* A GPU is usable when a tensor can be put on it: in exclusive mode another process may hold it. */
static bool usable(int index)
{
    TH_SCOPE();
    th_tensor *probe = th_zeros(TH_INTS(1), .dtype = TH_FLOAT32, .device = TH_CUDA(index));
    if (probe != NULL) return true;
    th_error_clear();
    return false;
}

int fabric_find_usable_cuda_devices(int num_devices, int *out, size_t capacity)
{
    TH__CHECK_PENDING();
    if (num_devices == 0) return 0;
    int visible = fabric__cuda_count(), found = 0;
    if (visible == 0)
        return TH__FAIL(TH_ERR_VALUE, "%d devices were requested but there are no visible CUDA devices on this machine",
                        num_devices);
    if (num_devices > visible)
        return TH__FAIL(TH_ERR_VALUE, "%d devices were requested but this machine only has %d GPUs", num_devices, visible);
    for (int i = 0; i < visible && found != num_devices; i++) {
        if (!usable(i)) continue;
        if ((size_t)found < capacity) out[found] = i;
        found++;
    }
    if (num_devices > 0 && found != num_devices)
        return TH__FAIL(TH_ERR_RUNTIME,
                        "%d devices were requested but only %d are currently available; the others are occupied by "
                        "other processes",
                        num_devices, found);
    return found;
}

static const fabric_accelerator_ops ops = {
    .size = sizeof(fabric_accelerator_ops),
    .name = "cuda",
    .class_name = CLASS,
    .is_available = is_available,
    .unavailable_reason = unavailable_reason,
    .auto_device_count = auto_device_count,
    .parse_devices = parse_devices,
    .setup_device = setup_device,
    .teardown = teardown,
    .device_type = TH_DEVICE_CUDA,
};

static fabric_accelerator *create(const char *preset)
{
    (void)preset;
    return fabric_accelerator_new(&ops, NULL);
}

const fabric_accelerator_entry fabric__accelerator_cuda = {
    .size = sizeof(fabric_accelerator_entry), .name = "cuda", .description = "NVIDIA GPUs", .create = create};
