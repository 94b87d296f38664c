/* optim/each.c: list arithmetic: one operator for a list of one, one _foreach_ operator for a longer list. */
#include "optim/each.h"

#include "bridge/bridge.h"
#include <cfabric/ops.h>

/* ---------------------------------------------------------------- helpers */

#define LIST(x)                                                                                                                  \
    {                                                                                                                            \
        .kind = TH_ARG_TENSORS, .v.tensors = (x)                                                                                 \
    }
#define NUMBER(x)                                                                                                                \
    {                                                                                                                            \
        .kind = TH_ARG_SCALAR, .v.scalar = th_scalar_double(x)                                                                   \
    }

/* After an error lists may be empty. */
static bool failed(void) { return TH__UNLIKELY(th__pending() != TH_OK); }

/* A list of one, [scoped]. */
static th_tensors single(th_tensor *tensor)
{
    th_tensor **slot = th__scope_alloc(sizeof *slot);
    if (slot == NULL) return (th_tensors){NULL, 0};
    *slot = tensor;
    return (th_tensors){slot, 1};
}

static void call(const char *op, const th_arg *args, size_t n) { th_call_args(op, args, n, NULL, 0); }

static th_tensors call_list(const char *op, const th_arg *args, size_t n)
{
    th_arg result = {.kind = TH_ARG_NONE};
    if (th_call_args(op, args, n, &result, 1) != 1 || result.kind != TH_ARG_TENSORS) return (th_tensors){NULL, 0};
    return result.v.tensors;
}

#define CALL(op, ...) call(op, (const th_arg[]){__VA_ARGS__}, sizeof((const th_arg[]){__VA_ARGS__}) / sizeof(th_arg))
#define CALL_LIST(op, ...) call_list(op, (const th_arg[]){__VA_ARGS__}, sizeof((const th_arg[]){__VA_ARGS__}) / sizeof(th_arg))

static th_arg numbers(const double *values, size_t n)
{
    th_arg arg = {.kind = TH_ARG_SCALARS};
    th_scalar *list = th__scope_alloc(n * sizeof *list);
    for (size_t i = 0; list != NULL && i < n; i++) list[i] = th_scalar_double(values[i]);
    arg.v.scalars = (th_scalars){list, list != NULL ? n : 0};
    return arg;
}

/* ---------------------------------------------------------------- in place */

/* tensor.mul_(number) of Python is the Tensor overload with a number in it; the Scalar overload rounds the number to bfloat16. */
void th__mul_number_(th_tensor *tensor, double x)
{
    static th__op op = {"aten::mul_", "Tensor", NULL};
    const th_arg args[] = {TH_A(tensor), NUMBER(x)};
    th__op_call_tensor(&op, args, 2);
}

void th__each_add_(th_tensors a, th_tensors b, double alpha)
{
    if (failed()) return;
    if (a.size == 1)
        th_add_(a.data[0], b.data[0], .alpha = TH_S(alpha));
    else
        CALL("aten::_foreach_add_.List", LIST(a), LIST(b), NUMBER(alpha));
}

void th__each_add_scalar_(th_tensors a, double x)
{
    if (failed()) return;
    if (a.size == 1)
        th_add_scalar_(a.data[0], TH_S(x));
    else
        CALL("aten::_foreach_add_.Scalar", LIST(a), NUMBER(x));
}

void th__each_mul_(th_tensors a, th_tensors b)
{
    if (failed()) return;
    if (a.size == 1)
        th_mul_(a.data[0], b.data[0]);
    else
        CALL("aten::_foreach_mul_.List", LIST(a), LIST(b));
}

void th__each_mul_scalar_(th_tensors a, double x)
{
    if (failed()) return;
    if (a.size == 1)
        th__mul_number_(a.data[0], x);
    else
        CALL("aten::_foreach_mul_.Scalar", LIST(a), NUMBER(x));
}

void th__each_div_(th_tensors a, th_tensors b)
{
    if (failed()) return;
    if (a.size == 1)
        th_div_(a.data[0], b.data[0]);
    else
        CALL("aten::_foreach_div_.List", LIST(a), LIST(b));
}

