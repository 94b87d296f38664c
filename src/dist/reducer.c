/* dist/reducer.c: averages gradients while the backward still runs.
 *
 * A hook on every parameter copies its gradient, already divided by the world size, into its bucket. A full bucket is all-reduced in
 * the background, in bucket order, so that all ranks start the same reductions in the same order. When the last parameter is ready a
 * callback at the end of the backward waits for the reductions and copies the averages back. */
#include "data/internal.h"
#include "dist/ddp.h"
#include <cfabric/ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- the beginning of a backward */

/* Where this rank is in its data. */
static void position(int64_t *words)
{
    th__data_position last = th__data_position_last();
    words[0] = last.pass;
    words[1] = last.batch;
    words[2] = last.length;
}

static th_status different_batches(th_ddp *ddp, const int64_t *all)
{
    char text[600];
    size_t at = 0;
    for (int i = 0; i < ddp->group->size && at < sizeof text; i++) {
        const int64_t *w = all + i * TH__HEADER_PAYLOAD;
        at += (size_t)snprintf(text + at, sizeof text - at, "%srank %d is at batch %lld of %lld in epoch %lld", i ? "; " : "",
                               ddp->group->ranks[i], (long long)w[2], (long long)w[3], (long long)w[1]);
    }
    return th__fail(TH_ERR_DISTRIBUTED, "backward",
                    "the ranks have different numbers of batches, so their gradients belong to different steps: %s; give every rank "
                    "the same number or use fabric_join", text);
}

/* All ranks must be in a backward of the same module, at the same batch. */
static th_status agree(th_ddp *ddp)
{
    th__call call;
    int root_known = 0;
    int64_t payload[TH__HEADER_PAYLOAD] = {ddp->stats.synced_backwards}, *all = NULL;
    ddp->root = 0;
    if (!ddp->group->check) return TH_OK;
    position(payload + 1);
    all = th__malloc((size_t)ddp->group->size * sizeof payload);
    if (!all) return th__pending();
    th_status status = th__call_begin(&call, ddp->group, TH__DDP_CALL, ddp->what, payload, all);
    for (int i = 0; status == TH_OK && i < ddp->group->size; i++) {
        const int64_t *row = all + i * TH__HEADER_PAYLOAD;
        bool joined = row[TH__JOINED_WORD] != 0;
        if (!joined && !root_known++) ddp->root = ddp->group->last_running = i;
        if (!joined && ddp->options.check_batches && memcmp(row + 1, payload + 1, 2 * sizeof *row) != 0) status = different_batches(ddp, all);
    }
    free(all);
    return status;
}

static th_status mark_ready(th_ddp *ddp, th__param *param);
static th_status fill(th_ddp *ddp, th__param *param);

static void reset(th_ddp *ddp)
{
    for (size_t i = 0; i < ddp->n_params; i++) {
        ddp->params[i].ready = false;
        ddp->params[i].fired = 0;
    }
    for (size_t i = 0; i < ddp->n_buckets; i++) ddp->buckets[i].pending = ddp->buckets[i].n_params;
    ddp->next_bucket = 0;
}

/* What was there before, for example from backwards without averaging; zero without. */
static th_status fill_unused(th_ddp *ddp, th__param *param)
{
    if (th_has_grad(param->tensor)) return fill(ddp, param);
    th_zero_(param->view);
    return th__pending();
}

/* Parameters that cannot get a gradient in this backward are ready from the start. */
static th_status begin(th_ddp *ddp)
{
    th_process_group *group = ddp->group;
    if (!th__group_enter(&group, "backward")) return th__pending();
    reset(ddp);
    TH__TRY(agree(ddp));
    ddp->running = true;
    bool known = ddp->options.static_graph ? ddp->learned : ddp->options.find_unused_parameters;
    for (size_t i = 0; known && i < ddp->n_params; i++) {
        th__param *p = &ddp->params[i];
        bool unused = ddp->options.static_graph ? p->expected == 0 : !p->reached;
        if (!unused) continue;
        TH__TRY(fill_unused(ddp, p));
        TH__TRY(mark_ready(ddp, p));
    }
    return th__pending();
}

/* ---------------------------------------------------------------- buckets on their way */

/* The buffer, or a copy the backend can add up: half types Gloo was built without, and complex numbers. */
static th_status make_wire(th_ddp *ddp, th__bucket *bucket)
{
    th_dtype dtype = th_dtype_of(bucket->buffer);
    const th__comm_caps *caps = &ddp->group->caps;
    th_tensor *wire = bucket->buffer;
    if ((dtype == TH_FLOAT16 && !caps->half) || (dtype == TH_BFLOAT16 && !caps->bfloat16))
        wire = th_keep(th_to_dtype(wire, TH_FLOAT32));
    else if (th_dtype_is_complex(dtype))
        wire = th_keep(th_view_as_real(wire));
    bucket->wire = wire;
    return th__pending();
}

