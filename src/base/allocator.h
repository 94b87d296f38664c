/* base/allocator.h: how the C library's allocator treats the memory a training step frees. */
#ifndef FABRIC_BASE_ALLOCATOR_H
#define FABRIC_BASE_ALLOCATOR_H

/* A step allocates and frees the same tensors again and again. glibc gives freed memory above 128 KiB back to the kernel, and the
 * next step pays a page fault for every 4 KiB of it (measured: 28 of 68 us of a 784-128 layer's step). This keeps up to 256 MiB for
 * the next step. Does nothing if CFABRIC_MALLOC=system, if the user set MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_ or
 * GLIBC_TUNABLES, or with another C library. Called once, when the first tensor is made. */
void th__allocator_tune(void);

#endif
