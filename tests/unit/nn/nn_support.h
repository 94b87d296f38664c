/* What the tests of the nn room share. */
#ifndef NN_SUPPORT_H
#define NN_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/memory.h"
#include "base/object.h"
#include "tensor/internal.h"
#include <cfabric/autograd.h>
#include <cfabric/nn_modules.h>
#include <cfabric/ops.h>
#include <stdlib.h>
#include <string.h>

extern const th__class th__module_class;

static inline size_t live_modules(void) { return th__objects_live(&th__module_class); }

static inline int no_error_before(void **state) { return (void)state, (int)th_error_clear(); }

/* Every test begins and ends without a pending error and leaves no scoped tensor behind. */
static inline int clean_after(void **state)
{
    (void)state;
    if (th_error() != TH_OK) print_error("pending error: %s\n", th_error_message());
    return th_error() != TH_OK || th_scope_live() != 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, no_error_before, clean_after)

/* The expression holds and left this error behind, with `part` in its message; clears it. */
#define expect_error(expression, status, part)                                                                                   \
    do {                                                                                                                         \
        assert_true(expression);                                                                                                 \
        assert_int_equal(th_error(), (status));                                                                                  \
        if (strstr(th_error_message(), (part)) == NULL) fail_msg("message: %s", th_error_message());                             \
        th_error_clear();                                                                                                        \
    } while (0)

#endif
