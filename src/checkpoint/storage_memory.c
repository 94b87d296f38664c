/* checkpoint/storage_memory.c: the memory that loaded tensors live in. */
#include "base/memory.h"
#include "checkpoint/from_nodes.h"
#include <cfabric/scope.h>

#include <stdlib.h>

enum { ALIGNMENT = 64 };

static void free_memory(void *data, void *user)
{
    (void)user;
    free(data);
}

/* Ordinary pages: huge ones were measured to be three times faster or four times slower, depending on how fragmented the memory
 * is. */
void *th__storage_memory(uint64_t nbytes)
{
    void *data = NULL;
    if (posix_memalign(&data, ALIGNMENT, nbytes == 0 ? 1 : (size_t)nbytes) == 0) return data;
    th__fail(TH_ERR_MEMORY, "th_load", "no memory for a storage of %llu bytes", (unsigned long long)nbytes);
    return NULL;
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
