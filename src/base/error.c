/* base/error.c: the pending error of each thread, the error policy, warnings. Owns every line the library prints to stderr. */
#include "base/error.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TH__MESSAGE_MAX = 1024, TH__FUNCTION_MAX = 96 };

_Thread_local th_status th__error_status = TH_OK;
static _Thread_local char message_text[TH__MESSAGE_MAX];
static _Thread_local char function_text[TH__FUNCTION_MAX];

static _Thread_local bool quiet_thread;

static th_error_policy policy_value = TH_ERROR_PRINT;
static bool policy_chosen = false; /* else CFABRIC_ON_ERROR decides */
static th_error_handler policy_handler;
static void *policy_user;
static int message_rank = -1;
static void (*message_sink)(const char *line, void *user);
static void *message_sink_user;

const char *th_status_name(th_status status)
{
    switch (status) {
    case TH_OK: return "OK";
    case TH_ERR_VALUE: return "ValueError";
    case TH_ERR_TYPE: return "TypeError";
    case TH_ERR_RUNTIME: return "RuntimeError";
    case TH_ERR_KEY: return "KeyError";
    case TH_ERR_NOT_FOUND: return "FileNotFoundError";
    case TH_ERR_IO: return "OSError";
    case TH_ERR_NOT_IMPLEMENTED: return "NotImplementedError";
    case TH_ERR_UNAVAILABLE: return "UnavailableError";
    case TH_ERR_TIMEOUT: return "TimeoutError";
    case TH_ERR_MEMORY: return "MemoryError";
    case TH_ERR_ENGINE: return "EngineError";
    case TH_ERR_DATA: return "DataError";
    case TH_ERR_DISTRIBUTED: return "DistributedError";
    case TH_ERR_CALLBACK: return "CallbackError";
    case TH_ERR_FORKED: return "ForkedError";
    case TH_ERR_INTERNAL: return "InternalError";
    }
    return "UnknownError";
}

const char *fabric_version(void) { return CFABRIC_VERSION; }

th_status th_error(void) { return th__error_status; }
const char *th_error_message(void) { return th__error_status == TH_OK ? "" : message_text; }
const char *th_error_function(void) { return th__error_status == TH_OK ? "" : function_text; }

/* A rank leaves its last error where its supervisor reads it, to be repeated as the last line of the job. */
static void tell_supervisor(const char *text)
{
    const char *path = getenv("CFABRIC_ERROR_FILE");
    int fd = path != NULL ? open(path, O_WRONLY | O_TRUNC | O_CLOEXEC) : -1;
    if (fd < 0) return;
    if (write(fd, text, strlen(text)) < 0) { /* the supervisor has gone: nobody wants to know */
    }
    close(fd);
}

static void report_pending(void)
{
    char report[TH__MESSAGE_MAX + 160];
    snprintf(report, sizeof report, "%s: %s: %s", th_status_name(th__error_status), function_text, message_text);
    tell_supervisor(report);
}

th_status th_error_clear(void)
{
    th_status old = th__error_status;
    if (old == TH_ERR_FORKED) return old; /* nothing would work: see th__error_set_forked */
    if (old != TH_OK) tell_supervisor("");
    th__error_status = TH_OK;
    message_text[0] = function_text[0] = '\0';
    return old;
}

void th_set_error_policy(th_error_policy policy, th_error_handler handler, void *user)
{
    policy_value = policy;
    policy_handler = handler;
    policy_user = user;
    policy_chosen = true;
}

static th_error_policy current_policy(void)
{
    if (policy_chosen) return policy_value;
    const char *text = getenv("CFABRIC_ON_ERROR");
    if (text != NULL && strcmp(text, "abort") == 0) return TH_ERROR_ABORT;
    if (text != NULL && strcmp(text, "return") == 0) return TH_ERROR_RETURN;
    return TH_ERROR_PRINT;
}

/* One write per line, so that lines of several ranks do not mix. */
static void print_line(const char *prefix, const char *text)
{
    char line[TH__MESSAGE_MAX + 256];
    int rank = th__message_rank();
    if (rank >= 0) snprintf(line, sizeof line, "[rank: %d] %s%s\n", rank, prefix, text);
    else snprintf(line, sizeof line, "%s%s\n", prefix, text);
    fputs(line, stderr);
}

