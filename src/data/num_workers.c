/* data/num_workers.c: how many workers make sense, and whether a loader has a length. */
#include "data/loader.h"

#include "base/cpu.h"

int th__suggested_max_num_workers(int cpus, int local_world_size)
{
    if (th__pending() != TH_OK) return -1;
    if (local_world_size < 1) {
        th__fail(TH_ERR_VALUE, "fabric_suggested_max_num_workers", "`local_world_size` should be >= 1, got %d", local_world_size);
        return -1;
    }
    int suggested = cpus / local_world_size - 1;
    return suggested > 1 ? suggested : 1;
}

int fabric_suggested_max_num_workers(int local_world_size)
{
    return th__suggested_max_num_workers(th__usable_cores(), local_world_size);
}

void th__warn_of_too_many_workers(int num_workers)
{
    int cpus = th__usable_cores();
    if (num_workers > cpus)
        th__warn_rank_zero(
            "This DataLoader will create %d worker threads in total. Our suggested max number of workers in current "
            "system is %d, which is smaller than what this DataLoader is going to create: it may run slow",
            num_workers, cpus);
}

bool th_dataloader_has_len(th_dataloader *loader)
{
    if (th__pending() != TH_OK || !TH__LOADER_CHECK(loader)) return false;
    int64_t length = th_dataloader_len(loader);
    if (length == 0) th__warn_rank_zero("the dataloader returned 0 length. Please make sure this was your intention");
    if (length >= 0 && loader->args.dataset->ops.iter_next != NULL)
        th__warn_rank_zero(
            "the iterable-style dataset '%s' has a length. With several workers it is inaccurate unless each worker "
            "reads its own share",
            loader->args.dataset->ops.name);
    return length >= 0;
}
