/* base/env.h: typed environment variables. A value that cannot be read is an error that names variable and value. */
#ifndef FABRIC_BASE_ENV_H
#define FABRIC_BASE_ENV_H

#include <cfabric/base.h>

/* The value, NULL when unset or empty. [borrowed] until the next change of the environment. */
const char *th__env(const char *name);
/* True when present, even when empty. */
bool th__env_is_set(const char *name);
/* The value, `fallback` when unset or empty. */
const char *th__env_or(const char *name, const char *fallback);

/* Unset or empty: `fallback`. Not an integer in [min, max]: TH_ERR_VALUE. */
th_status th__env_int(const char *name, int64_t fallback, int64_t min, int64_t max, int64_t *out);
/* As above, but unset or empty is TH_ERR_KEY. */
th_status th__env_int_required(const char *name, int64_t min, int64_t max, int64_t *out);
th_status th__env_double(const char *name, double fallback, double *out);
/* 1/0, true/false, yes/no, on/off in any case. */
th_status th__env_bool(const char *name, bool fallback, bool *out);

th_status th__env_set(const char *name, const char *value);
th_status th__env_set_int(const char *name, int64_t value);
void th__env_unset(const char *name);

#endif
