/* launch/supervisor.c: keeps a group of ranks: starts all, ends all when one fails, restarts the group, relays signals. */
#include "launch/internal.h"

#include "base/env.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/net.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct supervisor {
    const fabric__job *job;
    rank_process *ranks;
    struct pollfd *polls;
    int alive;
    int culprit;    /* local rank of the first that failed; -1 none yet */
    int relayed;    /* the stop signal that was passed on */
    double kill_at; /* when patience ends; 0: nobody is being ended */
    double relay_grace;
    int port;
    th__port_hold hold;
} supervisor;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void signal_all(supervisor *s, int signal)
{
    for (int i = 0; i < s->job->local_processes; i++) fabric__rank_signal(&s->ranks[i], signal);
}

/* ---------------------------------------------------------------- the port */

static th_status choose_port(supervisor *s)
{
    const fabric__job *job = s->job;
    const char *address = job->main_address != NULL ? job->main_address : "127.0.0.1";
    bool may_change = !job->port_is_explicit && job->num_nodes == 1;
    s->port = job->main_port;
    if (job->node_rank != 0) return TH_OK; /* rank 0 listens, on another machine */
    if (s->port != 0 && !th__net_is_local(address)) return TH_OK;
    if (s->port != 0 && th__net_hold_port(s->port, &s->hold)) return TH_OK;
    if (s->port != 0 && !may_change)
        return th__fail(TH_ERR_RUNTIME, "launch", "port %d on %s is taken; choose another with --main-port or MASTER_PORT",
                        s->port, address);
    s->port = th__net_hold_free_port(&s->hold);
    return s->port > 0 ? TH_OK : th__pending();
}

/* ---------------------------------------------------------------- ends of ranks */

/* A rank that complains about its peers is not the cause; one that was killed or crashed rather is. */
static int guilt(const rank_process *rank)
{
    char error[256];
    fabric__rank_error(rank, error, sizeof error);
    if (rank->signal != 0) return 3;
    return th__starts_with(error, "DistributedError") || th__starts_with(error, "TimeoutError") ? 1 : 2;
}

static void end_all(supervisor *s, int signal, double grace)
{
    s->kill_at = now() + grace;
    signal_all(s, signal);
    signal_all(s, SIGCONT); /* a stopped process would not see it */
}

/* Collects the ranks that have ended. The first failure decides; of several found at once the guiltiest. */
static void reap(supervisor *s)
{
    int culprit = -1;
    for (int i = 0; i < s->job->local_processes; i++) {
        rank_process *rank = &s->ranks[i];
        if (!fabric__rank_reap(rank)) continue;
        s->alive--;
        fabric__output_relay(rank, s->job, true);
        if (rank->failed && (culprit < 0 || guilt(rank) > guilt(&s->ranks[culprit]))) culprit = i;
        rank->pid = -rank->pid; /* ended; the number is still wanted for the report */
    }
    if (culprit < 0 || s->culprit >= 0 || s->relayed != 0) return;
    s->culprit = culprit;
    if (s->alive > 0) end_all(s, SIGTERM, FABRIC__FAILURE_GRACE_S);
}

/* ---------------------------------------------------------------- signals */

static void suspend(supervisor *s)
{
    signal_all(s, SIGSTOP);
    kill(getpid(), SIGSTOP); /* goes on here after SIGCONT */
    signal_all(s, SIGCONT);
}

static void handle_signal(supervisor *s, int signal)
{
    switch (signal) {
    case SIGCHLD: break;
    case SIGTSTP: suspend(s); break;
    case SIGCONT:
    case SIGUSR1:
    case SIGUSR2: signal_all(s, signal); break;
    default: /* asked to end: pass it on, wait; asked again: end it now */
        if (s->relayed != 0)
            s->kill_at = now();
        else
            end_all(s, signal, s->culprit >= 0 ? FABRIC__FAILURE_GRACE_S : s->relay_grace);
        s->relayed = signal;
    }
}

/* ---------------------------------------------------------------- the loop */

static void wait_for_something(supervisor *s)
{
    nfds_t count = 0;
    s->polls[count++] = (struct pollfd){.fd = fabric__signals_fd(), .events = POLLIN};
    for (int i = 0; i < s->job->local_processes; i++)
        for (int k = 0; k < 2; k++)
            if (s->ranks[i].outputs[k].fd >= 0)
                s->polls[count++] = (struct pollfd){.fd = s->ranks[i].outputs[k].fd, .events = POLLIN};
    int timeout = 1000; /* SIGCHLD wakes us; this is only against a lost one */
    if (s->kill_at > 0) {
        double left = s->kill_at - now();
        timeout = left <= 0 ? 0 : left < 1 ? (int)(left * 1000) + 1 : 1000;
    }
    poll(s->polls, count, timeout);
    for (int signal; (signal = fabric__signals_next()) != 0;) handle_signal(s, signal);
    for (int i = 0; i < s->job->local_processes; i++) fabric__output_relay(&s->ranks[i], s->job, false);
}

static void kill_when_due(supervisor *s)
{
    if (s->kill_at <= 0 || now() < s->kill_at || s->alive == 0) return;
    signal_all(s, SIGKILL);
    s->kill_at = now() + 1; /* again, should a group have grown meanwhile */
}

