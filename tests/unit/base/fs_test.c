/* Paths, folders, atomic files under every failure that can be provoked here. */
#include "base/error.h"
#include "base/fs.h"
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static char folder[] = "/tmp/cfabric-fs-XXXXXX";
static char path_buffer[256];
static const char *in(const char *name)
{
    snprintf(path_buffer, sizeof path_buffer, "%s/%s", folder, name);
    return path_buffer;
}

static int enter(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/cfabric-fs-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int leave(void **state)
{
    (void)state;
    th_error_clear();
    return th__remove_tree(folder) != TH_OK || th__path_exists(folder);
}

static void expect_file(const char *name, const char *text)
{
    size_t size = 0;
    char *got = th__read_file(in(name), &size);
    assert_non_null(got);
    assert_string_equal(got, text);
    assert_int_equal(size, strlen(text));
    free(got);
}

static size_t entries(void)
{
    th__strings names = {0};
    assert_int_equal(th__list_dir(folder, &names), TH_OK);
    size_t count = names.count;
    th__strings_free(&names);
    return count;
}

static void expect_text(char *got, const char *expected)
{
    assert_string_equal(got, expected);
    free(got);
}

static void handles_paths(void **state)
{
    (void)state;
    expect_text(th__path_join("a", "b"), "a/b");
    expect_text(th__path_join("a/", "b"), "a/b");
    expect_text(th__path_join("a", "/b"), "/b");
    expect_text(th__path_join("", "b"), "b");
    expect_text(th__path_dir("a/b"), "a");
    expect_text(th__path_dir("a//b"), "a");
    expect_text(th__path_dir("b"), ".");
    expect_text(th__path_dir("/b"), "/");
    assert_string_equal(th__path_base("x/y.pt"), "y.pt");
    char *absolute = th__path_absolute("x");
    assert_int_equal(absolute[0], '/');
    free(absolute);
}

static void makes_and_removes_trees(void **state)
{
    (void)state;
    assert_int_equal(th__mkdirs(in("a/b/c")), TH_OK);
    assert_int_equal(th__mkdirs(in("a/b/c/")), TH_OK);
    assert_true(th__is_dir(in("a/b/c")));
    assert_int_equal(th__write_file(in("a/b/f"), "x", 1), TH_OK);
    assert_int_equal(th__mkdirs(in("a/b/f/g")), TH_ERR_IO);
    assert_non_null(strstr(th_error_message(), "a/b/f'"));
    assert_non_null(strstr(th_error_message(), "in the way"));
    th_error_clear();
    assert_int_equal(th__write_file(in("outside"), "keep", 4), TH_OK);
    char *target = strdup(in("outside"));
    assert_int_equal(symlink(target, in("a/link")), 0);
    free(target);
    assert_int_equal(th__remove_tree(in("a")), TH_OK);
    assert_false(th__path_exists(in("a")));
    expect_file("outside", "keep"); /* links are not followed */
    assert_int_equal(th__remove_tree(in("a")), TH_OK);
}

static void reads_whole_files(void **state)
{
    (void)state;
    assert_null(th__read_file(in("none"), NULL));
    assert_int_equal(th_error_clear(), TH_ERR_NOT_FOUND);
    assert_null(th__read_file(folder, NULL));
    assert_int_equal(th_error_clear(), TH_ERR_IO);
    size_t size = 0;
    char *status = th__read_file("/proc/self/status", &size);
    assert_non_null(status);
    assert_true(size > 100);
    free(status);
}

static void replaces_atomically(void **state)
{
    (void)state;
    assert_int_equal(th__write_file(in("deep/er/f"), "one", 3), TH_OK);
    expect_file("deep/er/f", "one");
    assert_int_equal(th__write_file(in("f"), "old", 3), TH_OK);
    assert_int_equal(chmod(in("f"), 0640), 0);
    assert_int_equal(symlink("f", in("link")), 0);
    th__atomic_file file;
    assert_int_equal(th__atomic_open(&file, in("link")), TH_OK);
    assert_int_equal(th__atomic_write(&file, "new", 3), TH_OK);
    expect_file("f", "old"); /* until the commit */
    assert_true(th__is_temporary_name(th__path_base(file.temp)));
    assert_int_equal(th__atomic_pwrite(&file, "N", 1, 0), TH_OK);
    assert_int_equal(th__atomic_commit(&file), TH_OK);
    expect_file("f", "New");
    expect_file("link", "New");
    struct stat info;
    assert_int_equal(lstat(in("link"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(stat(in("f"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    assert_int_equal(entries(), 3); /* deep, f, link: no temporary */
    th__atomic_abort(&file);        /* idempotent */
}

static void leaves_the_old_file_on_failure(void **state)
{
    (void)state;
    assert_int_equal(th__write_file(in("f"), "old", 3), TH_OK);
    th__atomic_file file;
    assert_int_equal(th__atomic_open(&file, in("f")), TH_OK);
    assert_int_equal(th__atomic_write(&file, "half", 4), TH_OK);
    th__fail(TH_ERR_VALUE, "test", "something went wrong between");
    assert_int_equal(th__atomic_commit(&file), TH_ERR_VALUE);
    th_error_clear();
    expect_file("f", "old");
    assert_int_equal(entries(), 1);
    assert_int_equal(th__atomic_open(&file, folder), TH_ERR_IO);
    assert_non_null(strstr(th_error_message(), "is a folder"));
    th_error_clear();
    assert_int_equal(th__atomic_open(&file, "/dev/null"), TH_ERR_IO);
    th_error_clear();
    assert_int_equal(th__atomic_open(&file, "/proc/none/f"), TH_ERR_IO);
    th_error_clear();
}

static void reports_a_full_disk(void **state)
{
    (void)state;
    struct rlimit before, small = {1000, RLIM_INFINITY};
    assert_int_equal(th__write_file(in("f"), "old", 3), TH_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    char *big = calloc(1, 4000);
    th_status status = th__write_file(in("f"), big, 4000); /* SIGXFSZ must not end this program */
    setrlimit(RLIMIT_FSIZE, &before);
    free(big);
    assert_int_equal(status, TH_ERR_IO);
    assert_non_null(strstr(th_error_message(), "File too large"));
    th_error_clear();
    expect_file("f", "old");
    assert_int_equal(entries(), 1);
    sigset_t pending;
    sigpending(&pending);
    assert_false(sigismember(&pending, SIGXFSZ));
}

static void removes_what_killed_writers_left(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) { /* a writer that dies in the middle */
        th__atomic_file file;
        if (th__atomic_open(&file, in("f")) == TH_OK) th__atomic_write(&file, "half", 4);
        kill(getpid(), SIGKILL);
    }
    int code;
    waitpid(child, &code, 0);
    assert_true(WIFSIGNALED(code));
    assert_int_equal(entries(), 1);
    th__atomic_file other, mine;
    assert_int_equal(th__atomic_open(&other, in("f.2")), TH_OK); /* another target: not its business */
    assert_int_equal(entries(), 2);
    assert_int_equal(th__remove_stale_temporaries(folder, "g"), 0);
    assert_int_equal(th__atomic_open(&mine, in("f")), TH_OK); /* cleans up, and leaves the living writer alone */
    assert_int_equal(entries(), 2);
    assert_int_equal(th__remove_stale_temporaries(folder, NULL), 0);
    assert_int_equal(th__atomic_commit(&mine), TH_OK);
    assert_int_equal(th__atomic_commit(&other), TH_OK);
    assert_int_equal(entries(), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(handles_paths, enter, leave),
        cmocka_unit_test_setup_teardown(makes_and_removes_trees, enter, leave),
        cmocka_unit_test_setup_teardown(reads_whole_files, enter, leave),
        cmocka_unit_test_setup_teardown(replaces_atomically, enter, leave),
        cmocka_unit_test_setup_teardown(leaves_the_old_file_on_failure, enter, leave),
        cmocka_unit_test_setup_teardown(reports_a_full_disk, enter, leave),
        cmocka_unit_test_setup_teardown(removes_what_killed_writers_left, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
