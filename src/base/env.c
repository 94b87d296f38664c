/* base/env.c: typed environment variables. */
#include "base/env.h"

#include "base/error.h"
#include "base/strings.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *th__env(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}

bool th__env_is_set(const char *name) { return getenv(name) != NULL; }

const char *th__env_or(const char *name, const char *fallback)
{
    const char *value = th__env(name);
    return value != NULL ? value : fallback;
}

static th_status read_int(const char *name, const char *text, int64_t min, int64_t max, int64_t *out)
{
    int64_t value;
    if (!th__parse_int(text, &value) || value < min || value > max) {
        if (max == INT64_MAX)
            return th__fail(TH_ERR_VALUE, "environment", "%s is '%s', expected an integer of at least %" PRId64, name, text, min);
        return th__fail(TH_ERR_VALUE, "environment", "%s is '%s', expected an integer from %" PRId64 " to %" PRId64, name, text,
                        min, max);
    }
    *out = value;
    return TH_OK;
}

th_status th__env_int(const char *name, int64_t fallback, int64_t min, int64_t max, int64_t *out)
{
    const char *text = th__env(name);
    *out = fallback;
    return text == NULL ? TH_OK : read_int(name, text, min, max, out);
}

th_status th__env_int_required(const char *name, int64_t min, int64_t max, int64_t *out)
{
    const char *text = th__env(name);
    if (text == NULL) return th__fail(TH_ERR_KEY, "environment", "%s is not set, expected an integer", name);
    return read_int(name, text, min, max, out);
}

th_status th__env_double(const char *name, double fallback, double *out)
{
    const char *text = th__env(name);
    *out = fallback;
    if (text != NULL && !th__parse_double(text, out))
        return th__fail(TH_ERR_VALUE, "environment", "%s is '%s', expected a number", name, text);
    return TH_OK;
}

th_status th__env_bool(const char *name, bool fallback, bool *out)
{
    static const char *const yes[] = {"1", "true", "yes", "on"}, *const no[] = {"0", "false", "no", "off"};
    const char *text = th__env(name);
    *out = fallback;
    if (text == NULL) return TH_OK;
    for (size_t i = 0; i < 4; i++) {
        if (th__equal_ignore_case(text, yes[i])) return *out = true, TH_OK;
        if (th__equal_ignore_case(text, no[i])) return *out = false, TH_OK;
    }
    return th__fail(TH_ERR_VALUE, "environment", "%s is '%s', expected 1 or 0 (or true, false, yes, no, on, off)", name, text);
}

th_status th__env_set(const char *name, const char *value)
{
    if (setenv(name, value, 1) != 0)
        return th__fail(TH_ERR_RUNTIME, "environment", "%s could not be set to '%s': %s", name, value, strerror(errno));
    return TH_OK;
}

th_status th__env_set_int(const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    return th__env_set(name, text);
}

void th__env_unset(const char *name) { unsetenv(name); }