static th_status run_group(supervisor *s, int restart)
{
    s->culprit = -1;
    s->kill_at = 0;
    TH__TRY(choose_port(s));
    th_status status = TH_OK;
    for (int i = 0; i < s->job->local_processes && status == TH_OK; i++) {
        status = fabric__rank_start(&s->ranks[i], s->job, s->port, restart);
        if (status == TH_OK) s->alive++;
    }
    if (status != TH_OK) end_all(s, SIGKILL, 0);
    while (s->alive > 0) {
        wait_for_something(s);
        reap(s);
        kill_when_due(s);
    }
    th__net_release_port(&s->hold);
    return status;
}

static void describe(const supervisor *s, fabric__outcome *outcome)
{
    const rank_process *culprit = s->culprit >= 0 ? &s->ranks[s->culprit] : NULL;
    *outcome = (fabric__outcome){.rank = -1, .relayed = s->relayed};
    if (culprit != NULL) {
        outcome->code = culprit->code;
        outcome->rank = culprit->global_rank;
        outcome->pid = -culprit->pid;
        outcome->signal = culprit->signal;
        fabric__rank_error(culprit, outcome->error, sizeof outcome->error);
        return;
    }
    for (int i = 0; i < s->job->local_processes && s->relayed != 0; i++) /* ranks that ended well on request make a good end */
        if (s->ranks[i].failed) outcome->code = 128 + s->relayed;
}

static th_status prepare(supervisor *s)
{
    int n = s->job->local_processes;
    int64_t grace;
    TH__TRY(th__env_int("CFABRIC_GRACE_SECONDS", FABRIC__RELAY_GRACE_S, 0, 86400, &grace));
    s->relay_grace = (double)grace;
    s->ranks = th__calloc((size_t)n, sizeof *s->ranks);
    s->polls = th__calloc((size_t)n * 2 + 1, sizeof *s->polls);
    if (s->ranks == NULL || s->polls == NULL) return th__pending();
    for (int i = 0; i < n; i++)
        s->ranks[i] = (rank_process){.local_rank = i,
                                     .global_rank = s->job->node_rank * n + i,
                                     .error_fd = -1,
                                     .log_fd = -1,
                                     .outputs = {{.fd = -1}, {.fd = -1}}};
    return TH_OK;
}

static void clean_up(supervisor *s)
{
    for (int i = 0; s->ranks != NULL && i < s->job->local_processes; i++) {
        rank_process *rank = &s->ranks[i];
        fabric__output_close(rank);
        if (rank->error_fd >= 0) close(rank->error_fd);
        if (rank->log_fd >= 0) close(rank->log_fd);
    }
    free(s->ranks);
    free(s->polls);
}

static void announce_restart(const supervisor *s, int restart)
{
    char text[1600];
    fabric__outcome outcome;
    describe(s, &outcome);
    fabric__outcome_text(&outcome, text, sizeof text);
    dprintf(2, "fabric: %s; restarting all ranks (%d of %d)\n", text, restart, s->job->max_restarts);
}

th_status fabric__supervise(const fabric__job *job, fabric__outcome *outcome)
{
    TH__CHECK_PENDING();
    *outcome = (fabric__outcome){.rank = -1};
    if (job->local_processes < 1 || job->num_nodes < 1 || job->node_rank < 0 || job->node_rank >= job->num_nodes)
        return th__fail(TH_ERR_VALUE, "launch",
                        "%d processes on node %d of %d: expected at least one process and a node of the job",
                        job->local_processes, job->node_rank, job->num_nodes);
    supervisor s = {.job = job, .culprit = -1, .hold = TH__PORT_HOLD_NONE};
    th_status status = prepare(&s);
    if (status == TH_OK) status = fabric__signals_take();
    if (status != TH_OK) return clean_up(&s), status;
    status = fabric__guard_start();
    for (int restart = 0; status == TH_OK; restart++) {
        status = run_group(&s, restart);
        if (s.culprit < 0 || s.relayed != 0 || restart >= job->max_restarts) break;
        announce_restart(&s, restart + 1);
    }
    fabric__guard_stop();
    fabric__signals_give_back();
    if (status == TH_OK) describe(&s, outcome);
    clean_up(&s);
    return status;
}

/* ---------------------------------------------------------------- saying what happened */

void fabric__outcome_text(const fabric__outcome *outcome, char *text, size_t size)
{
    int used;
    if (outcome->rank < 0)
        used = snprintf(text, size, outcome->relayed != 0 ? "ended by signal %d (%s)" : "ended", outcome->relayed,
                        strsignal(outcome->relayed));
    else if (outcome->signal != 0)
        used = snprintf(text, size, "rank %d (pid %ld) was killed by signal %d (%s)", outcome->rank, (long)outcome->pid,
                        outcome->signal, strsignal(outcome->signal));
    else
        used = snprintf(text, size, "rank %d (pid %ld) exited with code %d", outcome->rank, (long)outcome->pid, outcome->code);
    if (outcome->error[0] != '\0' && used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, ": %s", outcome->error);
}

int fabric__supervise_and_report(const fabric__job *job)
{
    fabric__outcome outcome;
    char text[1600];
    if (fabric__supervise(job, &outcome) != TH_OK) return 1; /* said already */
    if (outcome.code == 0) return 0;
    fabric__outcome_text(&outcome, text, sizeof text);
    dprintf(2, "fabric: %s\n", text);
    return outcome.code;
}
