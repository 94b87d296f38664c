/* kill_test.c: processes killed while they save: the file is always a whole one, never older than the last save that was
 * acknowledged, and at most one temporary file remains. The children use the writer without libtorch, so they can be forked in
 * milliseconds. */
#include "checkpoint_support.h"

#include "checkpoint/format/pickle_write.h"
#include "checkpoint/format/torch_file.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

enum { KILLS = 500, STORAGE = 300000 };

/* A checkpoint of generation `n`: its pickle is the number, its storage is filled with the number's bytes. */
static th_status write_generation(const char *path, uint32_t n)
{
    static uint32_t data[STORAGE / 4];
    th__pickler pickle;
    th__atomic_file file;
    th__sink sink;
    th__zip_writer zip;
    for (size_t i = 0; i < STORAGE / 4; i++) data[i] = n;
    th__pickle_begin(&pickle);
    th__pickle_int(&pickle, n);
    th__pickle_end(&pickle);
    if (th__atomic_open(&file, path) != TH_OK) return th__pending();
    th__sink_init(&sink, &file);
    th__zip_begin(&zip, &sink);
    th__zip_add(&zip, "archive/data.pkl", pickle.out.data, pickle.out.size);
    th__zip_add(&zip, "archive/data/0", data, STORAGE);
    th_status status = th__zip_finish(&zip) == TH_OK ? th__atomic_commit(&file) : th__pending();
    th__zip_writer_free(&zip);
    th__sink_free(&sink);
    th__pickle_free(&pickle);
    return status;
}

/* The generation in the file; fails the test when it is not a whole one. */
static uint32_t read_generation(const char *path)
{
    static uint32_t data[STORAGE / 4];
    th__source source;
    th__torch_file file;
    int64_t n = -1;
    if (th__source_open(&source, path) != TH_OK) fail_msg("%s", th_error_message());
    if (th__torch_file_open(&file, &source, 0, source.size) != TH_OK) fail_msg("%s", th_error_message());
    assert_true(th__node_as_int(file.root, &n));
    const th__zip_entry *entry = th__zip_find(&file.zip, "archive/data/0");
    assert_non_null(entry);
    assert_int_equal(entry->size, STORAGE);
    if (th__zip_read(&file.zip, entry, data) != TH_OK) fail_msg("%s", th_error_message());
    for (size_t i = 0; i < STORAGE / 4; i++)
        if (data[i] != (uint32_t)n) fail_msg("generation %d holds a word of generation %u", (int)n, data[i]);
    th__torch_file_close(&file);
    th__source_close(&source);
    return (uint32_t)n;
}

/* Saves one generation after the other until it is killed; tells each that is complete. */
static void child(const char *path, uint32_t n, int told)
{
    for (;; n++) {
        if (write_generation(path, n) != TH_OK) _exit(9);
        if (write(told, &n, sizeof n) != sizeof n) _exit(8);
    }
}

static void test_500_kills(void **state)
{
    char *path = scratch(*state, "model.pt");
    uint32_t newest = 1;
    uint64_t seed = 88172645463325252u;
    size_t during = 0;
    assert_int_equal(write_generation(path, newest), TH_OK);
    for (int kills = 0; kills < KILLS; kills++) {
        int told[2];
        uint32_t n;
        assert_int_equal(pipe(told), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) child(path, newest + 1, told[1]);
        close(told[1]);
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        usleep((useconds_t)(seed % 12000));
        kill(pid, SIGKILL);
        int status;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        assert_true(WIFSIGNALED(status));
        while (read(told[0], &n, sizeof n) == sizeof n) newest = n;
        close(told[0]);
        if (count_files(*state) > 1) during++; /* it died inside a save */
        uint32_t found = read_generation(path);
        if (found < newest || found > newest + 1)
            fail_msg("kill %d: generation %u was acknowledged, %u is in the file", kills, newest, found);
        newest = found;
    }
    assert_true(count_files(*state) <= 2);
    assert_int_equal(write_generation(path, newest + 1), TH_OK);
    assert_int_equal(count_files(*state), 1); /* the next save cleans up */
    print_message("%d kills, %zu of them inside a save, %u generations: none lost, none damaged\n", KILLS, during, newest);
    assert_true(during > KILLS / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(test_500_kills)};
    return cmocka_run_group_tests_name("kill", tests, NULL, NULL);
}
