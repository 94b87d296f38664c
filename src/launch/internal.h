/* launch/internal.h: the parts of the supervisor. Nothing outside this room includes it. */
#ifndef FABRIC_LAUNCH_INTERNAL_H
#define FABRIC_LAUNCH_INTERNAL_H

#include "base/strings.h"
#include "launch/job.h"
#include <poll.h>
#include <signal.h>

/* ---- one rank (rank.c) */
typedef struct rank_output {
    int fd;
    char *line;
    size_t used;
    bool to_stderr;
} rank_output;

typedef struct rank_process {
    int local_rank, global_rank;
    pid_t pid; /* 0: not running */
    bool failed;
    int code, signal;       /* how it ended */
    int error_fd;           /* the memory file behind CFABRIC_ERROR_FILE; -1 none */
    int log_fd;             /* --log-dir; -1 none */
    rank_output outputs[2]; /* --tee: read ends of its stdout and stderr; fd -1 none */
} rank_process;

/* Starts the rank in its own process group; it dies with this process. TH_ERR_RUNTIME says why it did not start. */
th_status fabric__rank_start(rank_process *rank, const fabric__job *job, int port, int restart);
/* Notices its end (true once): ends what is left of its group, collects it, fills code, signal, failed. */
bool fabric__rank_reap(rank_process *rank);
/* Signals its whole group; harmless when it has ended. */
void fabric__rank_signal(const rank_process *rank, int signal);
/* The last line it left as its error; "" when there is none. */
void fabric__rank_error(const rank_process *rank, char *text, size_t size);

/* "NAME=value" strings for a rank, replacing what the environment has of these names. */
th_status fabric__rank_environment(th__strings *env, const fabric__job *job, int local_rank, int port, int restart, int error_fd);

/* ---- output (output.c) */
th_status fabric__output_open(rank_process *rank, const fabric__job *job, int child_fds[2]);
/* Reads what is there and passes whole lines on; closes at the end. `last`: the rank has ended, pass on everything. */
void fabric__output_relay(rank_process *rank, const fabric__job *job, bool last);
void fabric__output_close(rank_process *rank);

/* ---- signals of this process (signals.c): delivered through a pipe, so that nothing happens inside a handler */
th_status fabric__signals_take(void); /* installs; remembers what was there */
void fabric__signals_give_back(void);
int fabric__signals_fd(void);              /* becomes readable when something arrived */
int fabric__signals_next(void);            /* the next signal, 0: none */
void fabric__signals_reset_in_child(void); /* async-signal-safe; before exec or before running a body */

/* ---- the guard (guard.c): a small process that ends all groups when this process dies without having done so */
th_status fabric__guard_start(void);
void fabric__guard_add(pid_t group);
void fabric__guard_remove(pid_t group);
void fabric__guard_stop(void);
void fabric__guard_close_in_child(void); /* async-signal-safe */

/* fork without the handlers of pthread_atfork, for children that call only async-signal-safe functions. */
pid_t fabric__bare_fork(void);
/* The expected fork of the fork launcher: the guard against late forks stays quiet. */
pid_t fabric__expected_fork(void);

#endif