static th_status run_hook(th_ddp *ddp, th__bucket *bucket, size_t index)
{
    th_grad_bucket shown = {bucket->buffer, index, ddp->n_buckets, ddp->group};
    bool check = ddp->group->check; /* the ranks have agreed on this backward already */
    ddp->group->check = false;
    th_status status = ddp->comm_hook(&shown, ddp->comm_user);
    ddp->group->check = check;
    return status == TH_OK || th__pending() != TH_OK ? th__pending() : th__fail(status, "backward", "the communication hook failed");
}

static th_status launch(th_ddp *ddp, size_t index)
{
    th__bucket *bucket = &ddp->buckets[index];
    ddp->stats.all_reduces++;
    if (ddp->comm_hook) return run_hook(ddp, bucket, index);
    TH__TRY(make_wire(ddp, bucket));
    bucket->call = (th__call){.group = ddp->group, .name = "DDP gradients", .number = ++ddp->group->calls};
    bucket->work = th__comm_all_reduce(ddp->group->comm, bucket->wire, TH__COMM_SUM, &bucket->error);
    if (!bucket->work) return th__call_wait(&bucket->call, NULL, &bucket->error);
    ddp->group->in_flight++;
    return TH_OK;
}

th_status th__ddp_launch_ready(th_ddp *ddp)
{
    for (; ddp->next_bucket < ddp->n_buckets && ddp->buckets[ddp->next_bucket].pending == 0; ddp->next_bucket++)
        TH__TRY(launch(ddp, ddp->next_bucket));
    return TH_OK;
}

static th_status collect(th_ddp *ddp, th__bucket *bucket)
{
    th__work *work = bucket->work;
    bucket->work = NULL;
    if (!work) return TH_OK; /* a hook has done it, or it could not be started */
    ddp->group->in_flight--;
    th_status status = th__call_wait(&bucket->call, work, &bucket->error);
    if (bucket->wire != bucket->buffer) {
        if (status == TH_OK && !th_dtype_is_complex(th_dtype_of(bucket->buffer))) th_copy_(bucket->buffer, bucket->wire);
        if (status == TH_OK) th_free(bucket->wire); /* otherwise the backend may still write into it */
        bucket->wire = bucket->buffer;
    }
    return status == TH_OK ? th__pending() : status;
}

/* ---------------------------------------------------------------- the end of a backward */

/* Which parameters some rank has used; a gradient that no rank has made stays what it was. */
static th_status used_anywhere(th_ddp *ddp, bool *used, bool shadow)
{
    TH_SCOPE();
    th_tensor *counts = th_zeros(TH_INTS((int64_t)ddp->n_params), .dtype = TH_INT32);
    TH__CHECK_PENDING();
    int32_t *numbers = th_data_ptr(counts);
    for (size_t i = 0; !shadow && i < ddp->n_params; i++) numbers[i] = ddp->params[i].touched;
    if (ddp->group->device.type != TH_DEVICE_CPU) counts = th_to_device(counts, ddp->group->device, TH_INT32);
    th__call call = {.group = ddp->group, .name = "DDP used parameters", .number = ++ddp->group->calls};
    TH__TRY(th__compat_reduce(&call, counts, TH_REDUCE_MAX, -1));
    counts = th_to_device(counts, TH_CPU, TH_INT32);
    TH__CHECK_PENDING();
    numbers = th_data_ptr(counts);
    for (size_t i = 0; i < ddp->n_params; i++) used[i] = numbers[i] > 0;
    return TH_OK;
}

static th_status give_back(th_ddp *ddp, th__param *param)
{
    if (ddp->options.gradient_as_bucket_view) {
        th_tensor *grad = th_grad(param->tensor);
        return grad && th_data_ptr(grad) == th_data_ptr(param->view) ? TH_OK : th_set_grad(param->tensor, param->view);
    }
    th_tensor *grad = th_grad(param->tensor);
    if (grad) return th_copy_(grad, param->view), th__pending();
    return th_set_grad(param->tensor, th_clone(param->view));
}

