/* options.h: command line options of the examples: "--batch-size 64" or "--batch-size=64". */
#ifndef EXAMPLES_OPTIONS_H
#define EXAMPLES_OPTIONS_H

#include <stddef.h>

enum option_kind { OPTION_INT, OPTION_DOUBLE, OPTION_TEXT, OPTION_FLAG };

struct option {
    const char *name;        /* without the dashes */
    enum option_kind kind;
    void *value;             /* long *, double *, const char **, int *; holds the default */
    double min;              /* smallest number */
    const char *help;
};

/* Fills the values. An unknown option or a bad value prints one line and ends the program with 2, --help with 0. */
void options_parse(int argc, char **argv, const char *about, const struct option *options, size_t n);

#endif
