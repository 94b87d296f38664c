/* base/memory.c: allocation that raises errors. The countdown lets tests make any single allocation fail. */
#include "base/memory.h"

#include "base/error.h"
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_long countdown; /* 0: off */

void th__fail_allocation(long n) { atomic_store(&countdown, n); }

static bool injected_failure(void)
{
    if (TH__LIKELY(atomic_load_explicit(&countdown, memory_order_relaxed) == 0)) return false;
    return atomic_fetch_sub(&countdown, 1) == 1;
}

static void *checked(void *block, size_t size)
{
    if (TH__UNLIKELY(block == NULL)) th__fail(TH_ERR_MEMORY, "allocate", "out of memory: %zu bytes", size);
    return block;
}

void *th__malloc(size_t size) { return checked(injected_failure() ? NULL : malloc(size > 0 ? size : 1), size); }

void *th__calloc(size_t count, size_t size)
{
    return checked(injected_failure() ? NULL : calloc(count > 0 ? count : 1, size > 0 ? size : 1), count * size);
}

void *th__realloc(void *block, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size) return checked(NULL, SIZE_MAX);
    size_t bytes = count * size;
    return checked(injected_failure() ? NULL : realloc(block, bytes > 0 ? bytes : 1), bytes);
}

char *th__strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = th__malloc(size);
    if (copy != NULL) memcpy(copy, text, size);
    return copy;
}

char *th__strfmt(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = th__malloc((size_t)(length < 0 ? 0 : length) + 1);
    if (text == NULL) return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}

int th__grow(void **array, size_t count, size_t *capacity, size_t item_size)
{
    if (count < *capacity) return 0;
    size_t wanted = *capacity == 0 ? 8 : *capacity * 2;
    void *bigger = th__realloc(*array, wanted, item_size);
    if (bigger == NULL) return -1;
    *array = bigger;
    *capacity = wanted;
    return 0;
}
