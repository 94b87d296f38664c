/* dist/ddp.c: data-parallel modules: making and ending them, what surrounds a forward, communication hooks. */
#include "dist/ddp.h"
#include <cfabric/ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t modules_made; /* the same on every rank: names the calls of each module */

/* ---------------------------------------------------------------- making */

static int add_param(const char *name, th_tensor *tensor, void *user)
{
    th_ddp *ddp = user;
    if (!th_requires_grad(tensor)) return th__pending() != TH_OK;
    th__param *grown = th__realloc(ddp->params, ddp->n_params + 1, sizeof *grown);
    if (!grown) return 1;
    ddp->params = grown;
    th__param *p = &grown[ddp->n_params];
    *p = (th__param){.name = th__strdup(name), .tensor = th_retain(tensor), .owner = ddp, .numel = th_numel(tensor)};
    ddp->n_params++;
    return th__pending() != TH_OK;
}

static th_status hook_params(th_ddp *ddp)
{
    for (size_t i = 0; i < ddp->n_params; i++) {
        th__param *p = &ddp->params[i];
        p->hook = th_register_post_accumulate_grad_hook(p->tensor, th__ddp_gradient_hook, p);
        if (!p->hook) return th__pending();
    }
    return TH_OK;
}

static th_status start(th_ddp *ddp)
{
    th_process_group *group = ddp->options.group;
    bool alone = !th__group_enter(&group, "th_ddp_new");
    TH__CHECK_PENDING();
    if (!alone) ddp->group = group;
    th_named_parameters(ddp->module, add_param, ddp);
    TH__CHECK_PENDING();
    if (ddp->n_params == 0)
        return th__fail(TH_ERR_RUNTIME, "th_ddp_new", "the module has no parameter that requires a gradient: it needs no data parallelism");
    if (alone) return TH_OK;
    TH_SCOPE();
    TH_NO_GRAD();
    ddp->order = th__calloc(ddp->n_params, sizeof *ddp->order);
    if (!ddp->order) return th__pending();
    if (ddp->options.init_sync) {
        TH__TRY(th__ddp_compare(ddp));
        TH__TRY(th__ddp_broadcast_module(ddp, 0));
    }
    ddp->scale = th_keep(th_to_device(th_tensor_scalar(TH_S(1.0 / group->size), TH_FLOAT64), TH_CPU, TH_FLOAT64));
    TH__CHECK_PENDING();
    TH__TRY(th__ddp_first_buckets(ddp));
    return hook_params(ddp);
}

th_ddp *th_ddp_new_call(struct th_ddp_args args)
{
    TH__CHECK_PENDING_NULL();
    if (!args.module) return th__fail(TH_ERR_TYPE, "th_ddp_new", "the module is NULL"), NULL;
    if (args.bucket_cap_mb < 0) return th__fail(TH_ERR_VALUE, "th_ddp_new", "bucket_cap_mb %g, expected above 0", args.bucket_cap_mb), NULL;
    th_ddp *ddp = th__calloc(1, sizeof *ddp);
    if (!ddp) return NULL;
    ddp->module = th_module_retain(args.module);
    ddp->options = args;
    ddp->number = modules_made++;
    ddp->require_sync = true;
    snprintf(ddp->what, sizeof ddp->what, "module %zu", ddp->number);
    if (start(ddp) == TH_OK) return ddp;
    th_ddp_free(ddp);
    return NULL;
}

static void remove_sinks(th_ddp *ddp)
{
    for (size_t i = 0; i < ddp->n_sinks; i++) th_hook_remove(ddp->sinks[i]);
    free(ddp->sinks);
    ddp->sinks = NULL;
    ddp->n_sinks = 0;
}

void th_ddp_free(th_ddp *ddp)
{
    if (!ddp) return;
    remove_sinks(ddp);
    for (size_t i = 0; i < ddp->n_params; i++) {
        th__param *p = &ddp->params[i];
        th_hook_remove(p->hook);
        th_free(p->view);
        th_free(p->tensor);
        free(p->name);
    }
    th__ddp_free_buckets(ddp);
    th_free(ddp->scale);
    free(ddp->params);
    free(ddp->order);
    th_module_free(ddp->module);
    free(ddp);
}

/* ---------------------------------------------------------------- around a forward */

th_status th_ddp_pre_forward(th_ddp *ddp)
{
    TH__CHECK_PENDING();
    remove_sinks(ddp);
    if (!ddp->group || !ddp->require_sync || !th_is_grad_enabled() || !ddp->running) return TH_OK;
    return th__ddp_missing(ddp);
}

