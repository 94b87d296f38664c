/* launch/signals.c: the supervisor's signals as bytes in a pipe. */
#include "launch/internal.h"

#include "base/error.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Those that are passed on to the ranks, and SIGCHLD, which only wakes the supervisor. */
static const int taken[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
enum { TAKEN = sizeof taken / sizeof *taken };

static struct sigaction before[TAKEN], pipe_before;
static bool installed[TAKEN];
static sigset_t mask_before;
static int wake[2] = {-1, -1};

static void note(int signal)
{
    int saved = errno;
    unsigned char byte = (unsigned char)signal;
    if (write(wake[1], &byte, 1) < 0) { /* full: the supervisor is awake anyway */
    }
    errno = saved;
}

th_status fabric__signals_take(void)
{
    if (pipe2(wake, O_CLOEXEC | O_NONBLOCK) != 0)
        return th__fail(TH_ERR_RUNTIME, "launch", "no pipe could be made: %s", strerror(errno));
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    for (int i = 0; i < TAKEN; i++) {
        sigaction(taken[i], NULL, &before[i]);
        /* What a shell or nohup has told us to ignore stays ignored, here and in the ranks. */
        installed[i] = taken[i] == SIGCHLD || before[i].sa_handler != SIG_IGN;
        if (installed[i]) sigaction(taken[i], &action, NULL);
    }
    sigset_t open;
    sigemptyset(&open);
    for (int i = 0; i < TAKEN; i++) sigaddset(&open, taken[i]);
    pthread_sigmask(SIG_UNBLOCK, &open, &mask_before);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, &pipe_before);
    return TH_OK;
}

void fabric__signals_reset_in_child(void)
{
    for (int i = 0; i < TAKEN; i++)
        if (installed[i]) sigaction(taken[i], &before[i], NULL);
    sigaction(SIGPIPE, &pipe_before, NULL);
    if (wake[0] >= 0) close(wake[0]);
    if (wake[1] >= 0) close(wake[1]);
    wake[0] = wake[1] = -1;
}

void fabric__signals_give_back(void)
{
    pthread_sigmask(SIG_SETMASK, &mask_before, NULL);
    fabric__signals_reset_in_child();
}

int fabric__signals_fd(void) { return wake[0]; }

int fabric__signals_next(void)
{
    unsigned char byte = 0;
    return read(wake[0], &byte, 1) == 1 ? byte : 0;
}
