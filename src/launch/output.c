/* launch/output.c: --log-dir and --tee. Without them the ranks write to the supervisor's own stdout and stderr. */
#include "launch/internal.h"

#include "base/error.h"
#include "base/fs.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1 << 16 };

th_status fabric__output_open(rank_process *rank, const fabric__job *job, int child_fds[2])
{
    if (job->log_dir == NULL) return TH_OK;
    if (rank->log_fd < 0) {
        char *path = th__strfmt("%s/rank_%d.log", job->log_dir, rank->global_rank);
        if (path == NULL || th__mkdirs(job->log_dir) != TH_OK) return free(path), th__pending();
        rank->log_fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
        if (rank->log_fd < 0) th__fail(TH_ERR_IO, "launch", "log file '%s' could not be opened: %s", path, strerror(errno));
        free(path);
        if (rank->log_fd < 0) return th__pending();
    }
    if (!job->tee) {
        child_fds[0] = child_fds[1] = rank->log_fd;
        return TH_OK;
    }
    for (int i = 0; i < 2; i++) {
        rank_output *output = &rank->outputs[i];
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) return th__fail(TH_ERR_RUNTIME, "launch", "no pipe could be made: %s", strerror(errno));
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        output->fd = ends[0];
        output->to_stderr = i == 1;
        output->used = 0;
        child_fds[i] = ends[1];
        if (output->line == NULL && (output->line = th__malloc(LINE_MAX_BYTES)) == NULL) return th__pending();
    }
    return TH_OK;
}

static void write_all(int fd, const char *text, size_t size)
{
    while (size > 0) {
        ssize_t written = write(fd, text, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return; /* the reader has gone: the log still has it */
        text += written;
        size -= (size_t)written;
    }
}

/* Lines of several ranks never mix: each goes out in one piece, with the rank in front. */
static void pass_on(const rank_process *rank, const fabric__job *job, const rank_output *output, const char *text, size_t size)
{
    char prefix[32];
    int length = job->local_processes * job->num_nodes > 1 ? snprintf(prefix, sizeof prefix, "[rank %d] ", rank->global_rank) : 0;
    write_all(rank->log_fd, text, size);
    char *line = malloc((size_t)length + size);
    if (line == NULL) return;
    memcpy(line, prefix, (size_t)length);
    memcpy(line + length, text, size);
    write_all(output->to_stderr ? 2 : 1, line, (size_t)length + size);
    free(line);
}

static void relay_lines(rank_process *rank, const fabric__job *job, rank_output *output, bool all)
{
    size_t start = 0;
    for (size_t i = 0; i < output->used; i++)
        if (output->line[i] == '\n') {
            pass_on(rank, job, output, output->line + start, i + 1 - start);
            start = i + 1;
        }
    if (start == 0 && output->used == LINE_MAX_BYTES) all = true;
    if (all && start < output->used) {
        pass_on(rank, job, output, output->line + start, output->used - start);
        start = output->used;
    }
    memmove(output->line, output->line + start, output->used - start);
    output->used -= start;
}

void fabric__output_relay(rank_process *rank, const fabric__job *job, bool last)
{
    for (int i = 0; i < 2; i++) {
        rank_output *output = &rank->outputs[i];
        while (output->fd >= 0) {
            ssize_t got = read(output->fd, output->line + output->used, LINE_MAX_BYTES - output->used);
            if (got < 0 && errno == EINTR) continue;
            if (got > 0) {
                output->used += (size_t)got;
                relay_lines(rank, job, output, false);
                continue;
            }
            if (got == 0 || last) {
                relay_lines(rank, job, output, true);
                close(output->fd);
                output->fd = -1;
            }
            break;
        }
    }
}

void fabric__output_close(rank_process *rank)
{
    for (int i = 0; i < 2; i++) {
        if (rank->outputs[i].fd >= 0) close(rank->outputs[i].fd);
        free(rank->outputs[i].line);
        rank->outputs[i] = (rank_output){.fd = -1};
    }
}
