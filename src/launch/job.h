/* launch/job.h: a group of processes on this machine and the supervisor that keeps it: starts the ranks, watches them, ends them
 * all when one fails, leaves nothing behind. Used by `fabric run`, by the re-executed supervisor and by the spawn and fork
 * launchers. */
#ifndef FABRIC_LAUNCH_JOB_H
#define FABRIC_LAUNCH_JOB_H

#include <cfabric/base.h>
#include <sys/types.h>

/* Tells a rank which launcher made it: "run", "subprocess", "spawn", "fork". */
#define FABRIC__ENV_LAUNCHER "CFABRIC_LAUNCHER"
/* Where a rank writes its last error for the supervisor to repeat: a file without a name, reached through /proc, so it cannot be
 * left. */
#define FABRIC__ENV_ERROR_FILE "CFABRIC_ERROR_FILE"

typedef struct fabric__job {
    int local_processes, num_nodes, node_rank;
    const char *main_address; /* NULL: 127.0.0.1 */
    int main_port;            /* 0: any free one */
    bool port_is_explicit;    /* a taken main_port is an error; else another one is used (one node only) */
    const char *launcher;     /* value of CFABRIC_LAUNCHER */
    const char *run_id;       /* TORCHELASTIC_RUN_ID with the restart variables; NULL: not set */
    int max_restarts;
    const char *log_dir; /* NULL: the ranks write where the supervisor does */
    bool tee;            /* with log_dir: show the output too */

    const char *program; /* path of what to execute; NULL: `body` runs in forked children */
    char *const *argv;
    int (*body)(void *user, int local_rank); /* returns the exit code */
    void *user;
    const char *const *extra_env; /* "NAME=value", NULL at the end; may be NULL */
} fabric__job;

typedef struct fabric__outcome {
    int code; /* exit code of the job: 0, the culprit's code, 128 + signal */
    int rank; /* global rank of the first that failed; -1: none did */
    pid_t pid;
    int signal;       /* what ended it, 0: it exited */
    int relayed;      /* the signal that was relayed to the ranks, 0: none */
    char error[1200]; /* its last error, "" when unknown */
} fabric__outcome;

/* Runs the job to its end. TH_OK when it was started, whatever came of it; an error when it could not be (program, port, log
 * folder). Changes signal handlers while it runs and puts them back. One at a time per process. */
th_status fabric__supervise(const fabric__job *job, fabric__outcome *outcome);
/* "rank 1 (pid 123) was killed by signal 11 (Segmentation fault): <error>" */
void fabric__outcome_text(const fabric__outcome *outcome, char *text, size_t size);

/* Seconds between TERM and KILL: after a failure, and after a relayed signal (CFABRIC_GRACE_SECONDS changes the second). */
enum { FABRIC__FAILURE_GRACE_S = 3, FABRIC__RELAY_GRACE_S = 30 };

/* Becomes the supervisor of this program (by exec of `fabric` where it is found beside the library). Returns only with an error.
 */
th_status fabric__become_supervisor(const fabric__job *job);
/* The arguments after "fabric __supervise"; returns the exit code. */
int fabric__supervise_main(int argc, char **argv);
/* Runs the job, prints what became of it, returns the exit code. */
int fabric__supervise_and_report(const fabric__job *job);

/* Makes a fork after tensor work an error in the child: every later call there is TH_ERR_FORKED. Idempotent. */
void fabric__fork_guard_install(bool (*tensors_have_run)(void));

#endif
