/* dist/p2p.c: send and recv. The two ranks show each other dtype and sizes first, so that both learn of a mismatch. */
#include "dist/internal.h"
#include <cfabric/ops.h>
#include <stdio.h>
#include <string.h>

typedef struct letter {   /* what travels before the data */
    int64_t accepted;
    char what[TH__WHAT_SIZE];
} letter;

static th_tensor *on_host(th_tensor *tensor) { return th_contiguous(th_to_device(th_detach(tensor), TH_CPU, th_dtype_of(tensor))); }

static th_status exchange_letters(th__call *call, const letter *mine, letter *theirs, int peer, int tag, bool sends, int *from)
{
    th__comm *comm = call->group->comm;
    th__comm_error error;
    th_tensor *out = th_tensor_from(mine, TH_INTS((int64_t)sizeof *mine), TH_UINT8);
    th_tensor *in = th_zeros(TH_INTS((int64_t)sizeof *theirs), .dtype = TH_UINT8);
    TH__CHECK_PENDING();
    for (int step = 0; step < 2; step++) {
        if ((step == 0) == sends) {
            TH__TRY(th__call_wait_once(call, th__comm_send(comm, out, peer, tag, &error), &error));
        } else {
            TH__TRY(th__call_wait_once(call, th__comm_recv(comm, in, peer, tag, &error), &error));
            if (peer < 0) peer = call->source; /* from anybody: now we know from whom */
        }
    }
    *from = peer;
    return th_copy_to(in, theirs, sizeof *theirs, TH_UINT8);
}

static th_status talk(struct th_dist_call_args *args, bool sends, const char *name, int *from)
{
    TH_SCOPE();
    TH_NO_GRAD();
    th_process_group *group = args->group;
    th__call call = {.group = group, .name = name, .number = group->calls};
    th__comm_error error;
    int peer = sends ? args->dst : args->src;
    if (peer >= 0 || sends) peer = th__group_rank_of(group, peer, name, sends ? "dst" : "src");
    TH__CHECK_PENDING();
    if (peer == group->rank) return th__fail(TH_ERR_VALUE, name, "rank %d and itself, expected another rank", group->ranks[peer]);
    if (group->check && group->caps.host_only) {
        letter mine = {0}, theirs;
        th__describe_tensor(args->tensor, mine.what, sizeof mine.what);
        TH__TRY(exchange_letters(&call, &mine, &theirs, peer, args->tag, sends, &peer));
        theirs.what[sizeof theirs.what - 1] = '\0';
        if (strcmp(mine.what, theirs.what) != 0)
            return th__fail(TH_ERR_DISTRIBUTED, name, "rank %d %s %s, rank %d %s %s", group->ranks[group->rank],
                            sends ? "sends" : "receives", mine.what, group->ranks[peer], sends ? "receives" : "sends", theirs.what);
    }
    th_tensor *plain = th_detach(args->tensor), *dense = group->caps.host_only ? on_host(plain) : th_contiguous(plain);
    TH__CHECK_PENDING();
    *from = peer;
    if (th_numel(plain) == 0 && peer >= 0) return TH_OK;
    th_tensor *bytes = th__bytes_of(dense);
    th__work *work = sends ? th__comm_send(group->comm, bytes, peer, args->tag, &error)
                           : th__comm_recv(group->comm, bytes, peer, args->tag, &error);
    TH__TRY(th__call_wait_once(&call, work, &error));
    if (peer < 0) *from = call.source;
    if (!sends && th_data_ptr(dense) != th_data_ptr(plain)) th_copy_(plain, dense);
    return th__pending();
}

static th_status enter(struct th_dist_call_args *args, const char *function)
{
    TH__CHECK_PENDING();
    if (!th__tensor_check(args->tensor, function, "tensor")) return th__pending();
    if (th__group_enter(&args->group, function)) return TH_OK;
    TH__CHECK_PENDING();
    return th__fail(TH_ERR_RUNTIME, function, "there is no other rank");
}

th_status th_dist_send_call(struct th_dist_call_args args)
{
    int from;
    TH__TRY(enter(&args, "th_dist_send"));
    return talk(&args, true, "send", &from);
}

int th_dist_recv_call(struct th_dist_call_args args)
{
    int from = -1;
    TH__TRY(enter(&args, "th_dist_recv"));
    TH__TRY(talk(&args, false, "recv", &from));
    return args.group->ranks[from];
}
