/* cli/cli.h: the commands of the program `fabric` and what they share. */
#ifndef FABRIC_CLI_CLI_H
#define FABRIC_CLI_CLI_H

#include "base/strings.h"
#include <cfabric/base.h>

/* Exit codes of the program itself; a job's own code comes through unchanged. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_NOT_EXECUTABLE = 126 };

typedef struct cli_command {
    const char *name;
    const char *summary;                /* NULL: not shown in the help */
    int (*main)(int argc, char **argv); /* argv[0] is the command's name */
} cli_command;

/* The table in main.c; {NULL} at the end. */
extern const cli_command cli_commands[];

int cli_run(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_consolidate(int argc, char **argv);

/* ---- options (options.c) */
typedef struct cli_option {
    const char *name;       /* "--num-nodes"; underscores are accepted for the inner dashes */
    const char *value_name; /* "INTEGER", NULL: a flag */
    const char *help;
    const char *const *choices; /* NULL at the end; NULL: free text */
    const char *preset;         /* shown as the default; NULL: none */
    const char **text;          /* where the value goes; a flag gets "1" */
} cli_option;

/* Sorts arguments into known options (anywhere, until "--") and the rest, in order. Unknown options belong to the rest, which
 * starts with the program: the first that is no option. False: `code` is the exit code (usage errors are said on stderr, the help
 * on stdout). */
bool cli_parse(int argc, char **argv, const cli_option *options, const char *usage, const char *about, th__strings *rest,
               int *code);
/* "Usage: ...\nTry ...\n\nError: ..." on stderr; returns CLI_USAGE. */
int cli_usage_error(const char *usage, const char *command, const char *format, ...) FABRIC_PRINTF(3, 4);
/* Reads an option's number; false after a usage error. */
bool cli_number(const char *usage, const char *command, const char *option, const char *text, int64_t min, int64_t max,
                int64_t *out);

/* ---- run (run.c, devices.c) */
typedef struct cli_run_options {
    const char *accelerator, *strategy, *devices, *num_nodes, *node_rank, *main_address, *main_port, *precision, *max_restarts,
        *log_dir, *tee;
} cli_run_options;

/* How many processes this machine gets, and what LT_DEVICES is to say. False with an error raised. */
bool cli_count_processes(const cli_run_options *options, int *processes, char **devices);
/* GPUs that the driver shows (CUDA_VISIBLE_DEVICES counts); 0 without a driver. Asked in a child, so that no driver stays in this
 * process. */
int cli_cuda_devices(void);

#endif
