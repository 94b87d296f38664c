/* checkpoint_python.h: runs tests/golden/checkpoint.py. */
#ifndef CHECKPOINT_PYTHON_H
#define CHECKPOINT_PYTHON_H

#include "checkpoint_support.h"

#include <sys/wait.h>

/* A Python with torch: of this build's libtorch version (major.minor), or any when the files in question do not depend on it.
 * NULL if there is none. */
static inline const char *find_python(bool any_version)
{
    static char found[512];
    const char *const candidates[] = {getenv("CFABRIC_PYTHON"), TEST_SOURCE_DIR "/.venv/bin/python", "/usr/bin/python3"};
    for (size_t i = 0; i < 3; i++) {
        char command[1000], version[32];
        if (candidates[i] == NULL || access(candidates[i], X_OK) != 0) continue;
        snprintf(version, sizeof version, "%s", th_torch_version());
        char *dot = strchr(version, '.');
        if (dot != NULL && (dot = strchr(dot + 1, '.')) != NULL) *dot = '\0';
        snprintf(command, sizeof command,
                 "'%s' -c 'import sys, torch; sys.exit(not torch.__version__.startswith(\"%s.\"))' 2>/dev/null", candidates[i],
                 version);
        if (any_version || i == 0) snprintf(command, sizeof command, "'%s' -c 'import torch' 2>/dev/null", candidates[i]);
        if (system(command) != 0) continue;
        snprintf(found, sizeof found, "%s", candidates[i]);
        return found;
    }
    return NULL;
}

/* Runs the script; skips the test without Python. */
static inline void run_script(const char *what, const char *folder)
{
    const char *python = find_python(strncmp(what, "sharded", 7) == 0);
    if (python == NULL) {
        print_message("skipped: no Python with this version of torch was found\n");
        skip();
    }
    char command[1500];
    snprintf(command, sizeof command, "timeout 100 '%s' '%s/tests/golden/checkpoint.py' %s '%s' >/dev/null", python,
             TEST_SOURCE_DIR, what, folder);
    int status = system(command);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("skipped: this Python lacks what '%s' needs\n", what);
        skip();
    }
    if (status != 0) fail_msg("checkpoint.py %s: exit status %d", what, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

#endif
