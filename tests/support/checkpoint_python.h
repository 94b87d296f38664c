/* checkpoint_python.h: runs tests/golden/checkpoint.py. */
#ifndef CHECKPOINT_PYTHON_H
#define CHECKPOINT_PYTHON_H

#include "checkpoint_support.h"

#include <sys/wait.h>

/* The Python whose torch belongs to this build's libtorch, or any with torch. NULL if there is none. */
static inline const char *find_python(void)
{
    static char found[512];
    const char *const candidates[] = {getenv("CFABRIC_PYTHON"), TEST_SOURCE_DIR "/.venv/bin/python", "/usr/bin/python3"};
    for (size_t i = 0; i < 3; i++) {
        char command[700];
        if (candidates[i] == NULL || access(candidates[i], X_OK) != 0) continue;
        snprintf(command, sizeof command, "'%s' -c 'import torch' 2>/dev/null", candidates[i]);
        if (system(command) != 0) continue;
        snprintf(found, sizeof found, "%s", candidates[i]);
        return found;
    }
    return NULL;
}

/* Runs the script; skips the test without Python. */
static inline void run_script(const char *what, const char *folder)
{
    const char *python = find_python();
    if (python == NULL) {
        print_message("skipped: no Python with torch was found\n");
        skip();
    }
    char command[1500];
    snprintf(command, sizeof command, "timeout 100 '%s' '%s/tests/golden/checkpoint.py' %s '%s' >/dev/null", python, TEST_SOURCE_DIR, what, folder);
    int status = system(command);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("skipped: this Python lacks what '%s' needs\n", what);
        skip();
    }
    if (status != 0) fail_msg("checkpoint.py %s: exit status %d", what, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

#endif
