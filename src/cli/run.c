/* cli/run.c: `fabric run`: options to LT_* variables and a supervised job. */
#include "cli/cli.h"

#include "base/env.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/memory.h"
#include "launch/job.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] = "fabric run [OPTIONS] PROGRAM [PROGRAM_ARGS]...";
static const char about[] =
    "Run PROGRAM on one or many processes. It makes its Fabric without launching: the options below choose for it. "
    "Options that are not known here, and everything after --, are passed on to it.";
enum { DEFAULT_PORT = 29400 };

static const char *const accelerators[] = {"cpu", "gpu", "cuda", "mps", "tpu", "auto", NULL};
/* Every strategy by name that needs neither a function to run (spawn, fork) nor more settings (offload). */
static const char *const strategies[] = {"ddp",
                                         "ddp_find_unused_parameters_true",
                                         "deepspeed",
                                         "deepspeed_stage_1",
                                         "deepspeed_stage_2",
                                         "deepspeed_stage_3",
                                         "dp",
                                         "fsdp",
                                         NULL};
static const char *const precisions[] = {"transformer-engine",
                                         "transformer-engine-float16",
                                         "16-true",
                                         "16-mixed",
                                         "bf16-true",
                                         "bf16-mixed",
                                         "32-true",
                                         "64-true",
                                         "64",
                                         "32",
                                         "16",
                                         "bf16",
                                         NULL};

/* ---------------------------------------------------------------- the program */

/* Where the program is: a path, or a name in this folder, or a name on PATH. NULL: an exit code in *code, said. */
static char *find_program(const char *name, int *code)
{
    char *path = strchr(name, '/') != NULL ? th__strdup(name) : th__strfmt("./%s", name);
    if (path != NULL && !th__path_exists(path) && strchr(name, '/') == NULL && *name != '\0') {
        th__strings folders = {0};
        th__split(&folders, th__env_or("PATH", "/usr/bin:/bin"), ':');
        for (size_t i = 0; i < folders.count; i++) {
            char *candidate = th__strfmt("%s/%s", folders.items[i], name);
            bool found = candidate != NULL && th__is_file(candidate) && access(candidate, X_OK) == 0;
            if (found)
                free(path), path = candidate;
            else
                free(candidate);
            if (found) break;
        }
        th__strings_free(&folders);
    }
    if (path == NULL) return *code = CLI_FAILED, NULL;
    if (!th__path_exists(path)) {
        *code = cli_usage_error(usage, "run", "Invalid value for 'PROGRAM': '%s' does not exist.", name);
    } else if (!th__is_file(path)) {
        *code = cli_usage_error(usage, "run", "Invalid value for 'PROGRAM': '%s' is not a file.", name);
    } else if (access(path, X_OK) != 0) {
        fprintf(stderr, "Error: '%s' is not executable (chmod +x %s?).\n", name, name);
        *code = CLI_NOT_EXECUTABLE;
    } else {
        return path;
    }
    free(path);
    return NULL;
}

/* ---------------------------------------------------------------- the job */

static th_status export_choices(const cli_run_options *options, int64_t num_nodes, const char *devices)
{
    TH__TRY(th__env_set("LT_CLI_USED", "1"));
    if (options->accelerator != NULL) TH__TRY(th__env_set("LT_ACCELERATOR", options->accelerator));
    if (options->strategy != NULL) TH__TRY(th__env_set("LT_STRATEGY", options->strategy));
    if (options->precision != NULL) TH__TRY(th__env_set("LT_PRECISION", options->precision));
    TH__TRY(th__env_set("LT_DEVICES", devices));
    return th__env_set_int("LT_NUM_NODES", num_nodes);
}

