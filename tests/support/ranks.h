/* support/ranks.h: runs a test case on several ranks: the test program starts itself again, once per rank, with RANK, WORLD_SIZE,
 * MASTER_ADDR and a free MASTER_PORT set, collects what the ranks print, and after a hard limit kills all of them. */
#ifndef TEST_SUPPORT_RANKS_H
#define TEST_SUPPORT_RANKS_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MAX 8
#define RANKS_KILLED 1000 /* the code of a rank that was still there after the limit */

typedef struct ranks_case {
    const char *name;
    void (*body)(int rank, int world);
} ranks_case;

typedef struct ranks_result {
    int code[RANKS_MAX];        /* exit code, 128 + signal, or RANKS_KILLED */
    char text[RANKS_MAX][8192]; /* stdout and stderr */
    double seconds;
    bool ok;                    /* all codes are 0 */
} ranks_result;

/* In a rank: says what failed and ends the rank. */
#define RANK_CHECK(condition)                                                                           \
    do {                                                                                                \
        if (!(condition)) {                                                                             \
            fprintf(stderr, "%s:%d: rank %s: %s\n", __FILE__, __LINE__, getenv("RANK"), #condition);    \
            fflush(NULL);                                                                               \
            _exit(1);                                                                                   \
        }                                                                                               \
    } while (0)

static inline double ranks_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Bound, so that nobody else gets it, and closed when the ranks start. */
static inline int ranks_free_port(int *fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&address, n) != 0) return -1;
    getsockname(*fd, (struct sockaddr *)&address, &n);
    return ntohs(address.sin_port);
}

static inline pid_t ranks_start(const char *name, int rank, int world, int port, int *out)
{
    int ends[2];
    char number[4][16];
    if (pipe(ends) != 0) return -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setpgid(0, 0);
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        snprintf(number[0], 16, "%d", rank);
        snprintf(number[1], 16, "%d", world);
        snprintf(number[2], 16, "%d", port);
        setenv("RANK", number[0], 1);
        setenv("LOCAL_RANK", number[0], 1);
        setenv("WORLD_SIZE", number[1], 1);
        setenv("LOCAL_WORLD_SIZE", number[1], 1);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        setenv("MASTER_PORT", number[2], 1);
        setenv("RANKS_CASE", name, 1);
        execl("/proc/self/exe", "rank", (char *)NULL);
        _exit(127);
    }
    if (pid > 0) setpgid(pid, pid);
    close(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    *out = ends[0];
    return pid;
}

static inline void ranks_read(int fd, char *text, size_t size)
{
    char scrap[4096];
    for (;;) {
        size_t used = strlen(text), room = size - 1 - used;
        ssize_t n = room ? read(fd, text + used, room) : read(fd, scrap, sizeof scrap);
        if (n <= 0) return;
        if (room) text[used + (size_t)n] = '\0';
    }
}

typedef void (*ranks_hook)(pid_t *pids, int world, double seconds, void *user);

/* `hook` (may be NULL) runs every 20 ms, to injure ranks. A pid of 0 has ended. */
static inline void ranks_run_hooked(const char *name, int world, double limit_s, ranks_result *r, ranks_hook hook, void *user)
{
    pid_t pids[RANKS_MAX];
    int fds[RANKS_MAX], hold, port = ranks_free_port(&hold), running = 0;
    memset(r, 0, sizeof *r);
    double start = ranks_now();
    close(hold);
    for (int i = 0; i < world; i++) {
        pids[i] = ranks_start(name, i, world, port, &fds[i]);
        running += pids[i] > 0;
    }
    bool killed = false;
    while (running > 0) {
        nanosleep(&(struct timespec){0, 20000000}, NULL);
        if (hook) hook(pids, world, ranks_now() - start, user);
        if (!killed && ranks_now() - start > limit_s) {
            killed = true;
            for (int i = 0; i < world; i++)
                if (pids[i] > 0) kill(-pids[i], SIGKILL);
        }
        for (int i = 0; i < world; i++) {
            int status;
            ranks_read(fds[i], r->text[i], sizeof r->text[i]);
            if (pids[i] <= 0 || waitpid(pids[i], &status, WNOHANG) != pids[i]) continue;
            ranks_read(fds[i], r->text[i], sizeof r->text[i]);
            r->code[i] = killed ? RANKS_KILLED : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            pids[i] = 0;
            running--;
        }
    }
    r->ok = true;
    for (int i = 0; i < world; i++) {
        close(fds[i]);
        r->ok = r->ok && r->code[i] == 0;
    }
    r->seconds = ranks_now() - start;
}

static inline void ranks_run(const char *name, int world, double limit_s, ranks_result *r)
{
    ranks_run_hooked(name, world, limit_s, r, NULL, NULL);
}

static inline void ranks_show(const ranks_result *r, int world)
{
    for (int i = 0; i < world; i++)
        if (r->code[i] != 0 || r->text[i][0]) fprintf(stderr, "[rank %d: code %d] %s\n", i, r->code[i], r->text[i]);
}

/* In main: runs the case if this process is a rank; returns only in the test program itself. */
static inline void ranks_main(const ranks_case *cases, size_t n)
{
    const char *name = getenv("RANKS_CASE");
    if (!name) return;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(cases[i].name, name) != 0) continue;
        cases[i].body(atoi(getenv("RANK")), atoi(getenv("WORLD_SIZE")));
        exit(0);
    }
    fprintf(stderr, "no case '%s'\n", name);
    _exit(126);
}

#endif
