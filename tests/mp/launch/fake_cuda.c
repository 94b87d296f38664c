/* A stand-in for the CUDA driver: as many devices as FAKE_CUDA_COUNT says. */
#include <stdlib.h>

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);

int cuInit(unsigned flags) { return flags == 0 && getenv("FAKE_CUDA_COUNT") != NULL ? 0 : 100; }

int cuDeviceGetCount(int *count)
{
    *count = atoi(getenv("FAKE_CUDA_COUNT"));
    return 0;
}