/* Runs when a backward enters the module from an output: the end of that backward is what counts, not of one inside it. */
static th_tensor *sink(th_tensor *grad, void *user)
{
    (void)grad;
    th_ddp *ddp = user;
    if (ddp->require_sync && !ddp->learned) th__ddp_queue_finish(ddp);
    return NULL;
}

static th_status hook_outputs(th_ddp *ddp, th_tensors outputs)
{
    ddp->sinks = th__calloc(outputs.size ? outputs.size : 1, sizeof *ddp->sinks);
    for (size_t i = 0; ddp->sinks && i < outputs.size; i++) {
        if (!outputs.data[i] || !th_requires_grad(outputs.data[i])) continue;
        ddp->sinks[ddp->n_sinks] = th_register_hook(outputs.data[i], sink, ddp);
        if (ddp->sinks[ddp->n_sinks]) ddp->n_sinks++;
    }
    return th__pending();
}

th_status th_ddp_post_forward(th_ddp *ddp, th_tensors outputs)
{
    TH__CHECK_PENDING();
    if (!ddp->group || !th_is_grad_enabled()) return TH_OK;
    if (ddp->options.static_graph) return ddp->learned ? TH_OK : hook_outputs(ddp, outputs);
    if (!ddp->options.find_unused_parameters) return TH_OK;
    for (size_t i = 0; ddp->skipped && i < ddp->n_params; i++) ddp->params[i].reached = false;
    ddp->skipped = false;
    th_tensor **leaves = th__malloc(ddp->n_params * sizeof *leaves);
    bool *reached = th__calloc(ddp->n_params, sizeof *reached);
    th_status status = leaves && reached ? TH_OK : th__pending();
    for (size_t i = 0; status == TH_OK && i < ddp->n_params; i++) leaves[i] = ddp->params[i].tensor;
    if (status == TH_OK) status = th__graph_reaches(outputs, (th_tensors){leaves, ddp->n_params}, reached);
    for (size_t i = 0; status == TH_OK && i < ddp->n_params; i++) ddp->params[i].reached |= reached[i];
    free(leaves);
    free(reached);
    return status;
}

bool th_ddp_set_require_sync(th_ddp *ddp, bool sync)
{
    bool old = ddp->require_sync;
    ddp->require_sync = sync;
    return old;
}

th_status th_ddp_sync_buffers(th_ddp *ddp)
{
    th__call call;
    TH__CHECK_PENDING();
    if (!ddp->group) return TH_OK;
    th_process_group *group = ddp->group;
    if (!th__group_enter(&group, __func__)) return th__pending();
    TH__TRY(th__call_begin(&call, group, "sync_buffers", ddp->what, NULL, NULL));
    return th__ddp_broadcast_buffers(ddp, 0);
}

th_ddp_stats th_ddp_get_stats(th_ddp *ddp) { return ddp->stats; }

/* ---------------------------------------------------------------- communication hooks */

th_status th_ddp_register_comm_hook(th_ddp *ddp, th_comm_hook hook, void *user)
{
    TH__CHECK_PENDING();
    if (ddp->comm_hook) return TH__FAIL(TH_ERR_RUNTIME, "a communication hook has been registered already");
    if (ddp->running) return TH__FAIL(TH_ERR_RUNTIME, "a backward is under way");
    ddp->comm_hook = hook;
    ddp->comm_user = user;
    return TH_OK;
}

static th_status reduce_as(th_grad_bucket *bucket, th_dtype dtype)
{
    TH_SCOPE();
    th_tensor *small = dtype == TH_DTYPE_NONE ? bucket->buffer : th_to_dtype(bucket->buffer, dtype);
    th_div_scalar_(small, TH_S((double)th_dist_get_world_size(bucket->group)));
    TH__TRY(th_dist_all_reduce(small, .group = bucket->group));
    if (small != bucket->buffer) th_copy_(bucket->buffer, small);
    return th__pending();
}

th_status th_ddp_allreduce_hook(th_grad_bucket *bucket, void *user)
{
    (void)user;
    return reduce_as(bucket, TH_DTYPE_NONE);
}

th_status th_ddp_fp16_compress_hook(th_grad_bucket *bucket, void *user)
{
    (void)user;
    return reduce_as(bucket, TH_FLOAT16);
}

th_status th_ddp_bf16_compress_hook(th_grad_bucket *bucket, void *user)
{
    (void)user;
    return reduce_as(bucket, TH_BFLOAT16);
}
