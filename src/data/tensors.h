/* data/tensors.h: the few tensor operations this room needs. */
#ifndef FABRIC_DATA_TENSORS_H
#define FABRIC_DATA_TENSORS_H

#include <cfabric/scope.h>

/* An uninitialised dense CPU tensor. [scoped] */
th_tensor *th__data_empty(th_ints sizes, th_dtype dtype);
/* The same with `n` put before `sizes`. [scoped] */
th_tensor *th__data_empty_rows(int64_t n, th_ints sizes, th_dtype dtype);
/* torch.stack(tensors); plain copies when all are dense CPU tensors of one shape. [scoped] */
th_tensor *th__data_stack(th_tensors tensors);
/* tensor[0]. [scoped] */
th_tensor *th__data_first(th_tensor *tensor);
/* The rows `indices` of a tensor, stacked. [scoped] */
th_tensor *th__data_rows(th_tensor *tensor, const int64_t *indices, size_t n);
/* torch.randperm(n, generator), torch.randint(high, (n,), generator) and torch.multinomial(weights, n, replacement, generator) as
 * lists. [owned] free(); NULL generator: the default one. */
int64_t *th__data_randperm(int64_t n, th_generator *generator);
int64_t *th__data_randint(int64_t high, int64_t n, th_generator *generator);
int64_t *th__data_multinomial(th_doubles weights, int64_t n, bool replacement, th_generator *generator);
/* int(torch.empty((), dtype=torch.int64).random_(generator).item()) */
int64_t th__data_random_seed(th_generator *generator);
/* Whether page-locked memory is of use here, and a page-locked copy. [scoped] */
bool th__data_can_pin(void);
th_tensor *th__data_pin(th_tensor *tensor);

#endif
