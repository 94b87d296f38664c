/* base/memory.h: allocation that raises TH_ERR_MEMORY instead of returning silently, and a failure countdown for tests. */
#ifndef FABRIC_BASE_MEMORY_H
#define FABRIC_BASE_MEMORY_H

#include <stddef.h>

void *th__malloc(size_t size);
void *th__calloc(size_t count, size_t size);
/* On failure the old block stays valid. */
void *th__realloc(void *block, size_t count, size_t size);
char *th__strdup(const char *text);
/* printf into new memory; free() it. */
char *th__strfmt(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The n-th allocation from now (1 = the next) fails once; 0 switches it off. Tests only. */
void th__fail_allocation(long n);

/* A growing array: `TH__PUSH(array, count, capacity, item)` evaluates to 0, or -1 with TH_ERR_MEMORY raised. */
int th__grow(void **array, size_t count, size_t *capacity, size_t item_size);
#define TH__PUSH(array, count, capacity, item) \
    (th__grow((void **)&(array), (count), &(capacity), sizeof *(array)) != 0 ? -1 : ((array)[(count)++] = (item), 0))

#endif
