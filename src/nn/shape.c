/* nn/shape.c: Flatten and Unflatten. */
#include <cfabric/nn_modules.h>

#include "nn/module_impl.h"
#include <cfabric/ops.h>
#include <string.h>

typedef struct flatten {
    int64_t start, end;
} flatten;

static th_tensor *flatten_forward(th_module *self, th_tensor *input)
{
    const flatten *f = self->args.data;
    return th_flatten_using_ints(input, f->start, f->end);
}

th_module *th_nn_flatten_call(struct th_nn_flatten_args args)
{
    TH__CHECK_PENDING_NULL();
    flatten f = {args.start_dim, args.end_dim};
    char repr[TH__REPR_MAX] = "";
    th__repr_add(repr, "start_dim=%lld, end_dim=%lld", (long long)args.start_dim, (long long)args.end_dim);
    return TH__BUILTIN(&f, sizeof f, "Flatten", .forward = flatten_forward, .extra_repr = repr);
}

enum { MAX_SIZES = 16 };
typedef struct unflatten {
    int64_t dim, sizes[MAX_SIZES];
    size_t count;
} unflatten;

static th_tensor *unflatten_forward(th_module *self, th_tensor *input)
{
    const unflatten *u = self->args.data;
    return th_unflatten_int(input, u->dim, ((th_ints){u->sizes, u->count}));
}

th_module *th_nn_unflatten(int64_t dim, th_ints unflattened_size)
{
    TH__CHECK_PENDING_NULL();
    if (unflattened_size.size == 0 || unflattened_size.size > MAX_SIZES) {
        TH__FAIL(TH_ERR_VALUE, "unflattened_size has %zu dimensions, expected 1 to %d", unflattened_size.size, MAX_SIZES);
        return NULL;
    }
    unflatten u = {.dim = dim, .count = unflattened_size.size};
    memcpy(u.sizes, unflattened_size.data, u.count * sizeof *u.sizes);
    char repr[TH__REPR_MAX] = "", sizes[256];
    th__repr_add(repr, "dim=%lld, unflattened_size=%s", (long long)dim, th__repr_tuple(u.sizes, u.count, sizes));
    return TH__BUILTIN(&u, sizeof u, "Unflatten", .forward = unflatten_forward, .extra_repr = repr);
}
