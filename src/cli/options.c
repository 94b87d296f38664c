/* cli/options.c: options as Lightning's command line reads them: anywhere, unknown ones are somebody else's. */
#include "cli/cli.h"

#include "base/error.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cli_usage_error(const char *usage, const char *command, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "Usage: %s\nTry 'fabric %s --help' for help.\n\nError: ", usage, command);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return CLI_USAGE;
}

bool cli_number(const char *usage, const char *command, const char *option, const char *text, int64_t min, int64_t max,
                int64_t *out)
{
    if (th__parse_int(text, out) && *out >= min && *out <= max) return true;
    if (max == INT32_MAX)
        cli_usage_error(usage, command, "Invalid value for '%s': '%s' is not a whole number of at least %" PRId64 ".", option,
                        text, min);
    else
        cli_usage_error(usage, command, "Invalid value for '%s': '%s' is not a whole number from %" PRId64 " to %" PRId64 ".",
                        option, text, min, max);
    return false;
}

/* ---------------------------------------------------------------- help */

static void print_wrapped(const char *text, int indent, int used)
{
    enum { WIDTH = 100 };
    for (const char *word = text; *word != '\0';) {
        int length = (int)strcspn(word, " ");
        bool first = word == text;
        if (!first && used + length + 1 > WIDTH) used = printf("\n%*s", indent, "") - 1, first = true;
        used += printf("%s%.*s", first ? "" : " ", length, word);
        word += length + (word[length] == ' ');
    }
    putchar('\n');
}

static void print_option(const cli_option *option)
{
    enum { COLUMN = 26 };
    char head[64], text[1024];
    snprintf(head, sizeof head, "%s%s%s", option->name, option->value_name != NULL ? " " : "",
             option->value_name != NULL ? option->value_name : "");
    int used = printf("  %-*s", COLUMN - 3, head);
    if (used >= COLUMN)
        used = printf("\n%*s", COLUMN, "") - 1;
    else
        used += printf("%*s", COLUMN - used, "");
    size_t length = (size_t)snprintf(text, sizeof text, "%s", option->help);
    for (const char *const *choice = option->choices; choice != NULL && *choice != NULL && length < sizeof text; choice++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s", choice == option->choices ? " One of: " : ", ",
                                   *choice);
    if (option->choices != NULL && length < sizeof text) length += (size_t)snprintf(text + length, sizeof text - length, ".");
    if (option->preset != NULL && length < sizeof text)
        snprintf(text + length, sizeof text - length, "  [default: %s]", option->preset);
    print_wrapped(text, COLUMN, used);
}

static void print_help(const cli_option *options, const char *usage, const char *about)
{
    printf("Usage: %s\n\n  ", usage);
    print_wrapped(about, 2, 2);
    puts("\nOptions:");
    for (const cli_option *option = options; option->name != NULL; option++) print_option(option);
    puts("  --help                  Show this message and exit.");
}

/* ---------------------------------------------------------------- parsing */

/* "--num_nodes" names "--num-nodes". The name ends at '=' or the end. */
static bool names(const char *argument, const char *name)
{
    if (strncmp(argument, "--", 2) != 0) return false;
    for (; *name != '\0'; argument++, name++)
        if (*argument != *name && !(*argument == '_' && *name == '-')) return false;
    return *argument == '\0' || *argument == '=';
}

static const cli_option *find(const cli_option *options, const char *argument)
{
    for (const cli_option *option = options; option->name != NULL; option++)
        if (names(argument, option->name)) return option;
    return NULL;
}

static bool is_choice(const cli_option *option, const char *value, size_t *count)
{
    bool found = option->choices == NULL;
    for (*count = 0; option->choices != NULL && option->choices[*count] != NULL; ++*count)
        if (strcmp(option->choices[*count], value) == 0) found = true;
    return found;
}

static int wrong_choice(const cli_option *option, const char *value, size_t count, const char *usage, const char *command)
{
    const char *near = th__closest(value, option->choices, count);
    char *list = th__join(option->choices, count, "', '");
    int code = cli_usage_error(usage, command, "Invalid value for '%s': '%s' is not one of '%s'.%s%s%s", option->name, value,
                               list != NULL ? list : "", near != NULL ? " Did you mean '" : "", near != NULL ? near : "",
                               near != NULL ? "'?" : "");
    free(list);
    return code;
}

/* Takes the option at argv[*i] with its value. Returns an exit code, CLI_OK to go on. */
static int take(const cli_option *option, int argc, char **argv, int *i, const char *usage)
{
    const char *value = strchr(argv[*i], '=');
    size_t count;
    if (option->value_name == NULL) {
        if (value != NULL) return cli_usage_error(usage, argv[0], "Option '%s' does not take a value.", option->name);
        *option->text = "1";
        return CLI_OK;
    }
    if (value != NULL)
        value++;
    else if (*i + 1 < argc)
        value = argv[++*i];
    else
        return cli_usage_error(usage, argv[0], "Option '%s' requires an argument.", option->name);
    if (!is_choice(option, value, &count)) return wrong_choice(option, value, count, usage, argv[0]);
    *option->text = value;
    return CLI_OK;
}

bool cli_parse(int argc, char **argv, const cli_option *options, const char *usage, const char *about, th__strings *rest,
               int *code)
{
    th__strings early = {0}; /* unknown options in front of the program: its arguments all the same */
    bool ended = false;
    int failed = 0;
    *code = CLI_OK;
    for (int i = 1; i < argc && *code == CLI_OK && failed == 0; i++) {
        const char *argument = argv[i];
        const cli_option *option = ended ? NULL : find(options, argument);
        if (!ended && strcmp(argument, "--") == 0) {
            ended = true;
        } else if (!ended && strcmp(argument, "--help") == 0) {
            print_help(options, usage, about);
            th__strings_free(&early);
            return false;
        } else if (option != NULL) {
            *code = take(option, argc, argv, &i, usage);
        } else if (rest->count == 0 && !ended && argument[0] == '-') {
            failed = th__strings_add(&early, argument);
        } else {
            failed = th__strings_add(rest, argument);
            for (size_t k = 0; k < early.count && failed == 0; k++) failed = th__strings_add(rest, early.items[k]);
            th__strings_free(&early);
        }
    }
    th__strings_free(&early);
    if (failed != 0) *code = CLI_FAILED;
    return *code == CLI_OK;
}
