/* launch/rank.c: starting, signalling and collecting one rank. */
#include "launch/internal.h"

#include "base/cpu.h"
#include "base/env.h"
#include "base/error.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---------------------------------------------------------------- environment */

/* The position of "NAME=..." among the first `count` entries; `count` when it is not there. */
static size_t find_name(char *const *env, size_t count, const char *entry)
{
    size_t length = strcspn(entry, "=") + 1;
    size_t i = 0;
    while (i < count && strncmp(env[i], entry, length) != 0) i++;
    return i;
}

static int put(th__strings *env, const char *entry)
{
    size_t at = find_name(env->items, env->count, entry);
    if (at == env->count) return th__strings_add(env, entry);
    char *copy = th__strdup(entry);
    if (copy == NULL) return -1;
    free(env->items[at]);
    env->items[at] = copy;
    return 0;
}

static int putf(th__strings *env, const char *format, ...) FABRIC_PRINTF(2, 3);
static int putf(th__strings *env, const char *format, ...)
{
    char *entry = NULL;
    va_list args;
    va_start(args, format);
    int length = vasprintf(&entry, format, args);
    va_end(args);
    int failed = length < 0 ? -1 : put(env, entry);
    if (length >= 0) free(entry);
    return failed;
}

static void drop(th__strings *env, const char *name)
{
    size_t at = find_name(env->items, env->count, name);
    if (at == env->count) return;
    free(env->items[at]);
    env->items[at] = env->items[--env->count];
}

static int put_places(th__strings *env, const fabric__job *job, int local_rank, int port)
{
    const char *address = job->main_address != NULL ? job->main_address : "127.0.0.1";
    return putf(env, "RANK=%d", job->node_rank * job->local_processes + local_rank) | putf(env, "LOCAL_RANK=%d", local_rank) |
           putf(env, "WORLD_SIZE=%d", job->local_processes * job->num_nodes) |
           putf(env, "LOCAL_WORLD_SIZE=%d", job->local_processes) | putf(env, "GROUP_RANK=%d", job->node_rank) |
           putf(env, "NODE_RANK=%d", job->node_rank) | putf(env, "MASTER_ADDR=%s", address) | putf(env, "MASTER_PORT=%d", port) |
           putf(env, FABRIC__ENV_LAUNCHER "=%s", job->launcher != NULL ? job->launcher : "run");
}

th_status fabric__rank_environment(th__strings *env, const fabric__job *job, int local_rank, int port, int restart, int error_fd)
{
    int failed = 0, threads = 1;
    for (char **entry = environ; *entry != NULL && failed == 0; entry++) failed = th__strings_add(env, *entry);
    drop(env, "TORCHELASTIC_USE_AGENT_STORE="); /* would say that somebody else serves the rendezvous */
    drop(env, FABRIC__ENV_ERROR_FILE "=");
    if (failed == 0) failed = put_places(env, job, local_rank, port);
    if (failed == 0 && error_fd >= 0) failed = putf(env, FABRIC__ENV_ERROR_FILE "=/proc/%ld/fd/%d", (long)getpid(), error_fd);
    if (failed == 0 && job->run_id != NULL)
        failed = putf(env, "TORCHELASTIC_RUN_ID=%s", job->run_id) | putf(env, "TORCHELASTIC_RESTART_COUNT=%d", restart) |
                 putf(env, "TORCHELASTIC_MAX_RESTARTS=%d", job->max_restarts);
    if (failed == 0 && !th__env_is_set("OMP_NUM_THREADS")) {
        TH__TRY(th__threads_per_rank(th__usable_cores(), job->local_processes, &threads));
        failed = putf(env, "OMP_NUM_THREADS=%d", threads);
    }
    for (size_t i = 0; failed == 0 && job->extra_env != NULL && job->extra_env[i] != NULL; i++)
        failed = put(env, job->extra_env[i]);
    return failed == 0 ? TH_OK : th__fail(TH_ERR_MEMORY, "launch", "out of memory");
}

/* ---------------------------------------------------------------- the child's side */

/* Only async-signal-safe functions: this process may be a fork of one with threads. */
static void become_rank(pid_t supervisor, int stdin_fd, const int outputs[2])
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor) _exit(127); /* it died before it could be watched */
    fabric__signals_reset_in_child();
    fabric__guard_close_in_child();
    signal(SIGTTOU, SIG_IGN); /* its group is not the terminal's foreground: writing must not stop it */
    if (stdin_fd >= 0) dup2(stdin_fd, 0);
    if (outputs[0] >= 0) dup2(outputs[0], 1);
    if (outputs[1] >= 0) dup2(outputs[1], 2);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

_Noreturn static void exec_program(const fabric__job *job, char **env, int status_fd)
{
    execve(job->program, job->argv, env);
    int error = errno;
    while (write(status_fd, &error, sizeof error) < 0 && errno == EINTR) continue;
    _exit(127);
}

_Noreturn static void run_body(const fabric__job *job, rank_process *rank, th__strings *env)
{
    for (size_t i = 0; i < env->count; i++) {
        char *equals = strchr(env->items[i], '=');
        if (equals == NULL) continue;
        *equals = '\0';
        setenv(env->items[i], equals + 1, 1);
    }
    th__set_message_rank(rank->global_rank);
    int code = job->body(job->user, rank->local_rank);
    fflush(NULL);
    _exit(code);
}

/* ---------------------------------------------------------------- the supervisor's side */

