/* tests/support/command.h: runs a command from outside, as a shell user would, and looks for what it leaves behind.
 *
 * Every command runs in an empty folder of its own with a mark in its environment. Whatever process still carries the mark
 * afterwards, and whatever file lies in the folder, was left behind. */
#ifndef TEST_SUPPORT_COMMAND_H
#define TEST_SUPPORT_COMMAND_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct command {
    pid_t pid;
    char folder[64], mark[64];
    double started, seconds;
    int code; /* exit code, 128 + signal; -1: it had to be killed after the limit */
    char out[1 << 16], err[1 << 16];
} command;

static inline double command_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Starts `line` with sh (exec'ed, so c->pid is the command itself). stdin: /dev/null. */
static inline void command_start(command *c, const char *line)
{
    static int serial;
    memset(c, 0, sizeof *c);
    strcpy(c->folder, "/tmp/cfabric-mp-XXXXXX");
    if (mkdtemp(c->folder) == NULL) abort();
    snprintf(c->mark, sizeof c->mark, "CFABRIC_TEST_MARK=%ld-%d", (long)getpid(), ++serial);
    c->started = command_now();
    fflush(NULL);
    c->pid = fork();
    if (c->pid != 0) return;
    char text[8192];
    snprintf(text, sizeof text, "exec %s", line);
    if (chdir(c->folder) != 0) _exit(99);
    setpgid(0, 0);
    mkdir("log", 0777); /* stdout and stderr of the command; not counted as left behind */
    int null = open("/dev/null", O_RDONLY), out = open("log/out", O_WRONLY | O_CREAT | O_APPEND, 0666);
    int err = open("log/err", O_WRONLY | O_CREAT | O_APPEND, 0666);
    dup2(null, 0);
    dup2(out, 1);
    dup2(err, 2);
    for (int fd = 3; fd < 64; fd++) close(fd);
    setenv("TMPDIR", c->folder, 1);
    putenv(c->mark);
    execl("/bin/sh", "sh", "-c", text, (char *)NULL);
    _exit(98);
}

/* Processes that carry the mark and are not zombies. Kills them if asked. */
static inline int command_processes(const command *c, int signal)
{
    static char env[1 << 16];
    int count = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc != NULL && (entry = readdir(proc)) != NULL;) {
        char path[300];
        long pid = strtol(entry->d_name, NULL, 10);
        if (pid <= 0) continue;
        snprintf(path, sizeof path, "/proc/%ld/environ", pid);
        int fd = open(path, O_RDONLY);
        ssize_t size = fd >= 0 ? read(fd, env, sizeof env) : 0; /* a zombie's is empty */
        if (fd >= 0) close(fd);
        if (size <= 0 || memmem(env, (size_t)size, c->mark, strlen(c->mark) + 1) == NULL) continue;
        count++;
        if (signal != 0) kill((pid_t)pid, signal);
    }
    if (proc != NULL) closedir(proc);
    return count;
}

static inline void command_read(const command *c, const char *name, char *text, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/log/%s", c->folder, name);
    FILE *file = fopen(path, "r");
    size_t got = file != NULL ? fread(text, 1, size - 1, file) : 0;
    text[got] = '\0';
    if (file != NULL) fclose(file);
}

/* Waits until the output contains `text`; false after `limit` seconds. */
static inline bool command_says(command *c, const char *text, double limit)
{
    for (double end = command_now() + limit; command_now() < end; usleep(5000)) {
        command_read(c, "out", c->out, sizeof c->out);
        command_read(c, "err", c->err, sizeof c->err);
        if (strstr(c->out, text) != NULL || strstr(c->err, text) != NULL) return true;
    }
    return false;
}

/* Waits for the end (at most `limit` seconds, then everything is killed) and collects code, time and output. */
static inline void command_wait(command *c, double limit)
{
    int status = 0;
    pid_t got;
    while ((got = waitpid(c->pid, &status, WNOHANG)) == 0 && command_now() - c->started < limit) usleep(2000);
    c->seconds = command_now() - c->started;
    c->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (got == 0) {
        c->code = -1;
        command_processes(c, SIGKILL);
        waitpid(c->pid, &status, 0);
    }
    command_read(c, "out", c->out, sizeof c->out);
    command_read(c, "err", c->err, sizeof c->err);
}

/* Files and folders in the command's folder, without the log. */
static inline int command_files(const command *c)
{
    int count = 0;
    DIR *dir = opendir(c->folder);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && strcmp(entry->d_name, "log") != 0) count++;
    if (dir != NULL) closedir(dir);
    return count;
}

/* Removes the folder. Returns what was left behind: processes (given a moment to be collected by init) plus files. */
static inline int command_end(command *c)
{
    int processes = 0, files = command_files(c);
    for (int i = 0; i < 100 && (processes = command_processes(c, 0)) > 0; i++) usleep(10000);
    if (processes > 0) command_processes(c, SIGKILL);
    char line[128];
    snprintf(line, sizeof line, "rm -rf '%s'", c->folder);
    if (processes + files > 0) fprintf(stderr, "left behind: %d processes, %d files\n", processes, files);
    return system(line) != 0 ? -1 : processes + files;
}

static inline const char *command_last_line(char *text)
{
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == '\n') text[--length] = '\0';
    char *line = strrchr(text, '\n');
    return line != NULL ? line + 1 : text;
}

static inline int command_count(const char *text, const char *word)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word)) count++;
    return count;
}

#endif
