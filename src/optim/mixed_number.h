/* optim/mixed_number.h: Python's arithmetic on numbers that are floats or 0-dimensional tensors.
 *
 * In PyTorch's LBFGS some scalars are Python floats (double) and some are 0-dimensional tensors of the parameters' dtype. An
 * operation with a tensor in it happens in the tensor's precision and gives a tensor. Following that rule is what makes the
 * iterates equal to the last bit. */
#ifndef FABRIC_OPTIM_MIXED_NUMBER_H
#define FABRIC_OPTIM_MIXED_NUMBER_H

#include <math.h>
#include <stdbool.h>

typedef struct th__number {
    double v;
    bool tensor; /* a 0-dimensional tensor... */
    bool single; /* ...whose precision is float32 */
} th__number;

static inline th__number th__py(double v)
{
    th__number n = {v, false, false};
    return n;
}
static inline th__number th__tensor_number(double v, bool single)
{
    th__number n = {v, true, single};
    return n;
}

/* The kind of a result, and an operand brought to it. */
static inline th__number th__kind(th__number a, th__number b)
{
    th__number n = {0, a.tensor || b.tensor, (a.tensor && a.single) || (b.tensor && b.single)};
    return n;
}
static inline double th__as(th__number a, th__number kind) { return kind.single ? (double)(float)a.v : a.v; }
static inline th__number th__result(double v, th__number kind)
{
    kind.v = kind.single ? (double)(float)v : v;
    return kind;
}

/* A float operation done in double and rounded once is the float operation: 53 bits are more than twice 24 plus 2. */
static inline th__number th__plus(th__number a, th__number b)
{
    th__number k = th__kind(a, b);
    return th__result(th__as(a, k) + th__as(b, k), k);
}
static inline th__number th__minus(th__number a, th__number b)
{
    th__number k = th__kind(a, b);
    return th__result(th__as(a, k) - th__as(b, k), k);
}
static inline th__number th__times(th__number a, th__number b)
{
    th__number k = th__kind(a, b);
    return th__result(th__as(a, k) * th__as(b, k), k);
}
static inline th__number th__over(th__number a, th__number b)
{
    th__number k = th__kind(a, b);
    return th__result(th__as(a, k) / th__as(b, k), k);
}
static inline th__number th__negative(th__number a)
{
    a.v = -a.v;
    return a;
}
static inline th__number th__absolute(th__number a)
{
    a.v = fabs(a.v);
    return a;
}
static inline th__number th__square_root(th__number a) { return th__result(sqrt(a.v), a); }

static inline bool th__less(th__number a, th__number b)
{
    th__number k = th__kind(a, b);
    return th__as(a, k) < th__as(b, k);
}
static inline bool th__less_equal(th__number a, th__number b)
{
    th__number k = th__kind(a, b);
    return th__as(a, k) <= th__as(b, k);
}
/* Python's min and max: the first unless a later one is smaller / greater. */
static inline th__number th__min(th__number a, th__number b) { return th__less(b, a) ? b : a; }
static inline th__number th__max(th__number a, th__number b) { return th__less(a, b) ? b : a; }

#endif
