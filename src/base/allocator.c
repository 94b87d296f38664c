/* base/allocator.c: see the header. */
#include "base/allocator.h"

#include <stdlib.h>
#include <string.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

void th__allocator_tune(void)
{
#if defined(__GLIBC__)
    const char *choice = getenv("CFABRIC_MALLOC");
    if (choice != NULL && strcmp(choice, "system") == 0) return;
    if (getenv("MALLOC_TRIM_THRESHOLD_") != NULL || getenv("MALLOC_MMAP_THRESHOLD_") != NULL || getenv("GLIBC_TUNABLES") != NULL)
        return;
    mallopt(M_MMAP_THRESHOLD, 32 << 20); /* the largest that glibc accepts */
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}
