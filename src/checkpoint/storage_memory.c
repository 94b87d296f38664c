/* checkpoint/storage_memory.c: the memory that loaded tensors live in. */
#include "base/memory.h"
#include "checkpoint/from_nodes.h"
#include <cfabric/scope.h>

#include <stdlib.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64, HUGE_PAGE = 2 * 1024 * 1024 };

static void free_memory(void *data, void *user)
{
    (void)user;
    free(data);
}

/* Large storages are asked for in huge pages: filling fresh memory page by page costs more than reading the file. */
void *th__storage_memory(uint64_t nbytes)
{
    void *data = NULL;
    size_t alignment = nbytes >= 2 * HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
    if (posix_memalign(&data, alignment, nbytes == 0 ? 1 : (size_t)nbytes) != 0) {
        th__fail(TH_ERR_MEMORY, "th_load", "no memory for a storage of %llu bytes", (unsigned long long)nbytes);
        return NULL;
    }
    if (alignment == HUGE_PAGE) madvise(data, (size_t)nbytes, MADV_HUGEPAGE);
    return data;
}

th_tensor *th__storage_tensor(uint64_t numel, const th__dtype_info *dtype, void **data)
{
    TH__CHECK_PENDING_NULL();
    TH_SCOPE();
    const int64_t size = (int64_t)numel;
    *data = th__storage_memory(numel * dtype->size);
    if (*data == NULL) return NULL;
    th_tensor *tensor = th_from_blob(*data, .sizes = {&size, 1}, .dtype = dtype->dtype, .deleter = free_memory);
    if (tensor == NULL) {
        free(*data);
        return NULL;
    }
    return th_keep(tensor);
}
