/* base/error.h: raising errors inside the library. The public side is <cfabric/error.h>. */
#ifndef FABRIC_BASE_ERROR_H
#define FABRIC_BASE_ERROR_H

#include <cfabric/error.h>
#include <stdarg.h>

#if defined(__GNUC__)
#define TH__LIKELY(x) __builtin_expect(!!(x), 1)
#define TH__UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define TH__LIKELY(x) (x)
#define TH__UNLIKELY(x) (x)
#endif

/* This thread's pending status; read through th__pending(). */
#ifdef __cplusplus
extern __thread th_status th__error_status; /* not thread_local: no C++ initialisation wrapper on the hot path */
#else
extern _Thread_local th_status th__error_status;
#endif

static inline th_status th__pending(void) { return th__error_status; }

/* Raises an error: stores it unless one is pending, applies the policy. Returns the pending status (never TH_OK). */
th_status th__fail(th_status status, const char *function, const char *format, ...) FABRIC_PRINTF(3, 4);
th_status th__vfail(th_status status, const char *function, const char *format, va_list args);

/* In the child of a fork that came too late (libtorch has run): TH_ERR_FORKED is pending from now on and cannot be cleared. Prints
 * nothing, since most such children go on to exec. */
void th__error_set_forked(void);

/* Puts "context: " before the pending message. No effect without a pending error. */
void th__error_context(const char *format, ...) FABRIC_PRINTF(1, 2);

/* Clean-up that must run with an error pending: suspend takes it away, resume puts it back (over a newer one) without reporting it
 * again. Without a pending error both do nothing. */
typedef struct th__saved_error {
    th_status status;
    char message[1024];
    char function[96];
} th__saved_error;
void th__error_suspend(th__saved_error *saved);
void th__error_resume(const th__saved_error *saved);

/* This thread's errors are stored but not reported: for threads whose errors are raised again elsewhere. */
void th__error_quiet(bool quiet);

/* Raises with this function's name. */
#define TH__FAIL(status, ...) th__fail((status), __func__, __VA_ARGS__)
/* Leaves the function with the pending status / with NULL. Put at the top of every entry. */
#define TH__CHECK_PENDING() do { if (TH__UNLIKELY(th__pending() != TH_OK)) return th__pending(); } while (0)
#define TH__CHECK_PENDING_NULL() do { if (TH__UNLIKELY(th__pending() != TH_OK)) return NULL; } while (0)
/* Evaluates a status expression and leaves the function with it unless it is TH_OK. */
#define TH__TRY(expr) do { th_status th__s = (expr); if (TH__UNLIKELY(th__s != TH_OK)) return th__s; } while (0)
#define TH__TRY_NULL(expr) do { if (TH__UNLIKELY((expr) != TH_OK)) return NULL; } while (0)

/* Warnings and information: one line on stderr, "[rank: k] ..." when a rank is known. Only on rank 0 with the _rank_zero forms. */
void th__warn(const char *format, ...) FABRIC_PRINTF(1, 2);
void th__warn_rank_zero(const char *format, ...) FABRIC_PRINTF(1, 2);
void th__info(const char *format, ...) FABRIC_PRINTF(1, 2);
void th__info_rank_zero(const char *format, ...) FABRIC_PRINTF(1, 2);
/* The rank shown in messages; -1 until known (then RANK, LOCAL_RANK, SLURM_PROCID, JSM_NAMESPACE_RANK, in this order). */
void th__set_message_rank(int rank);
int th__message_rank(void);
/* Tests: diverts warnings and information to a callback; NULL restores stderr. */
void th__set_message_sink(void (*sink)(const char *line, void *user), void *user);

#endif