/* A message is one line: what a C++ exception or a file put in as line ends becomes a space. */
static void make_one_line(char *text)
{
    size_t length = strlen(text);
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == ' ')) text[--length] = '\0';
    for (char *p = text; *p != '\0'; p++)
        if (*p == '\n' || *p == '\r' || *p == '\t') *p = ' ';
}

void th__error_quiet(bool quiet) { quiet_thread = quiet; }

th_status th__vfail(th_status status, const char *function, const char *format, va_list args)
{
    if (th__error_status != TH_OK) return th__error_status; /* the first error wins */
    if (status == TH_OK) status = TH_ERR_INTERNAL;
    vsnprintf(message_text, sizeof message_text, format, args);
    make_one_line(message_text);
    snprintf(function_text, sizeof function_text, "%s", function != NULL ? function : "");
    size_t length = strlen(function_text);
    if (length > 5 && strcmp(function_text + length - 5, "_call") == 0) function_text[length - 5] = '\0';
    th__error_status = status;

    if (quiet_thread) return status;
    report_pending();
    th_error_policy policy = current_policy();
    if (policy_handler != NULL) {
        policy_handler(status, function_text, message_text, policy_user);
    } else if (policy != TH_ERROR_RETURN) {
        char prefix[160];
        snprintf(prefix, sizeof prefix, "%s: %s: ", th_status_name(status), function_text);
        print_line(prefix, message_text);
    }
    if (policy == TH_ERROR_ABORT) abort();
    return status;
}

th_status th__fail(th_status status, const char *function, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    status = th__vfail(status, function, format, args);
    va_end(args);
    return status;
}

th_status th_error_set(th_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    status = th__vfail(status == TH_OK ? TH_ERR_CALLBACK : status, "callback", format, args);
    va_end(args);
    return status;
}

void th__error_set_forked(void)
{
    if (th__error_status != TH_OK) return;
    snprintf(message_text, sizeof message_text,
             "this process was forked after libtorch had run, where its threads do not exist; start processes with exec, or fork first");
    snprintf(function_text, sizeof function_text, "fork");
    th__error_status = TH_ERR_FORKED;
}

void th__error_context(const char *format, ...)
{
    if (th__error_status == TH_OK) return;
    char joined[TH__MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    int used = vsnprintf(joined, sizeof joined, format, args);
    va_end(args);
    if (used < 0 || (size_t)used >= sizeof joined - 3) return;
    snprintf(joined + used, sizeof joined - (size_t)used, ": %.*s", (int)(sizeof joined - (size_t)used - 3), message_text);
    make_one_line(joined);
    memcpy(message_text, joined, sizeof message_text);
}

/* ---------------------------------------------------------------- warnings and information */

void th__set_message_rank(int rank) { message_rank = rank; }

int th__message_rank(void)
{
    static const char *const names[] = {"RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK"};
    if (message_rank >= 0) return message_rank;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        char *end;
        if (text == NULL || *text == '\0') continue;
        long value = strtol(text, &end, 10);
        if (*end == '\0' && value >= 0 && value < 1 << 24) return (int)value;
    }
    return -1;
}

void th__set_message_sink(void (*sink)(const char *line, void *user), void *user)
{
    message_sink = sink;
    message_sink_user = user;
}

static void say(const char *prefix, const char *format, va_list args)
{
    char text[TH__MESSAGE_MAX];
    vsnprintf(text, sizeof text, format, args);
    make_one_line(text);
    if (message_sink != NULL) message_sink(text, message_sink_user);
    else print_line(prefix, text);
}

void th__warn(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("warning: ", format, args);
    va_end(args);
}

void th__warn_rank_zero(const char *format, ...)
{
    if (th__message_rank() > 0) return;
    va_list args;
    va_start(args, format);
    say("warning: ", format, args);
    va_end(args);
}

void th__info(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("", format, args);
    va_end(args);
}

void th__info_rank_zero(const char *format, ...)
{
    if (th__message_rank() > 0) return;
    va_list args;
    va_start(args, format);
    say("", format, args);
    va_end(args);
}

void th__error_suspend(th__saved_error *saved)
{
    saved->status = th__error_status;
    snprintf(saved->message, sizeof saved->message, "%s", message_text);
    snprintf(saved->function, sizeof saved->function, "%s", function_text);
    th_error_clear();
}

void th__error_resume(const th__saved_error *saved)
{
    if (saved->status == TH_OK) return;
    snprintf(message_text, sizeof message_text, "%s", saved->message);
    snprintf(function_text, sizeof function_text, "%s", saved->function);
    th__error_status = saved->status;
    report_pending();
}
