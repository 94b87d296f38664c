/* fuzz.h: what every fuzz target starts with. */
#ifndef CFABRIC_FUZZ_H
#define CFABRIC_FUZZ_H

#include <cfabric/error.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_begin(void)
{
    th_set_error_policy(TH_ERROR_RETURN, NULL, NULL);
    th_error_clear();
}

#endif
