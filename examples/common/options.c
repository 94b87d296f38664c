/* options.c: a small strict parser for long options. */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *program;

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", program);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(2);
}

__attribute__((noreturn)) static void help(const char *about, const struct option *options, size_t n)
{
    printf("usage: %s [options]\n\n%s\n\n", program, about);
    for (size_t i = 0; i < n; i++) {
        const struct option *o = &options[i];
        printf("  --%-16s %s", o->name, o->help);
        if (o->kind == OPTION_INT) printf(" (default: %ld)", *(long *)o->value);
        if (o->kind == OPTION_DOUBLE) printf(" (default: %g)", *(double *)o->value);
        if (o->kind == OPTION_TEXT && *(const char **)o->value != NULL) printf(" (default: %s)", *(const char **)o->value);
        putchar('\n');
    }
    printf("  --%-16s %s\n", "help", "show this text");
    exit(fflush(stdout) == 0 ? 0 : 1);
}

static void set_number(const struct option *o, const char *text)
{
    char *end = NULL;
    errno = 0;
    double number = strtod(text, &end);
    if (end == text || *end != '\0' || errno == ERANGE || !isfinite(number))
        fail("--%s is '%s', expected a number", o->name, text);
    if (o->kind == OPTION_INT && number != floor(number)) fail("--%s is '%s', expected a whole number", o->name, text);
    if (number < o->min || fabs(number) > 1e15) fail("--%s is '%s', expected at least %g", o->name, text, o->min);
    if (o->kind == OPTION_INT) *(long *)o->value = (long)number;
    else *(double *)o->value = number;
}

static const struct option *find(const char *name, size_t length, const struct option *options, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(options[i].name) == length && strncmp(options[i].name, name, length) == 0) return &options[i];
    return NULL;
}

void options_parse(int argc, char **argv, const char *about, const struct option *options, size_t n)
{
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    program = slash != NULL ? slash + 1 : argc > 0 ? argv[0] : "example";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) help(about, options, n);
        if (strncmp(argv[i], "--", 2) != 0) fail("'%s' is not understood; --help lists the options", argv[i]);
        const char *name = argv[i] + 2, *value = strchr(name, '=');
        size_t length = value != NULL ? (size_t)(value - name) : strlen(name);
        const struct option *o = find(name, length, options, n);
        if (o == NULL) fail("option '--%.*s' is not known; --help lists the options", (int)length, name);
        if (o->kind == OPTION_FLAG) {
            if (value != NULL) fail("option --%s takes no value", o->name);
            *(int *)o->value = 1;
            continue;
        }
        if (value == NULL && ++i >= argc) fail("option --%s needs a value", o->name);
        value = value != NULL ? value + 1 : argv[i];
        if (o->kind == OPTION_TEXT) *(const char **)o->value = value;
        else set_number(o, value);
    }
}
