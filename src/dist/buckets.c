/* dist/buckets.c: which parameters' gradients travel together, laid out as PyTorch lays them out.
 *
 * Parameters of one dtype and device fill a bucket until its limit is reached: 1 MiB for the first, the cap for the others. Before the
 * first backward nothing is known about the order of gradients, so there is one bucket (per dtype and device) unless unused
 * parameters are searched, and the buckets are reversed; afterwards they follow the order that rank 0 observed. */
#include "dist/ddp.h"
#include <cfabric/ops.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LIMIT ((int64_t)1 << 20)
#define DEFAULT_CAP_MB 25.0

typedef struct filling {     /* the bucket being filled for one dtype and device */
    th_dtype dtype;
    th_device device;
    size_t *params, n, capacity;
    int64_t bytes;
    bool second;             /* the first limit has been used up */
} filling;

typedef struct layout {
    filling *open;
    size_t n_open, open_capacity;
    th__bucket *buckets;
    size_t n, capacity;
} layout;

static filling *filling_for(layout *l, th_tensor *tensor)
{
    th_dtype dtype = th_dtype_of(tensor);
    th_device device = th_device_of(tensor);
    for (size_t i = 0; i < l->n_open; i++) {
        filling *f = &l->open[i];
        if (f->dtype == dtype && f->device.type == device.type && f->device.index == device.index) return f;
    }
    filling fresh = {.dtype = dtype, .device = device};
    return TH__PUSH(l->open, l->n_open, l->open_capacity, fresh) == 0 ? &l->open[l->n_open - 1] : NULL;
}

static th_status close_bucket(layout *l, filling *f)
{
    th__bucket bucket = {.params = f->params, .n_params = f->n};
    if (TH__PUSH(l->buckets, l->n, l->capacity, bucket) != 0) return th__pending();
    f->params = NULL;
    f->n = f->capacity = 0;
    f->bytes = 0;
    f->second = true;
    return TH_OK;
}

static int by_first_param(const void *a, const void *b)
{
    const th__bucket *x = a, *y = b;
    size_t i = x->params[0], j = y->params[0];
    return i < j ? -1 : i > j;
}

static void free_layout(layout *l)
{
    for (size_t i = 0; i < l->n_open; i++) free(l->open[i].params);
    free(l->open);
}

/* Distributes parameters, given in `order` (NULL: registration order), over buckets. */
static th_status assign(th_ddp *ddp, const size_t *order, int64_t first, int64_t others, layout *l)
{
    for (size_t i = 0; i < ddp->n_params; i++) {
        size_t index = order ? order[i] : i;
        filling *f = filling_for(l, ddp->params[index].tensor);
        if (!f || TH__PUSH(f->params, f->n, f->capacity, index) != 0) return th__pending();
        f->bytes += (int64_t)th_nbytes(ddp->params[index].tensor);
        if (f->bytes >= (f->second ? others : first)) TH__TRY(close_bucket(l, f));
    }
    for (size_t i = 0; i < l->n_open; i++)
        if (l->open[i].n) TH__TRY(close_bucket(l, &l->open[i]));
    if (order || l->n < 2) return TH_OK;
    qsort(l->buckets, l->n, sizeof *l->buckets, by_first_param);
    for (size_t i = 0, j = l->n - 1; i < j; i++, j--) {
        th__bucket swap = l->buckets[i];
        l->buckets[i] = l->buckets[j];
        l->buckets[j] = swap;
    }
    return TH_OK;
}

