/* What the tests of precisions share: a clean start, a model that notes the dtypes it sees, and a forward as strategies do it. */
#ifndef TEST_LOOKING_MODEL_H
#define TEST_LOOKING_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/object.h"
#include "bridge/bridge.h"
#include "precision/internal.h"
#include <cfabric/nn_modules.h>
#include <cfabric/nn_utils.h>
#include <cfabric/ops.h>
#include <cfabric/optimizers.h>
#include <cfabric/plugin/strategy.h>
#include <math.h>
#include <string.h>

static inline int clean(void **state)
{
    (void)state;
    th_error_clear();
    return 0;
}

static inline int leak_check(void **state)
{
    clean(state);
    bool intact = th_get_default_dtype() == TH_FLOAT32;
    return intact && th__objects_live(NULL) == 0 && th_scope_live() == 0 ? 0 : -1;
}

static inline void expect_error(th_status status, const char *word)
{
    if (th_error() != status) fail_msg("expected status %d, got %d: %s", (int)status, (int)th_error(), th_error_message());
    if (strstr(th_error_message(), word) == NULL) fail_msg("'%s' is not in: %s", word, th_error_message());
    th_error_clear();
}

/* ---- a model that looks at what it is given */

typedef struct seen {
    th_dtype input, fresh, product;
} seen;
static seen last_seen;

static inline th_tensor *looking_forward(th_module *self, th_tensor *input)
{
    last_seen.input = th_dtype_of(input);
    last_seen.fresh = th_dtype_of(th_zeros(TH_INTS(2)));
    th_tensor *out = th_linear(input, th_module_parameter(self, "weight"));
    last_seen.product = th_dtype_of(out);
    return out;
}

static inline th_module *model_new(void)
{
    th_module *model = th_module_new("Looking", .forward = looking_forward);
    th_register_parameter(model, "weight", th_mul_scalar(th_ones(TH_INTS(2, 32)), TH_S(0.01)));
    th_register_buffer(model, "steps", th_zeros(TH_INTS(1), .dtype = TH_INT64), true);
    return model;
}

/* What a strategy does around a forward. [scoped] */
static inline th_tensor *forward(fabric_precision *p, th_module *model, th_tensor *input)
{
    fabric_context context;
    th_tensor *in = fabric_precision_convert_input(p, input), *out = NULL;
    if (fabric_precision_forward_enter(p, &context) == TH_OK) out = th_forward(model, in);
    fabric_precision_forward_exit(p, &context);
    return fabric_precision_convert_output(p, out);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, clean, leak_check)

#endif
