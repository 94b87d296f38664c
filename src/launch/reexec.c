/* launch/reexec.c: fabric_launch in a plainly started program. The process becomes the supervisor and the program is started
 * again once per rank, so that rank 0 is a child like the others.
 *
 * Becoming means exec of `fabric`, found beside the library or the program: libtorch's memory and threads are gone at once. Where
 * it is not found, the supervisor runs here, which works as well and only costs that memory. */
#include "launch/internal.h"
#include "launch/launchers.h"

#include "base/env.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/memory.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---------------------------------------------------------------- this program */

/* The running program's file. A program rebuilt while it runs has lost its file; what took its name is the next best. */
static char *own_program(void)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return NULL;
    path[length] = '\0';
    static const char deleted[] = " (deleted)";
    if (access(path, X_OK) != 0 && th__ends_with(path, deleted)) path[length - (ssize_t)(sizeof deleted - 1)] = '\0';
    return th__strdup(path);
}

/* The arguments as the program got them: getopt and the like move pointers, not the texts the kernel has. */
static th_status own_arguments(th__strings *arguments)
{
    size_t size = 0;
    char *text = th__read_file("/proc/self/cmdline", &size);
    if (text == NULL) return th__pending();
    for (size_t at = 0; at < size; at += strlen(text + at) + 1)
        if (th__strings_add(arguments, text + at) != 0) break;
    free(text);
    return th__pending();
}

th_status fabric__own_command(char **program, th__strings *arguments)
{
    *program = own_program();
    if (*program == NULL) return th__fail(TH_ERR_RUNTIME, "launch", "this program's own file could not be found under /proc");
    TH__TRY(own_arguments(arguments));
    if (TH__PUSH(arguments->items, arguments->count, arguments->capacity, NULL) != 0) return th__pending();
    arguments->count--;
    return TH_OK;
}

/* ---------------------------------------------------------------- `fabric` beside us */

