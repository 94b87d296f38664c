/* dist/ddp_sync.c: makes the ranks' modules equal: the comparison before any data moves, and the broadcasts. */
#include "dist/ddp.h"
#include <cfabric/ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)250 << 20)

/* ---------------------------------------------------------------- are the modules the same? */

typedef struct listing {
    char *text;           /* one line per tensor */
    size_t size, capacity;
    const char *kind;
} listing;

static int list_tensor(const char *name, th_tensor *tensor, void *user)
{
    listing *l = user;
    char sizes[160], line[600];
    int n = snprintf(line, sizeof line, "%s '%s' %s%s\n", l->kind, name, th__describe_tensor(tensor, sizes, sizeof sizes),
                     *l->kind != 'p' ? "" : th_requires_grad(tensor) ? " trainable" : " frozen");
    for (int i = 0; i < n && i < (int)sizeof line; i++)
        if (TH__PUSH(l->text, l->size, l->capacity, line[i]) != 0) return 1;
    return 0;
}

static th_status list_module(th_module *module, listing *l)
{
    l->kind = "parameter";
    th_named_parameters(module, list_tensor, l);
    l->kind = "buffer";
    th_named_buffers(module, list_tensor, l);
    if (TH__PUSH(l->text, l->size, l->capacity, '\0') != 0) return th__pending();
    return th__pending();
}

/* Copies one line without its end. */
static const char *next_line(const char *text, char *line, size_t size)
{
    size_t n = strcspn(text, "\n");
    snprintf(line, size, "%.*s", (int)n, n ? text : "nothing");
    if (!n) snprintf(line, size, "nothing more");
    return text + n + (text[n] == '\n');
}

static th_status first_difference(th_ddp *ddp, th_value *texts)
{
    char mine[300], theirs[300];
    for (int r = 1; r < ddp->group->size; r++) {
        const char *a = th_value_as_string(th_value_at(texts, 0), ""), *b = th_value_as_string(th_value_at(texts, (size_t)r), "");
        while (*a || *b) {
            a = next_line(a, mine, sizeof mine);
            b = next_line(b, theirs, sizeof theirs);
            if (strcmp(mine, theirs) != 0)
                return th__fail(TH_ERR_DISTRIBUTED, "fabric_setup", "the ranks have different modules: rank %d has %s, rank %d has %s",
                                ddp->group->ranks[0], mine, ddp->group->ranks[r], theirs);
        }
    }
    return th__fail(TH_ERR_INTERNAL, "fabric_setup", "the ranks' modules differ in their digest only");
}

th_status th__ddp_compare(th_ddp *ddp)
{
    th_process_group *group = ddp->group;
    listing l = {0};
    th__call call;
    int64_t payload[TH__HEADER_PAYLOAD] = {0}, *all = th__malloc((size_t)group->size * sizeof payload);
    th_status status = all ? list_module(ddp->module, &l) : th__pending();
    bool equal = true;
    if (status == TH_OK) {
        payload[0] = (int64_t)th__call_digest("", l.text);
        status = th__call_begin(&call, group, "DistributedDataParallel", "", payload, all);
    }
    for (int i = 0; status == TH_OK && i < group->size; i++) equal = equal && all[i * TH__HEADER_PAYLOAD] == all[0];
    if (status == TH_OK && !equal) {
        th_value *own = th_value_string(l.text), *texts = th_dist_all_gather_object(own, group);
        status = texts ? first_difference(ddp, texts) : th__pending();
        th_value_free(own);
        th_value_free(texts);
    }
    free(l.text);
    free(all);
    return status;
}

/* ---------------------------------------------------------------- broadcasts */

static th_status broadcast_piece(th__call *call, th_tensors list, int root)
{
    TH_SCOPE();
    th_tensor **flat = th__malloc(list.size * sizeof *flat);
    if (!flat) return th__pending();
    for (size_t i = 0; i < list.size; i++) flat[i] = th_reshape(th_data(list.data[i]), TH_INTS(-1));
    th_tensor *joined = list.size == 1 ? flat[0] : th_cat((th_tensors){flat, list.size}, 0);
    free(flat);
    TH__CHECK_PENDING();
    TH__TRY(th__compat_broadcast(call, joined, root));
    if (call->group->rank == root) return TH_OK;
    int64_t at = 0;
    for (size_t i = 0; i < list.size; i++) {
        th_tensor *to = th_data(list.data[i]); /* has its own version counter: graphs that saved the tensor stay valid */
        int64_t n = th_numel(to);
        if (n) th_copy_(to, th_view(th_narrow(joined, 0, at, n), th_sizes(to)));
        at += n;
        TH__CHECK_PENDING();
    }
    return TH_OK;
}

th_status th__broadcast_coalesced(th_process_group *group, th_tensors tensors, int root)
{
    TH_NO_GRAD();
    th__call call = {.group = group, .name = "DDP broadcast", .number = ++group->calls};
    for (size_t from = 0, to; from < tensors.size; from = to) {
        size_t bytes = th_nbytes(tensors.data[from]);
        for (to = from + 1; to < tensors.size; to++) {
            th_tensor *next = tensors.data[to];
            if (th_dtype_of(next) != th_dtype_of(tensors.data[from]) || bytes + th_nbytes(next) > CHUNK_BYTES) break;
            bytes += th_nbytes(next);
        }
        if (bytes) TH__TRY(broadcast_piece(&call, (th_tensors){tensors.data + from, to - from}, root));
    }
    return th__pending();
}

th_status th__ddp_broadcast_buffers(th_ddp *ddp, int root)
{
    TH_SCOPE();
    th_tensors buffers = th_buffers(ddp->module); /* looked up each time: a module may replace them */
    TH__CHECK_PENDING();
    return buffers.size ? th__broadcast_coalesced(ddp->group, buffers, root) : TH_OK;
}

th_status th__ddp_broadcast_module(th_ddp *ddp, int root)
{
    TH_SCOPE();
    th_tensors params = th_parameters(ddp->module);
    TH__CHECK_PENDING();
    TH__TRY(th__broadcast_coalesced(ddp->group, params, root));
    return th__ddp_broadcast_buffers(ddp, root);
}
