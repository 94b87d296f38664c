/* checkpoint_support.h: what the checkpoint tests share: a scratch folder per test, whole files in and out. */
#ifndef CHECKPOINT_SUPPORT_H
#define CHECKPOINT_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include <cfabric/autograd.h>
#include <cfabric/checkpoint.h>
#include <cfabric/error.h>
#include <cfabric/scope.h>

static inline int enter_scratch(void **state)
{
    char *folder = strdup("/tmp/cfabric-test-XXXXXX");
    th_error_clear();
    *state = mkdtemp(folder);
    return *state == NULL ? -1 : 0;
}

static inline int leave_scratch(void **state)
{
    th_error_clear();
    th__remove_tree(*state);
    free(*state);
    return 0;
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, enter_scratch, leave_scratch)

/* A path in the scratch folder; a few are valid at a time. */
static inline char *scratch(const char *folder, const char *name)
{
    static char paths[8][512];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static inline bool exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

static inline long file_size(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (long)info.st_size : -1;
}

static inline size_t count_files(const char *folder)
{
    th__strings names = {0};
    assert_int_equal(th__list_dir(folder, &names), TH_OK);
    size_t count = names.count;
    th__strings_free(&names);
    return count;
}

static inline unsigned char *slurp(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    long length = file_size(path);
    unsigned char *bytes = malloc((size_t)length + 1);
    assert_int_equal(fread(bytes, 1, (size_t)length, file), length);
    fclose(file);
    *size = (size_t)length;
    return bytes;
}

static inline void spit(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

static inline long resident_kb(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
    if (file != NULL) fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

#endif
