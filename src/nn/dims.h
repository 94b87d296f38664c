/* nn/dims.h: options that are one number or one per spatial dimension (kernel_size=3 or (3, 5)). */
#ifndef FABRIC_NN_DIMS_H
#define FABRIC_NN_DIMS_H

#include "nn/module_impl.h"

typedef struct th__dims {
    int64_t v[3];
    bool single; /* given as one number: printed so where PyTorch keeps what it was given */
} th__dims;

/* Reads `given` for n dimensions; not given means `fallback` in each. A wrong count is a ValueError naming `what`. */
static inline th__dims th__dims_read(th_ints given, size_t n, int64_t fallback, const char *function, const char *what)
{
    th__dims dims = {{fallback, fallback, fallback}, given.size <= 1};
    if (given.data == NULL) return dims;
    if (given.size != 1 && given.size != n) {
        th__fail(TH_ERR_VALUE, function, "%s has %zu numbers, expected 1 or %zu", what, given.size, n);
        return dims;
    }
    for (size_t i = 0; i < n; i++) dims.v[i] = given.data[given.size == 1 ? 0 : i];
    return dims;
}

static inline bool th__dims_are(const th__dims *dims, size_t n, int64_t value)
{
    for (size_t i = 0; i < n; i++)
        if (dims->v[i] != value) return false;
    return true;
}

static inline th_ints th__dims_list(const th__dims *dims, size_t n) { return (th_ints){dims->v, n}; }

/* "3" or "(3, 5)": what PyTorch shows when it keeps the argument as it was given. */
static inline const char *th__dims_text(const th__dims *dims, size_t n, char buffer[256])
{
    if (!dims->single) return th__repr_tuple(dims->v, n, buffer);
    snprintf(buffer, 256, "%lld", (long long)dims->v[0]);
    return buffer;
}

#endif