/* What `path --version` prints, asked in a child that has nothing but async-signal-safe calls to make. */
static void ask_version(const char *path, char *answer, size_t size)
{
    int ends[2];
    size_t used = 0;
    ssize_t got = 1;
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    pid_t child = fabric__bare_fork();
    if (child == 0) {
        dup2(ends[1], 1);
        alarm(2); /* a stranger may do anything, but not for long */
        execl(path, path, "--version", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    while (child > 0 && got > 0 && used + 1 < size)
        if ((got = read(ends[0], answer + used, size - 1 - used)) > 0) used += (size_t)got;
    answer[used] = '\0';
    close(ends[0]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
}

/* Other programs have this name too: Lightning's is a script; any other would not know what to do with our arguments. */
static bool is_our_program(const char *path)
{
    char magic[4] = "", answer[128] = "";
    FILE *file = access(path, X_OK) == 0 ? fopen(path, "re") : NULL;
    if (file == NULL) return false;
    bool binary = fread(magic, 1, 4, file) == 4 && memcmp(magic, "\177ELF", 4) == 0;
    fclose(file);
    if (binary) ask_version(path, answer, sizeof answer);
    return strcmp(answer, "fabric, cfabric version " CFABRIC_VERSION "\n") == 0;
}

static char *beside(const char *folder, const char *relative)
{
    char *path = th__strfmt("%s/%s", folder, relative);
    if (path != NULL && is_our_program(path)) return path;
    free(path);
    return NULL;
}

/* In the build tree or the installed one: next to the program, or in the bin folder that belongs to the library's folder. */
static char *find_fabric(const char *program)
{
    const char *given = th__env("CFABRIC_PROGRAM");
    if (given != NULL) return is_our_program(given) ? th__strdup(given) : NULL;
    char *folder = th__path_dir(program), *found = folder != NULL ? beside(folder, "fabric") : NULL;
    free(folder);
    Dl_info info;
    static const char here;
    if (found != NULL || dladdr(&here, &info) == 0 || info.dli_fname == NULL) return found;
    char *real = realpath(info.dli_fname, NULL);
    folder = real != NULL ? th__path_dir(real) : NULL;
    if (folder != NULL) found = beside(folder, "../bin/fabric");
    if (folder != NULL && found == NULL) found = beside(folder, "../../bin/fabric");
    free(folder);
    free(real);
    return found;
}

/* ---------------------------------------------------------------- becoming it */

static th_status supervisor_arguments(th__strings *out, const fabric__job *job)
{
    int failed = th__strings_add(out, "fabric") | th__strings_add(out, "__supervise") |
                 th__strings_addf(out, "%d", job->local_processes) | th__strings_addf(out, "%d", job->num_nodes) |
                 th__strings_addf(out, "%d", job->node_rank) |
                 th__strings_add(out, job->main_address != NULL ? job->main_address : "127.0.0.1") |
                 th__strings_addf(out, "%d", job->main_port) | th__strings_addf(out, "%d", job->port_is_explicit) |
                 th__strings_add(out, job->program);
    for (char *const *argument = job->argv; *argument != NULL && failed == 0; argument++)
        failed = th__strings_add(out, *argument);
    return failed == 0 ? TH_OK : th__pending();
}

enum { SUPERVISE_FIXED = 7 }; /* arguments before the program's own: see above */

int fabric__supervise_main(int argc, char **argv)
{
    int64_t numbers[SUPERVISE_FIXED] = {0};
    static const int numeric[] = {0, 1, 2, 4, 5};
    if (argc < SUPERVISE_FIXED + 1) return 2;
    for (size_t i = 0; i < sizeof numeric / sizeof *numeric; i++)
        if (!th__parse_int(argv[numeric[i]], &numbers[numeric[i]])) return 2;
    fabric__job job = {.local_processes = (int)numbers[0],
                       .num_nodes = (int)numbers[1],
                       .node_rank = (int)numbers[2],
                       .main_address = argv[3],
                       .main_port = (int)numbers[4],
                       .port_is_explicit = numbers[5] != 0,
                       .launcher = "subprocess",
                       .program = argv[6],
                       .argv = argv + SUPERVISE_FIXED};
    return fabric__supervise_and_report(&job);
}

th_status fabric__become_supervisor(const fabric__job *job)
{
    th__strings arguments = {0};
    char *supervisor = find_fabric(job->program);
    fflush(NULL);
    if (supervisor != NULL && supervisor_arguments(&arguments, job) == TH_OK &&
        TH__PUSH(arguments.items, arguments.count, arguments.capacity, NULL) == 0)
        execv(supervisor, arguments.items);
    if (arguments.count > 0 && arguments.items[arguments.count - 1] == NULL) arguments.count--;
    th__strings_free(&arguments);
    free(supervisor);
    TH__CHECK_PENDING();
    int code = fabric__supervise_and_report(job); /* no such program, or it could not be executed */
    TH__CHECK_PENDING();                          /* not started: the caller learns why */
    fflush(NULL);
    _exit(code);
}

/* ---------------------------------------------------------------- the launcher */

static th_status launch_subprocess(const fabric_launch_request *request, fabric_launch_result *result)
{
    bool made =
        fabric__is_rank_of("subprocess", request) || fabric_environment_creates_processes_externally(request->environment);
    TH__CHECK_PENDING();
    if (made) return fabric__run_here(request, result);
    fabric__job job = {.launcher = "subprocess"};
    TH__TRY(fabric__job_from_request(&job, request));
    th__strings arguments = {0};
    char *program = NULL;
    if (fabric__own_command(&program, &arguments) == TH_OK) {
        job.program = program;
        job.argv = arguments.items;
        fabric__become_supervisor(&job);
    }
    th__strings_free(&arguments);
    free(program);
    return th__pending();
}

const fabric_launcher_ops fabric__launcher_subprocess = {
    .size = sizeof(fabric_launcher_ops),
    .name = "subprocess",
    .description = "starts the program again, once per process; this process becomes their supervisor",
    .launch = launch_subprocess,
};
