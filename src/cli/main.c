/* cli/main.c: the program `fabric`: picks the command. Links no libtorch, so it starts in milliseconds. */
#include "cli/cli.h"

#include "launch/job.h"
#include <stdio.h>
#include <string.h>

static int cli_help(int argc, char **argv);
static int supervise(int argc, char **argv) { return fabric__supervise_main(argc - 1, argv + 1); }

const cli_command cli_commands[] = {
    {"run", "Run a program on one or many processes.", cli_run},
    {"consolidate", "Turn a sharded checkpoint into a single file.", cli_consolidate},
    {"doctor", "Show what cfabric finds on this machine.", cli_doctor},
    {"help", "Show this help, or that of a command.", cli_help},
    {"__supervise", NULL, supervise}, /* what fabric_launch() turns a program into */
    {NULL, NULL, NULL},
};

static const cli_command *find(const char *name)
{
    for (const cli_command *command = cli_commands; command->name != NULL; command++)
        if (strcmp(command->name, name) == 0) return command;
    return NULL;
}

static void print_help(FILE *out)
{
    fputs("Usage: fabric [OPTIONS] COMMAND [ARGS]...\n\n"
          "  Fabric for C: runs training programs on one or many processes.\n\nOptions:\n"
          "  --version  Show the version and exit.\n"
          "  --help     Show this message and exit.\n\nCommands:\n",
          out);
    for (const cli_command *command = cli_commands; command->name != NULL; command++)
        if (command->summary != NULL) fprintf(out, "  %-12s %s\n", command->name, command->summary);
}

static int unknown(const char *name)
{
    const char *names[32];
    size_t count = 0;
    for (const cli_command *command = cli_commands; command->name != NULL && count < 32; command++)
        if (command->summary != NULL) names[count++] = command->name;
    const char *near = th__closest(name, names, count);
    fputs("Usage: fabric [OPTIONS] COMMAND [ARGS]...\nTry 'fabric --help' for help.\n\n", stderr);
    fprintf(stderr, "Error: No such %s '%s'.%s%s%s\n", name[0] == '-' ? "option" : "command", name,
            near != NULL ? " Did you mean '" : "", near != NULL ? near : "", near != NULL ? "'?" : "");
    return CLI_USAGE;
}

static int cli_help(int argc, char **argv)
{
    char help[] = "--help", *arguments[] = {argc > 1 ? argv[1] : NULL, help, NULL};
    if (argc < 2 || strcmp(argv[1], "help") == 0) return print_help(stdout), CLI_OK;
    const cli_command *command = find(argv[1]);
    return command != NULL && command->summary != NULL ? command->main(2, arguments) : unknown(argv[1]);
}

int main(int argc, char **argv)
{
    if (argc < 2) return print_help(stderr), CLI_USAGE;
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return print_help(stdout), CLI_OK;
    if (strcmp(argv[1], "--version") == 0) return printf("fabric, cfabric version %s\n", fabric_version()), CLI_OK;
    const cli_command *command = find(argv[1]);
    return command != NULL ? command->main(argc - 1, argv + 1) : unknown(argv[1]);
}
