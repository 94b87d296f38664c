/* dist/join.c: a rank whose data has ended keeps the others company: it mirrors their backwards with zero gradients. */
#include "dist/ddp.h"
#include <cfabric/ops.h>
#include <stdlib.h>

/* The other ranks' backward of `ddp`, without one of our own. */
static th_status shadow_backward(th_ddp *ddp)
{
    TH_NO_GRAD();
    ddp->next_bucket = 0;
    for (size_t i = 0; i < ddp->n_buckets; i++) {
        th_zero_(ddp->buckets[i].buffer);
        ddp->buckets[i].pending = 0;
    }
    TH__CHECK_PENDING();
    return th__ddp_finish(ddp, true);
}

static th_ddp *find(th_ddp *const *ddps, size_t n, uint64_t digest)
{
    for (size_t i = 0; i < n; i++)
        if (th__call_digest(TH__DDP_CALL, ddps[i]->what) == digest) return ddps[i];
    return NULL;
}

/* The lowest rank that has not joined. */
static int first_running(const th_process_group *group, const int64_t *rows)
{
    for (int i = 0; i < group->size; i++)
        if (!rows[i * TH__HEADER_WORDS + 1]) return i;
    return 0;
}

th_status th_ddp_join(th_ddp *const *ddps, size_t n)
{
    TH__CHECK_PENDING();
    if (n == 0 || !ddps[0]->group) return TH_OK;
    th_process_group *group = ddps[0]->group;
    if (!th__group_enter(&group, __func__)) return th__pending();
    if (!group->check) return TH__FAIL(TH_ERR_RUNTIME, "joining needs a process group with .check = true");
    int64_t *rows = th__malloc((size_t)group->size * TH__HEADER_WORDS * sizeof *rows);
    if (!rows) return th__pending();
    th_status status = TH_OK;
    while (status == TH_OK) {
        th__call call;
        uint64_t digest;
        status = th__call_shadow(&call, group, &digest, rows);
        if (status != TH_OK || digest == 0) break;
        group->last_running = first_running(group, rows);
        th_ddp *ddp = find(ddps, n, digest);
        if (ddp) ddp->root = group->last_running;
        status = ddp ? shadow_backward(ddp) : th__call_refuse(&call);
    }
    free(rows);
    for (size_t i = 0; status == TH_OK && i < n; i++) status = th__ddp_broadcast_module(ddps[i], group->last_running);
    return status;
}