/* The buffer of one bucket and each parameter's window into it. Gradients that live in the old buffer move along. */
static th_status allocate(th_ddp *ddp, size_t index)
{
    TH_SCOPE();
    TH_NO_GRAD();
    th__bucket *bucket = &ddp->buckets[index];
    int64_t total = 0;
    for (size_t i = 0; i < bucket->n_params; i++) total += ddp->params[bucket->params[i]].numel;
    th_tensor *first = ddp->params[bucket->params[0]].tensor;
    bucket->buffer = th_keep(th_zeros(TH_INTS(total), .dtype = th_dtype_of(first), .device = th_device_of(first)));
    TH__CHECK_PENDING();
    int64_t offset = 0;
    for (size_t i = 0; i < bucket->n_params; i++) {
        th__param *p = &ddp->params[bucket->params[i]];
        th_tensor *view = th_keep(th_view(th_narrow(bucket->buffer, 0, offset, p->numel), th_sizes(p->tensor)));
        TH__CHECK_PENDING();
        th_tensor *grad = ddp->options.gradient_as_bucket_view ? th_grad(p->tensor) : NULL;
        if (grad) {
            th_copy_(view, grad);
            TH__TRY(th_set_grad(p->tensor, view));
        }
        th_free(p->view);
        p->view = view;
        p->bucket = index;
        p->offset = offset;
        offset += p->numel;
        ddp->stats.bucket_bytes += th_nbytes(view);
    }
    return TH_OK;
}

void th__ddp_free_buckets(th_ddp *ddp)
{
    for (size_t i = 0; i < ddp->n_buckets; i++) {
        th__bucket *b = &ddp->buckets[i];
        if (b->work) th__work_free(b->work);
        if (b->wire != b->buffer) th_free(b->wire);
        th_free(b->buffer);
        free(b->params);
    }
    free(ddp->buckets);
    ddp->buckets = NULL;
    ddp->n_buckets = 0;
    ddp->stats.bucket_bytes = 0;
}

static th_status build(th_ddp *ddp, const size_t *order, int64_t first, int64_t others)
{
    layout l = {0};
    th_status status = assign(ddp, order, first, others, &l);
    free_layout(&l);
    th__ddp_free_buckets(ddp);
    ddp->buckets = l.buckets;
    ddp->n_buckets = ddp->stats.buckets = l.n;
    for (size_t i = 0; status == TH_OK && i < l.n; i++) status = allocate(ddp, i);
    return status;
}

static int64_t cap_of(const th_ddp *ddp, int64_t *first)
{
    double mb = ddp->options.bucket_cap_mb > 0 ? ddp->options.bucket_cap_mb : DEFAULT_CAP_MB;
    int64_t cap = (int64_t)(mb * 1048576.0);
    *first = mb == DEFAULT_CAP_MB ? FIRST_LIMIT : cap;
    return cap;
}

th_status th__ddp_first_buckets(th_ddp *ddp)
{
    int64_t first, cap = cap_of(ddp, &first);
    bool one = ddp->options.static_graph || !ddp->options.find_unused_parameters;
    return build(ddp, NULL, one ? INT64_MAX : first, one ? INT64_MAX : cap);
}

th_status th__ddp_rebuild(th_ddp *ddp)
{
    TH_SCOPE();
    TH_NO_GRAD();
    int64_t first, cap = cap_of(ddp, &first);
    /* Rank 0's order; a rank 0 that has not seen all gradients (it joined early) says so with -1 and the buckets stay. */
    th_tensor *order = th_full(TH_INTS((int64_t)ddp->n_params), TH_S(-1), .dtype = TH_INT64);
    TH__CHECK_PENDING();
    int64_t *numbers = th_data_ptr(order);
    for (size_t i = 0; i < ddp->n_params && ddp->n_order == ddp->n_params; i++) numbers[i] = (int64_t)ddp->order[i];
    th__call call = {.group = ddp->group, .name = "DDP bucket order", .number = ++ddp->group->calls};
    if (ddp->group->device.type != TH_DEVICE_CPU) {
        th_tensor *there = th_to_device(order, ddp->group->device, TH_INT64);
        TH__CHECK_PENDING();
        TH__TRY(th__compat_broadcast(&call, there, 0));
        TH__TRY(th_copy_to(there, numbers, ddp->n_params * sizeof *numbers, TH_INT64));
    } else {
        TH__TRY(th__compat_broadcast(&call, order, 0));
    }
    ddp->rebuilt = true;
    if (numbers[0] < 0) return TH_OK;
    size_t *agreed = th__malloc(ddp->n_params * sizeof *agreed);
    if (!agreed) return th__pending();
    for (size_t i = 0; i < ddp->n_params; i++) agreed[i] = (size_t)numbers[i];
    th_status status = build(ddp, agreed, first, cap);
    free(agreed);
    ddp->stats.rebuilt = status == TH_OK;
    return status;
}