void th__each_div_scalars_(th_tensors a, const double *x)
{
    if (failed()) return;
    if (a.size == 1)
        th_div_scalar_(a.data[0], TH_S(x[0]));
    else
        CALL("aten::_foreach_div_.ScalarList", LIST(a), numbers(x, a.size));
}

void th__each_sqrt_(th_tensors a)
{
    if (failed()) return;
    if (a.size == 1)
        th_sqrt_(a.data[0]);
    else
        CALL("aten::_foreach_sqrt_", LIST(a));
}

void th__each_lerp_(th_tensors a, th_tensors b, double weight)
{
    if (failed()) return;
    if (a.size == 1)
        th_lerp_scalar_(a.data[0], b.data[0], TH_S(weight));
    else
        CALL("aten::_foreach_lerp_.Scalar", LIST(a), LIST(b), NUMBER(weight));
}

void th__each_maximum_(th_tensors a, th_tensors b)
{
    if (failed()) return;
    if (a.size == 1)
        th_maximum_out(a.data[0], b.data[0], .out = a.data[0]);
    else
        CALL("aten::_foreach_maximum_.List", LIST(a), LIST(b));
}

void th__each_addcmul_(th_tensors a, th_tensors b, th_tensors c, double value)
{
    if (failed()) return;
    if (a.size == 1)
        th_addcmul_(a.data[0], b.data[0], c.data[0], .value = TH_S(value));
    else
        CALL("aten::_foreach_addcmul_.Scalar", LIST(a), LIST(b), LIST(c), NUMBER(value));
}

void th__each_addcdiv_(th_tensors a, th_tensors b, th_tensors c, const double *values)
{
    if (failed()) return;
    if (a.size == 1)
        th_addcdiv_(a.data[0], b.data[0], c.data[0], .value = TH_S(values[0]));
    else
        CALL("aten::_foreach_addcdiv_.ScalarList", LIST(a), LIST(b), LIST(c), numbers(values, a.size));
}

/* ---------------------------------------------------------------- new lists */

th_tensors th__each_add(th_tensors a, th_tensors b, double alpha)
{
    if (failed()) return (th_tensors){NULL, 0};
    if (a.size == 1) return single(th_add(a.data[0], b.data[0], .alpha = TH_S(alpha)));
    return CALL_LIST("aten::_foreach_add.List", LIST(a), LIST(b), NUMBER(alpha));
}

th_tensors th__each_add_scalar(th_tensors a, double x)
{
    if (failed()) return (th_tensors){NULL, 0};
    if (a.size == 1) return single(th_add_scalar(a.data[0], TH_S(x)));
    return CALL_LIST("aten::_foreach_add.Scalar", LIST(a), NUMBER(x));
}

th_tensors th__each_neg(th_tensors a)
{
    if (failed()) return (th_tensors){NULL, 0};
    if (a.size == 1) return single(th_neg(a.data[0]));
    return CALL_LIST("aten::_foreach_neg", LIST(a));
}

th_tensors th__each_sqrt(th_tensors a)
{
    if (failed()) return (th_tensors){NULL, 0};
    if (a.size == 1) return single(th_sqrt(a.data[0]));
    return CALL_LIST("aten::_foreach_sqrt", LIST(a));
}

th_tensors th__each_addcmul(th_tensors a, th_tensors b, th_tensors c, double value)
{
    if (failed()) return (th_tensors){NULL, 0};
    if (a.size == 1) return single(th_addcmul(a.data[0], b.data[0], c.data[0], .value = TH_S(value)));
    return CALL_LIST("aten::_foreach_addcmul.Scalar", LIST(a), LIST(b), LIST(c), NUMBER(value));
}

/* ---------------------------------------------------------------- averages */

void th__each_average_(th_tensors average, th_tensors value, double beta)
{
    if (failed()) return;
    if (th__torch_at_least(2, 1)) {
        th__each_lerp_(average, value, 1 - beta);
    } else {
        th__each_mul_scalar_(average, beta);
        th__each_add_(average, value, 1 - beta);
    }
}