static th_status not_started(const fabric__job *job, int rank, int error)
{
    const char *what = job->program != NULL ? job->program : "the process";
    if (error == ENOEXEC)
        return th__fail(TH_ERR_RUNTIME, "launch",
                        "'%s' is not a program: neither a binary for this machine nor a script with a #! line", what);
    if (error == ENOENT && job->program != NULL && access(job->program, F_OK) == 0)
        return th__fail(TH_ERR_RUNTIME, "launch",
                        "'%s' cannot be executed: the interpreter its #! line (or its loader) names is missing", what);
    return th__fail(TH_ERR_RUNTIME, "launch", "rank %d could not be started: %s: %s", rank, what, strerror(error));
}

/* Rank 0 reads what we would read, unless that is a terminal, from which a background group may not read. */
static int open_stdin(const rank_process *rank)
{
    if (rank->local_rank == 0 && !isatty(0) && fcntl(0, F_GETFD) >= 0) return -1;
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void close_if_open(int fd)
{
    if (fd >= 0) close(fd);
}

static pid_t fork_rank(rank_process *rank, const fabric__job *job, th__strings *env, const int outputs[2], int *exec_error)
{
    int status[2] = {-1, -1}, stdin_fd = open_stdin(rank);
    pid_t supervisor = getpid();
    *exec_error = 0;
    if (pipe2(status, O_CLOEXEC) != 0) {
        *exec_error = errno;
        close_if_open(stdin_fd);
        return -1;
    }
    if (job->program == NULL) fflush(NULL); /* else the child writes it again */
    rank->pid = job->program != NULL ? fabric__bare_fork() : fabric__expected_fork();
    if (rank->pid == 0) {
        become_rank(supervisor, stdin_fd, outputs);
        if (job->program != NULL) exec_program(job, env->items, status[1]);
        close(status[0]);
        close(status[1]);
        run_body(job, rank, env);
    }
    int fork_error = errno;
    close(status[1]);
    close_if_open(stdin_fd);
    ssize_t got; /* the end of the pipe says that exec has happened, and the group exists */
    while ((got = read(status[0], exec_error, sizeof *exec_error)) < 0 && errno == EINTR) continue;
    if (rank->pid < 0) *exec_error = fork_error;
    close(status[0]);
    return rank->pid;
}

th_status fabric__rank_start(rank_process *rank, const fabric__job *job, int port, int restart)
{
    int outputs[2] = {-1, -1}, error = 0;
    th__strings env = {0};
    if (rank->error_fd < 0) rank->error_fd = memfd_create("cfabric-error", MFD_CLOEXEC);
    if (rank->error_fd >= 0 && ftruncate(rank->error_fd, 0) != 0) { /* what the last start said no longer counts */
    }
    rank->failed = false;
    rank->code = rank->signal = 0;
    th_status status = fabric__output_open(rank, job, outputs);
    if (status == TH_OK) status = fabric__rank_environment(&env, job, rank->local_rank, port, restart, rank->error_fd);
    if (status == TH_OK && TH__PUSH(env.items, env.count, env.capacity, NULL) != 0) status = th__pending();
    if (status == TH_OK) {
        env.count--; /* the NULL is for exec only */
        pid_t pid = fork_rank(rank, job, &env, outputs, &error);
        if (pid > 0) fabric__guard_add(pid);
        if (error != 0) {
            while (pid > 0 && !fabric__rank_reap(rank)) usleep(1000);
            rank->pid = 0;
            status = not_started(job, rank->global_rank, error);
        }
    }
    th__strings_free(&env);
    if (outputs[0] >= 0 && outputs[0] != rank->log_fd) close(outputs[0]);
    if (outputs[1] >= 0 && outputs[1] != rank->log_fd) close(outputs[1]);
    if (status != TH_OK) fabric__output_close(rank);
    return status;
}

bool fabric__rank_reap(rank_process *rank)
{
    siginfo_t info = {0};
    if (rank->pid <= 0 || waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
        return false;
    kill(-rank->pid, SIGKILL); /* what it has left in its group; the number cannot be anybody else's before it is collected */
    fabric__guard_remove(rank->pid);
    while (waitpid(rank->pid, NULL, 0) < 0 && errno == EINTR) continue;
    rank->signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    rank->code = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
    rank->failed = rank->code != 0;
    return true;
}

void fabric__rank_signal(const rank_process *rank, int signal)
{
    if (rank->pid > 0) kill(-rank->pid, signal);
}

/* The last line of `size` bytes that has something in it. */
static char *last_line(char *text)
{
    text = th__trim(text);
    char *line = strrchr(text, '\n');
    return th__trim(line != NULL ? line + 1 : text);
}

static void read_tail(int fd, char *text, size_t size)
{
    off_t end = lseek(fd, 0, SEEK_END), start = end > (off_t)size - 1 ? end - ((off_t)size - 1) : 0;
    ssize_t got = end > 0 ? pread(fd, text, size - 1, start) : 0;
    text[got > 0 ? got : 0] = '\0';
}

void fabric__rank_error(const rank_process *rank, char *text, size_t size)
{
    char tail[2048] = "";
    if (rank->error_fd >= 0) read_tail(rank->error_fd, tail, sizeof tail);
    const char *line = last_line(tail);
    if (*line == '\0' && rank->log_fd >= 0) { /* no program of ours: then the last thing it wrote */
        read_tail(rank->log_fd, tail, sizeof tail);
        line = last_line(tail);
    }
    snprintf(text, size, "%.*s", (int)size - 1, line);
}
