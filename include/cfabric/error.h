/* cfabric/error.h: sticky, per-thread errors.
 *
 * The first error of a thread wins and stays until it is cleared. While it is pending, expression functions return NULL (or
 * NaN) at once and statement functions return the pending status, so nested expressions need no checks and loops end by
 * themselves. The library never exits or aborts by itself. */
#ifndef CFABRIC_ERROR_H
#define CFABRIC_ERROR_H

#include <cfabric/base.h>

TH_BEGIN_DECLS

/** The status of this thread's pending error, TH_OK if there is none. */
FABRIC_API th_status th_error(void);

/** One line that says what went wrong, "" if nothing did. Never NULL. [borrowed] until the next call into the library. */
FABRIC_API const char *th_error_message(void);

/** The function or operator that failed, "" if nothing did. [borrowed] */
FABRIC_API const char *th_error_function(void);

/** Forgets this thread's pending error and returns what it was. */
FABRIC_API th_status th_error_clear(void);

/** Raises an error from a user's callback: sets the pending error unless one is pending already. Returns the pending status.
 * `status` must not be TH_OK. */
FABRIC_API th_status th_error_set(th_status status, const char *format, ...) FABRIC_PRINTF(2, 3);

/** What happens when an error is raised. The default is TH_ERROR_PRINT; the environment variable CFABRIC_ON_ERROR
 * (return, print, abort) chooses another for the whole process. */
typedef enum th_error_policy {
    TH_ERROR_RETURN = 0, /**< only store it */
    TH_ERROR_PRINT = 1,  /**< store it and print it once to stderr, with the rank */
    TH_ERROR_ABORT = 2   /**< print it and abort(), for debuggers */
} th_error_policy;

/** Called once per raised error, on the thread that raised it. Must not call back into the library except for th_error*(). */
typedef void (*th_error_handler)(th_status status, const char *function, const char *message, void *user);

/** Sets the policy for the process. A non-NULL handler replaces the printing. Any thread; not atomic with running errors. */
FABRIC_API void th_set_error_policy(th_error_policy policy, th_error_handler handler, void *user);

TH_END_DECLS
#endif
