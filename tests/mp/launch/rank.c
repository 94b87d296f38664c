/* A rank for the launching tests: `mp_rank BEHAVIOUR [ARGS]`. Each behaviour is one way to go right or wrong. */
#include "base/env.h"
#include "base/error.h"
#include <arpa/inet.h>
#include <cfabric/plugin/launcher.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int rank_of(void) { return atoi(th__env_or("RANK", "-1")); }

static void say(const char *text)
{
    char line[256];
    int length = snprintf(line, sizeof line, "rank %d %s\n", rank_of(), text);
    if (write(1, line, (size_t)length) != length) _exit(90);
}

/* As if nothing caught the signal: sanitizers would, to report it. */
static int die_of(int number)
{
    signal(number, SIG_DFL);
    return raise(number);
}

static void sleep_long(void)
{
    for (;;) sleep(100);
}

/* env NAME... : prints them */
static int print_env(char **names)
{
    char line[1024] = "";
    for (; *names != NULL; names++) {
        const char *value = getenv(*names);
        size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, "%s=%s ", *names, value != NULL ? value : "(unset)");
    }
    say(line);
    return 0;
}

/* meet: rank 0 listens on the rendezvous port, the others connect; proves that the port is everybody's and free */
static int meet(void)
{
    int size = atoi(getenv("WORLD_SIZE")), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(getenv("MASTER_PORT")))};
    inet_pton(AF_INET, getenv("MASTER_ADDR"), &address.sin_addr);
    if (rank_of() == 0) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, size) != 0) return perror("listen"), 3;
        for (int i = 1; i < size; i++) close(accept(fd, NULL, NULL));
        return 0;
    }
    for (int i = 0; i < 1000; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        int connected = connect(fd, (struct sockaddr *)&address, sizeof address);
        close(fd);
        if (connected == 0) return 0;
        usleep(10000);
    }
    return 4;
}

static volatile sig_atomic_t caught;
static void note(int signal) { caught = signal; }

/* trap CODE: waits for a signal, says which, ends with CODE */
static int trap(int code)
{
    char text[32];
    static const int all[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    for (int i = 0; i < 4; i++) signal(all[i], note);
    say("ready");
    while (caught == 0) usleep(1000);
    snprintf(text, sizeof text, "caught %d", caught);
    say(text);
    return code;
}

/* chain: has a child, which has a child; all sleep */
static int chain(void)
{
    if (fork() == 0) {
        if (fork() == 0) sleep_long();
        sleep_long();
    }
    say("ready");
    sleep_long();
    return 0;
}

/* error RANK: that rank fails with an error of ours; the others find their peer gone a moment later */
static int raise_error(int who)
{
    if (rank_of() == who) {
        th__fail(TH_ERR_VALUE, "th_linear", "the weight is 3 x 4, expected 3 x 5");
        return 1;
    }
    usleep(20000);
    th__fail(TH_ERR_DISTRIBUTED, "all_reduce", "connection closed by peer");
    return 1;
}

/* ---------------------------------------------------------------- in-program launches */

static th_status work(void *user, fabric_launch_result *result)
{
    char text[64];
    say("works");
    if (strcmp(user, "fail") == 0 && rank_of() == 1) return th__fail(TH_ERR_VALUE, "work", "no luck");
    if (strcmp(user, "die") == 0 && rank_of() == 1) die_of(SIGSEGV);
    if (strcmp(user, "fail") == 0 || strcmp(user, "die") == 0 || strcmp(user, "sleep") == 0) sleep_long();
    snprintf(text, sizeof text, "%s from rank %d of %s", (char *)user, rank_of(), getenv("WORLD_SIZE"));
    result->data = strdup(text);
    result->size = strlen(text) + 1;
    return TH_OK;
}

static bool yes(void) { return true; }

/* launch LAUNCHER PROCESSES [WORK...]: launches for each WORK; without WORK goes on after the launch */
static int launch(char **argv)
{
    fabric_launch_request request = {.size = sizeof request, .num_processes = atoi(argv[1]), .num_nodes = 1};
    static char none[] = "none", *no_work[] = {none, NULL};
    char **works = argv[2] != NULL ? argv + 2 : no_work;
    int code = 0;
    for (; *works != NULL && code == 0; works++) {
        fabric_launch_result result = {0};
        request.environment = fabric_environment_detect();
        request.function = strcmp(*works, "none") == 0 ? NULL : work;
        request.user = *works;
        request.tensors_have_run = getenv("TENSORS_RAN") != NULL ? yes : NULL;
        if (fabric_launcher_launch(argv[0], &request, &result) != TH_OK)
            code = 1;
        else if (result.data != NULL)
            printf("result: %s\n", (char *)result.data);
        else
            say("goes on");
        fflush(stdout);
        free(result.data);
        fabric_environment_free(request.environment);
    }
    return code;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "ok", *a = argc > 2 ? argv[2] : "0", *b = argc > 3 ? argv[3] : "0";
    bool mine = rank_of() == atoi(a);
    if (strcmp(what, "ok") == 0) return 0;
    if (strcmp(what, "env") == 0) return print_env(argv + 2);
    if (strcmp(what, "args") == 0) return execvp("echo", argv);
    if (strcmp(what, "meet") == 0) return meet();
    if (strcmp(what, "exit") == 0 && mine) return usleep(50000), atoi(b);
    if (strcmp(what, "signal") == 0 && mine) return usleep(50000), die_of(atoi(b));
    if (strcmp(what, "abort") == 0 && mine) abort();
    if (strcmp(what, "trap") == 0) return trap(atoi(a));
    if (strcmp(what, "chain") == 0) return chain();
    if (strcmp(what, "error") == 0) return raise_error(atoi(a));
    if (strcmp(what, "restart") == 0) return atoi(getenv("TORCHELASTIC_RESTART_COUNT")) < atoi(a) && rank_of() == 1 ? 5 : meet();
    if (strcmp(what, "launch") == 0 && argc > 3) return launch(argv + 2);
    if (strcmp(what, "stubborn") == 0) { /* rank A exits with B; the others ignore every polite request */
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        say("ready");
        if (mine) return usleep(100000), atoi(b);
    }
    if (strcmp(what, "read") == 0) { /* says how many bytes stdin has */
        char buffer[4096], text[32];
        ssize_t got, total = 0;
        while ((got = read(0, buffer, sizeof buffer)) > 0) total += got;
        snprintf(text, sizeof text, "read %zd", total);
        return say(text), 0;
    }
    if (strcmp(what, "write") == 0) { /* A lines on stdout and one on stderr */
        for (int i = 0; i < atoi(a); i++) printf("line %d of rank %d\n", i, rank_of());
        fprintf(stderr, "stderr of rank %d", rank_of()); /* without a line end */
        return 0;
    }
    sleep_long();
}