static bool read_numbers(const cli_run_options *o, fabric__job *job)
{
    int64_t nodes, rank, port, restarts;
    if (!cli_number(usage, "run", "--num-nodes", o->num_nodes, 1, INT32_MAX, &nodes) ||
        !cli_number(usage, "run", "--node-rank", o->node_rank, 0, nodes - 1, &rank) ||
        !cli_number(usage, "run", "--max-restarts", o->max_restarts, 0, INT32_MAX, &restarts))
        return false;
    job->port_is_explicit = o->main_port != NULL;
    if (o->main_port == NULL)
        port = DEFAULT_PORT;
    else if (!cli_number(usage, "run", "--main-port", o->main_port, 1, 65535, &port))
        return false;
    job->num_nodes = (int)nodes;
    job->node_rank = (int)rank;
    job->main_port = (int)port;
    job->max_restarts = (int)restarts;
    return true;
}

static int start(const cli_run_options *options, fabric__job *job, th__strings *rest)
{
    int code = CLI_OK;
    char *devices = NULL, *program = find_program(rest->items[0], &code);
    if (program == NULL) return code;
    if (cli_count_processes(options, &job->local_processes, &devices) &&
        export_choices(options, job->num_nodes, devices) == TH_OK &&
        TH__PUSH(rest->items, rest->count, rest->capacity, NULL) == 0) {
        rest->count--;
        job->program = program;
        job->argv = rest->items;
        code = fabric__supervise_and_report(job);
    }
    if (th__pending() != TH_OK && code == CLI_OK) code = CLI_FAILED;
    free(devices);
    free(program);
    return code;
}

/* A closed stdin, stdout or stderr would have its number given to the next file that is opened. */
static void fill_standard_files(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) < 0) return;
}

int cli_run(int argc, char **argv)
{
    cli_run_options o = {.devices = "1", .num_nodes = "1", .node_rank = "0", .main_address = "127.0.0.1", .max_restarts = "0"};
    const cli_option options[] = {
        {"--accelerator", "NAME", "The hardware to run on.", accelerators, NULL, &o.accelerator},
        {"--strategy", "NAME", "How the processes work together.", strategies, NULL, &o.strategy},
        {"--devices", "TEXT",
         "Number of devices (processes) on this machine, a list of GPU ids ('0,1', '2,'), or -1 for all GPUs.", NULL, "1",
         &o.devices},
        {"--num-nodes", "INTEGER", "Number of machines that take part.", NULL, "1", &o.num_nodes},
        {"--node-rank", "INTEGER", "The number of this machine, from 0 to the number of machines less 1.", NULL, "0",
         &o.node_rank},
        {"--main-address", "TEXT", "Name or address of the machine with number 0.", NULL, "127.0.0.1", &o.main_address},
        {"--main-port", "INTEGER", "Port on that machine; if it is not given and taken, another one is used (on one machine).",
         NULL, "29400", &o.main_port},
        {"--precision", "NAME", "Number format of weights and computation.", precisions, NULL, &o.precision},
        {"--max-restarts", "INTEGER", "How often all processes are started again after one has failed.", NULL, "0",
         &o.max_restarts},
        {"--log-dir", "DIRECTORY", "Write each process's output to rank_<k>.log in this folder instead of the terminal.", NULL,
         NULL, &o.log_dir},
        {"--tee", NULL, "With --log-dir: show the output on the terminal too, each line with its rank.", NULL, NULL, &o.tee},
        {0},
    };
    th__strings rest = {0};
    int code;
    fabric__job job = {.launcher = "run", .run_id = "cfabric"};
    fill_standard_files();
    if (cli_parse(argc, argv, options, usage, about, &rest, &code)) {
        if (rest.count == 0)
            code = cli_usage_error(usage, "run", "Missing argument 'PROGRAM'.");
        else if (o.tee != NULL && o.log_dir == NULL)
            code = cli_usage_error(usage, "run", "Option '--tee' needs '--log-dir'.");
        else if (!read_numbers(&o, &job))
            code = CLI_USAGE;
        else {
            job.main_address = o.main_address;
            job.log_dir = o.log_dir;
            job.tee = o.tee != NULL;
            code = start(&o, &job, &rest);
        }
    }
    th__strings_free(&rest);
    return code;
}