th_status th__ddp_finish(th_ddp *ddp, bool shadow)
{
    TH_SCOPE();
    TH_NO_GRAD();
    bool search = ddp->options.find_unused_parameters || ddp->options.static_graph, *used = NULL;
    th_status status = th__ddp_launch_ready(ddp);
    for (size_t i = 0; i < ddp->next_bucket; i++) {
        th_status waited = collect(ddp, &ddp->buckets[i]); /* all, also after a failure */
        if (status == TH_OK) status = waited;
    }
    ddp->running = false;
    ddp->stats.synced_backwards++;
    if (status == TH_OK && search) {
        used = th__calloc(ddp->n_params, sizeof *used);
        status = used ? used_anywhere(ddp, used, shadow) : th__pending();
    }
    for (size_t i = 0; status == TH_OK && !shadow && i < ddp->n_params; i++) {
        th__param *p = &ddp->params[i];
        if (!used || used[i]) status = give_back(ddp, p);
        if (ddp->options.static_graph && !ddp->learned) p->expected = p->fired;
        p->reached = p->touched = false;
    }
    free(used);
    if (status != TH_OK) return status;
    ddp->learned = !shadow || ddp->learned;
    if (!ddp->rebuilt && (ddp->options.static_graph || !ddp->options.find_unused_parameters)) TH__TRY(th__ddp_rebuild(ddp));
    return ddp->options.broadcast_buffers ? th__ddp_broadcast_buffers(ddp, ddp->root) : TH_OK;
}

static void remember_order(th_ddp *ddp, th__param *param)
{
    if (ddp->rebuilt || ddp->n_order >= ddp->n_params || param->ordered) return;
    param->ordered = true;
    ddp->order[ddp->n_order++] = (size_t)(param - ddp->params);
}

static th_status at_end(void *user)
{
    th_ddp *ddp = user;
    ddp->finish_queued = false;
    if (!ddp->running) return TH_OK;
    if (ddp->options.static_graph && !ddp->learned) { /* the first time everything is reduced here */
        TH_NO_GRAD();
        for (size_t i = 0; i < ddp->n_params; i++)
            if (!ddp->params[i].ready) {
                remember_order(ddp, &ddp->params[i]);
                if (ddp->params[i].fired == 0) TH__TRY(fill_unused(ddp, &ddp->params[i]));
                TH__TRY(mark_ready(ddp, &ddp->params[i]));
            }
    }
    return th__ddp_finish(ddp, false);
}

th_status th__ddp_queue_finish(th_ddp *ddp)
{
    if (ddp->finish_queued) return TH_OK;
    ddp->finish_queued = true;
    return th_queue_backward_callback(at_end, ddp);
}

/* ---------------------------------------------------------------- one gradient */

static th_status mark_ready(th_ddp *ddp, th__param *param)
{
    if (param->ready)
        return th__fail(TH_ERR_RUNTIME, "backward",
                        "parameter '%s' got a second gradient in one backward; if the graph is the same in every step, use static_graph",
                        param->name);
    param->ready = true;
    ddp->buckets[param->bucket].pending--;
    return th__ddp_launch_ready(ddp);
}

/* Copies the gradient into its bucket and divides it; with a hook, the hook divides. */
static th_status fill(th_ddp *ddp, th__param *param)
{
    th_tensor *grad = th_grad(param->tensor);
    if (!grad) return th__pending();
    bool inside = th_data_ptr(grad) == th_data_ptr(param->view);
    if (ddp->comm_hook)
        return inside ? TH_OK : (th_copy_(param->view, grad), th__pending());
    th_mul_out(grad, ddp->scale, .out = param->view);
    return th__pending();
}

th_status th__ddp_gradient_hook(th_tensor *leaf, void *user)
{
    (void)leaf;
    th__param *param = user;
    th_ddp *ddp = param->owner;
    if (!ddp->group) return TH_OK;
    param->touched = true;
    if (!ddp->require_sync) {
        ddp->skipped = true;
        return TH_OK;
    }
    TH_NO_GRAD();
    if (!ddp->running) TH__TRY(begin(ddp));
    param->fired++;
    remember_order(ddp, param);
    if (ddp->options.static_graph) {
        if (!ddp->learned) TH__TRY(th__ddp_queue_finish(ddp));
        if (!ddp->learned) return fill(ddp, param); /* the last of several gradients is the sum of all */
        if (param->fired < param->expected) return TH_OK;
    }
    TH__TRY(fill(ddp, param));
    TH__TRY(mark_ready(ddp, param));
    return ddp->next_bucket == ddp->n_buckets ? th__ddp_queue_finish(ddp) : TH_OK;
}

/* ---------------------------------------------------------------- a backward that did not end */

th_status th__ddp_missing(th_ddp *ddp)
{
    char names[900];
    size_t at = 0, n = 0;
    for (size_t i = 0; i < ddp->n_params; i++) {
        if (ddp->params[i].ready) continue;
        n++;
        if (at < sizeof names) at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", ddp->params[i].name);
    }
    TH_NO_GRAD();
    for (size_t i = 0; i < ddp->next_bucket; i++) collect(ddp, &ddp->buckets[i]);
    ddp->running = false;
    TH__CHECK_PENDING();
    return th__fail(TH_ERR_RUNTIME, "forward",
                    "%zu parameters got no gradient in the last backward, so it was not averaged: %s; use find_unused_parameters "
                    "(strategy \"ddp_find_unused_parameters_true\") or make the loss depend on all of them", n, names);
}
