/* launch/guard.c: what happens when the supervisor itself is killed with -9.
 *
 * The kernel ends the ranks then (PR_SET_PDEATHSIG), but not what the ranks have started. The guard is a process that waits on a
 * pipe from the supervisor; when the pipe ends it kills the process groups it was told of. It also makes forks late after tensor
 * work an error in the child, since such a child would hang in its first parallel operator. */
#include "launch/internal.h"

#include "base/error.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_GROUPS = 4096 };

static int guard_pipe = -1;
static pid_t guard_pid;

/* Runs in a bare fork of a process that may have threads: async-signal-safe functions only. */
_Noreturn static void guard_main(int fd)
{
    static int32_t groups[MAX_GROUPS];
    int count = 0;
    int32_t message;
    setpgid(0, 0);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3 && null >= 0; i++) dup2(null, i); /* a pipeline behind the job must not wait for us */
    if (fd != 3) fd = dup2(fd, 3);
    if (syscall(SYS_close_range, 4u, ~0u, 0u) != 0)
        for (int i = 4; i < 4096; i++) close(i);
    for (;;) {
        ssize_t got = read(fd, &message, sizeof message);
        if (got < 0 && errno == EINTR) continue;
        if (got != sizeof message) break;
        if (message > 0 && count < MAX_GROUPS) groups[count++] = message;
        for (int i = 0; i < count && message < 0; i++)
            if (groups[i] == -message) {
                groups[i] = groups[--count];
                break;
            }
    }
    for (int i = 0; i < count; i++) kill(-groups[i], SIGKILL);
    _exit(0);
}

th_status fabric__guard_start(void)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return th__fail(TH_ERR_RUNTIME, "launch", "no pipe could be made: %s", strerror(errno));
    guard_pid = fabric__bare_fork();
    if (guard_pid == 0) {
        close(ends[1]);
        guard_main(ends[0]);
    }
    close(ends[0]);
    guard_pipe = ends[1];
    if (guard_pid > 0) return TH_OK;
    close(guard_pipe);
    guard_pipe = -1;
    return th__fail(TH_ERR_RUNTIME, "launch", "no process could be started: %s", strerror(errno));
}

static void tell(int32_t message)
{
    if (guard_pipe >= 0)
        while (write(guard_pipe, &message, sizeof message) < 0 && errno == EINTR) continue;
}

void fabric__guard_add(pid_t group) { tell((int32_t)group); }
void fabric__guard_remove(pid_t group) { tell(-(int32_t)group); }

void fabric__guard_close_in_child(void)
{
    if (guard_pipe >= 0) close(guard_pipe);
    guard_pipe = -1;
}

void fabric__guard_stop(void)
{
    fabric__guard_close_in_child();
    if (guard_pid > 0)
        while (waitpid(guard_pid, NULL, 0) < 0 && errno == EINTR) continue;
    guard_pid = 0;
}

/* ---------------------------------------------------------------- forks */

pid_t fabric__bare_fork(void)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    return _Fork();
#else
    return fork();
#endif
}

static bool (*tensors_ran)(void);
static bool ran_before_fork;
static _Thread_local bool fork_is_expected;

static void before_fork(void) { ran_before_fork = !fork_is_expected && tensors_ran != NULL && tensors_ran(); }

/* Quietly: most children go on to exec and never call the library. */
static void after_fork_in_child(void)
{
    if (ran_before_fork) th__error_set_forked();
}

static void install(void) { pthread_atfork(before_fork, NULL, after_fork_in_child); }

void fabric__fork_guard_install(bool (*tensors_have_run)(void))
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tensors_ran = tensors_have_run;
    pthread_once(&once, install);
}

pid_t fabric__expected_fork(void)
{
    fork_is_expected = true;
    pid_t pid = fork();
    fork_is_expected = false;
    return pid;
}
