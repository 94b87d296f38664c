/* fabric_support.h: what the tests of the Fabric object share: a clean start for each case, warnings caught, a precision that watches. */
#ifndef FABRIC_SUPPORT_H
#define FABRIC_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include <cfabric/cfabric.h>

static char support_messages[4096];
static int support_message_count;

static inline void support_catch(const char *line, void *user)
{
    (void)user;
    support_message_count++;
    snprintf(support_messages + strlen(support_messages), sizeof support_messages - strlen(support_messages), "%s\n", line);
}

static inline int fabric_begin(void **state)
{
    static const char *const names[] = {"LT_CLI_USED", "LT_ACCELERATOR", "LT_STRATEGY", "LT_DEVICES",     "LT_NUM_NODES",
                                        "LT_PRECISION", "PL_GLOBAL_SEED", "PL_SEED_WORKERS", "RANK", "LOCAL_RANK", "WORLD_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    th_error_clear();
    support_messages[0] = '\0';
    support_message_count = 0;
    th__set_message_sink(support_catch, NULL);
    *state = NULL;
    th_scope_push();
    return 0;
}

static inline int fabric_end(void **state)
{
    (void)state;
    th__set_message_sink(NULL, NULL);
    th_error_clear();
    th_scope_pop(1);
    return 0;
}

#define FABRIC_CASE(f) cmocka_unit_test_setup_teardown(f, fabric_begin, fabric_end)

#define assert_ok() assert_string_equal(th_error_message(), "")
/* The last call raised this status, with `text` in its message; the error is cleared. */
#define assert_raised(status, text)                                                              \
    do {                                                                                         \
        if (th_error() != (status) || strstr(th_error_message(), (text)) == NULL)                \
            fail_msg("expected %s with '%s', got %s: %s", th_status_name(status), (text),        \
                     th_status_name(th_error()), th_error_message());                            \
        th_error_clear();                                                                        \
    } while (0)

/* ---- a precision that counts and needs fabric_backward */
struct watch {
    int entered, left, inputs, outputs, converted;
    th_dtype init_dtype;
};

static inline th_status watch_convert_module(fabric_precision *p, th_module *module)
{
    (void)module;
    ((struct watch *)fabric_precision_self(p))->converted++;
    return TH_OK;
}

static inline th_tensor *watch_input(fabric_precision *p, th_tensor *tensor)
{
    ((struct watch *)fabric_precision_self(p))->inputs++;
    return tensor;
}

static inline th_tensor *watch_output(fabric_precision *p, th_tensor *tensor)
{
    ((struct watch *)fabric_precision_self(p))->outputs++;
    return tensor;
}

static inline th_status watch_enter(fabric_precision *p, fabric_context *context)
{
    ((struct watch *)fabric_precision_self(p))->entered++;
    context->slot[0] = 41;
    return TH_OK;
}

static inline void watch_leave(fabric_precision *p, const fabric_context *context)
{
    if (context->slot[0] == 41) ((struct watch *)fabric_precision_self(p))->left++;
}

static inline th_dtype watch_init_dtype(fabric_precision *p)
{
    return ((struct watch *)fabric_precision_self(p))->init_dtype;
}

static const fabric_precision_ops watch_ops = {
    .size = sizeof watch_ops,
    .name = "watch",
    .requires_fabric_backward = true,
    .convert_module = watch_convert_module,
    .convert_input = watch_input,
    .convert_output = watch_output,
    .forward_enter = watch_enter,
    .forward_exit = watch_leave,
    .init_dtype = watch_init_dtype,
};

static inline fabric *fabric_watched(struct watch *watch)
{
    return fabric_new(.accelerator = "cpu", .devices = "1", .plugins = FABRIC_PLUGINS(fabric_plugin(fabric_precision_new(&watch_ops, watch))));
}

static inline fabric *fabric_plain(void)
{
    return fabric_new(.accelerator = "cpu", .devices = "1");
}

#endif
