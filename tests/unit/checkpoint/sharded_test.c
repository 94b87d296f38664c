/* sharded_test.c: sharded folders: written as two ranks would, read back in other pieces, consolidated, exchanged with PyTorch.
 */
#include "checkpoint_python.h"

#include "checkpoint/format/consolidate.h"
#include "checkpoint/internal.h"
#include "checkpoint/sharded.h"

static th_value *path_of(const char *a, const char *b, const char *c, const char *d)
{
    const char *steps[] = {a, b, c, d};
    th_value *path = th_value_tuple();
    for (size_t i = 0; i < 4 && steps[i] != NULL; i++)
        th_value_append(path, strcmp(steps[i], "0") == 0 ? th_value_int(0) : th_value_string(steps[i]));
    return path;
}

static th_tensor *iota(int64_t n, th_ints sizes, th_dtype dtype)
{
    th_tensor *flat = th_call("aten::arange", TH_A_SCALAR(TH_S(n)));
    flat = th_call("aten::to.dtype", TH_A(flat), {.kind = TH_ARG_DTYPE, .v.dtype = dtype});
    return th_call("aten::view", TH_A(flat), TH_A_INTS(sizes));
}

static void add_rows(th__shard *shard, th_value *path, th_tensor *whole, int64_t from, int64_t rows)
{
    int64_t offsets[4] = {from};
    th_tensor *piece = th_call("aten::narrow", TH_A(whole), TH_A_INT(0), TH_A_INT(from), TH_A_INT(rows));
    th_ints sizes = th_sizes(whole);
    assert_int_equal(th__shard_add(shard, path, piece, sizes, (th_ints){offsets, sizes.size}), TH_OK);
    th_value_free(path);
}

static void add_value(th__shard *shard, const char *last, th_value *value)
{
    th_value *path = path_of("optimizer", "param_groups", "0", last);
    assert_int_equal(th__shard_add_value(shard, path, value), TH_OK);
    th_value_free(path);
    th_value_free(value);
}

/* sharded_state() of checkpoint.py, as rank 0 or 1 of 2. */
static th_value *write_rank(const char *folder, int rank, int number)
{
    TH_SCOPE();
    th__shard *shard = th__shard_begin(folder, rank, number);
    assert_non_null(shard);
    th_tensor *weight = iota(20, TH_INTS(5, 4), TH_FLOAT32), *grid = iota(24, TH_INTS(4, 6), TH_INT64);
    add_rows(shard, path_of("model", "layer.weight", NULL, NULL), weight, rank == 0 ? 0 : 3, rank == 0 ? 3 : 2);
    add_rows(shard, path_of("model", "layer.bias", NULL, NULL), iota(7, TH_INTS(7), TH_BFLOAT16), rank == 0 ? 0 : 4,
             rank == 0 ? 4 : 3);
    add_rows(shard, path_of("optimizer", "state", "layer.weight", "exp_avg"),
             th_call("aten::mul.Scalar", TH_A(weight), TH_A_SCALAR(TH_S(2))), rank == 0 ? 0 : 3, rank == 0 ? 3 : 2);
    for (int64_t half = 0; half < 2; half++) { /* tensor parallelism: four corners */
        th_tensor *corner = th_call("aten::narrow", TH_A(grid), TH_A_INT(0), TH_A_INT(rank * 2), TH_A_INT(2));
        corner = th_call("aten::narrow", TH_A(corner), TH_A_INT(1), TH_A_INT(half * 3), TH_A_INT(3));
        th_value *path = path_of("model", "grid", NULL, NULL);
        assert_int_equal(th__shard_add(shard, path, corner, TH_INTS(4, 6), TH_INTS(rank * 2, half * 3)), TH_OK);
        th_value_free(path);
    }
    if (rank == 0) {
        th_value *path = path_of("model", "empty", NULL, NULL);
        assert_int_equal(
            th__shard_add(shard, path, th_call("aten::zeros", TH_A_INTS(TH_INTS(0, 3))), TH_INTS(0, 3), TH_INTS(0, 0)), TH_OK);
        th_value_free(path);
        path = path_of("optimizer", "state", "layer.weight", "step");
        assert_int_equal(th__shard_add(shard, path, th_tensor_scalar(TH_S(5.0), TH_FLOAT32), TH_NO_INTS, TH_NO_INTS), TH_OK);
        th_value_free(path);
        th_value *betas = th_value_tuple(), *params = th_value_list();
        th_value_append(betas, th_value_double(0.9));
        th_value_append(betas, th_value_double(0.999));
        th_value_append(params, th_value_string("layer.weight"));
        th_value_append(params, th_value_string("layer.bias"));
        add_value(shard, "lr", th_value_double(0.1));
        add_value(shard, "betas", betas);
        add_value(shard, "params", params);
    }
    th_value *part = th__shard_end(shard);
    assert_non_null(part);
    return part;
}

static th_value *extra(int64_t epoch)
{
    TH_SCOPE();
    th_value *meta = th_value_dict(), *pair = th_value_list();
    th_tensor *base = iota(4, TH_INTS(4), TH_FLOAT32);
    th_value_append(pair, th_value_tensor(base));
    th_value_append(pair, th_value_tensor(th_call("aten::narrow", TH_A(base), TH_A_INT(0), TH_A_INT(1), TH_A_INT(3))));
    th_value_set(meta, "epoch", th_value_int(epoch));
    th_value_set(meta, "name", th_value_string("caf\xc3\xa9"));
    th_value_set(meta, "rng", th_value_tensor(iota(5, TH_INTS(5), TH_UINT8)));
    th_value_set(meta, "pair", pair);
    return meta;
}

static void save(const char *folder, int64_t epoch)
{
    int number = th__shards_next(folder);
    assert_true(number >= 0);
    th_value *parts = th_value_list(), *meta = extra(epoch);
    for (int rank = 0; rank < 2; rank++) th_value_append(parts, write_rank(folder, rank, number));
    assert_int_equal(th__shards_commit(folder, parts, meta), TH_OK);
    th_value_free(parts);
    th_value_free(meta);
}

static void check_shards(const char *folder)
{
    TH_SCOPE();
    th__shards *shards = th__shards_open(folder);
    if (shards == NULL) fail_msg("%s", th_error_message());
    th_dtype dtype;
    th_ints sizes;
    assert_true(th__shards_info(shards, "model.layer.weight", &dtype, &sizes));
    assert_int_equal(dtype, TH_FLOAT32);
    assert_int_equal(sizes.size, 2);
    assert_false(th__shards_info(shards, "model.absent", &dtype, &sizes));
    /* a piece across the two ranks' border */
    th_tensor *piece = th__shards_read(shards, "model.layer.weight", TH_INTS(2, 1), TH_INTS(2, 3));
    assert_non_null(piece);
    const float *w = th_data_ptr(piece);
    const float expected[6] = {9, 10, 11, 13, 14, 15};
    assert_memory_equal(w, expected, sizeof expected);
    /* every box of the grid, against its formula */
    for (int64_t top = 0; top < 4; top++)
        for (int64_t left = 0; left < 6; left++)
            for (int64_t height = 1; top + height <= 4; height++)
                for (int64_t width = 1; left + width <= 6; width += 2) {
                    const int64_t *g =
                        th_data_ptr(th__shards_read(shards, "model.grid", TH_INTS(top, left), TH_INTS(height, width)));
                    for (int64_t i = 0; i < height * width; i++) assert_int_equal(g[i], (top + i / width) * 6 + left + i % width);
                }
    assert_int_equal(th_size(th__shards_read(shards, "model.empty", TH_INTS(0, 0), TH_INTS(0, 3)), 1), 3);
    assert_true(th_item(th__shards_read(shards, "optimizer.state.layer.weight.step", TH_NO_INTS, TH_NO_INTS)) == 5.0);
    th_value *lr = th__shards_value(shards, "optimizer.param_groups.0.lr");
    assert_true(th_value_as_double(lr, 0) == 0.1);
    th_value_free(lr);
    assert_null(th__shards_read(shards, "model.layer.weight", TH_INTS(4, 0), TH_INTS(2, 4)));
    th_error_clear();
    th__shards_close(shards);
}

static void test_written_and_read_in_other_pieces(void **state)
{
    char *folder = scratch(*state, "sharded");
    save(folder, 3);
    assert_int_equal(count_files(folder), 4); /* exactly meta.pt, .metadata and two shard files */
    assert_int_equal(th__checkpoint_kind_of(folder), TH__CHECKPOINT_SHARDED);
    check_shards(folder);
    th_value *meta = th__shards_meta(folder);
    assert_int_equal(th_value_as_int(th_value_get(meta, "epoch"), 0), 3);
    th_value_free(meta);
}

static void test_saving_again_keeps_foreign_files_and_removes_old_shards(void **state)
{
    char *folder = scratch(*state, "again");
    save(folder, 1);
    char note[600];
    snprintf(note, sizeof note, "%s/notes.txt", folder);
    spit(note, "mine", 4);
    for (int64_t i = 2; i < 5; i++) {
        save(folder, i);
        assert_int_equal(count_files(folder), 5);
        check_shards(folder);
    }
    assert_true(exists(note));
    assert_int_equal(th__checkpoint_prepare(folder, false), TH_ERR_IO); /* a full file would remove notes.txt */
    th_error_clear();
    assert_true(exists(note));
    unlink(note);
    assert_int_equal(th__checkpoint_prepare(folder, false), TH_OK);
    assert_false(exists(folder));
}

static void test_an_interrupted_save_leaves_the_old_checkpoint(void **state)
{
    char *folder = scratch(*state, "interrupted");
    save(folder, 1);
    th_value_free(write_rank(folder, 0, th__shards_next(folder))); /* rank 1 and the commit never came */
    check_shards(folder);
    save(folder, 2);
    check_shards(folder);
    assert_int_equal(count_files(folder), 4);
    /* and the first save of all: not a checkpoint yet */
    char *fresh = scratch(*state, "fresh");
    th_value_free(write_rank(fresh, 0, 0));
    assert_null(th__shards_open(fresh));
    assert_non_null(strstr(th_error_message(), "does not point to a valid checkpoint"));
    th_error_clear();
}

static void test_full_over_sharded_and_back(void **state)
{
    char *path = scratch(*state, "either");
    assert_int_equal(th__checkpoint_prepare(path, true), TH_OK);
    save(path, 1);
    assert_int_equal(th__checkpoint_prepare(path, false), TH_OK);
    th_value *one = th_value_int(1);
    assert_int_equal(th_save(one, path), TH_OK);
    th_value_free(one);
    assert_int_equal(th__checkpoint_kind_of(path), TH__CHECKPOINT_FILE);
    assert_int_equal(th__checkpoint_prepare(path, true), TH_OK);
    save(path, 2);
    check_shards(path);
    char *plain = scratch(*state, "plain");
    assert_int_equal(mkdir(plain, 0777), 0);
    assert_int_equal(th__checkpoint_prepare(plain, false), TH_ERR_IO);
    assert_non_null(strstr(th_error_message(), "is a directory"));
    th_error_clear();
    assert_int_equal(th__checkpoint_prepare(plain, true), TH_OK);
}

static void test_consolidated(void **state)
{
    char *folder = scratch(*state, "sharded"), *output = scratch(*state, "sharded.consolidated");
    save(folder, 3);
    if (th__consolidate(folder, output) != TH_OK) fail_msg("%s", th_error_message());
    th_value *all = th_load(output);
    if (all == NULL) fail_msg("%s", th_error_message());
    assert_int_equal(th_value_size(all), 6);
    th_value *model = th_value_get(all, "model"), *pair = th_value_get(all, "pair");
    const int64_t *grid = th_data_ptr(th_value_as_tensor(th_value_get(model, "grid")));
    for (int i = 0; i < 24; i++) assert_int_equal(grid[i], i);
    assert_int_equal(th_value_as_int(th_value_get(all, "epoch"), 0), 3);
    assert_ptr_equal(th_storage_id(th_value_as_tensor(th_value_at(pair, 0))),
                     th_storage_id(th_value_as_tensor(th_value_at(pair, 1))));
    th_value *group = th_value_at(th_value_get(th_value_get(all, "optimizer"), "param_groups"), 0);
    assert_int_equal(th_value_size(th_value_get(group, "params")), 2);
    th_value_free(all);
}

static void test_python_reads_ours(void **state)
{
    char *folder = scratch(*state, "ours"), *output = scratch(*state, "ours.consolidated");
    save(folder, 3);
    assert_int_equal(th__consolidate(folder, output), TH_OK);
    run_script("sharded_read", folder);
}

static void test_we_read_pythons(void **state)
{
    char *folder = scratch(*state, "theirs"), *output = scratch(*state, "theirs.consolidated");
    run_script("sharded_write", folder);
    check_shards(folder);
    if (th__consolidate(folder, output) != TH_OK) fail_msg("%s", th_error_message());
    run_script("sharded_consolidated", folder);
}

static void test_damage_is_found(void **state)
{
    char *folder = scratch(*state, "damaged"), *output = scratch(*state, "damaged.out"),
         *data = scratch(*state, "damaged/__1_0.distcp");
    char *index = scratch(*state, "damaged/.metadata");
    save(folder, 3);
    size_t size, n_index;
    unsigned char *bytes = slurp(data, &size), *index_bytes = slurp(index, &n_index);
    for (size_t at = 7; at < size; at += 97) { /* a bit anywhere in a shard */
        bytes[at] ^= 4;
        spit(data, bytes, size);
        if (th__consolidate(folder, output) == TH_OK) fail_msg("the bit in byte %zu of %zu was not noticed", at, size);
        th_error_clear();
        bytes[at] ^= 4;
    }
    spit(data, bytes, size - 100);
    assert_int_equal(th__consolidate(folder, output), TH_ERR_DATA);
    assert_non_null(strstr(th_error_message(), "truncated"));
    th_error_clear();
    spit(data, bytes, size);
    for (size_t n = 0; n < n_index; n += 13) { /* a cut index */
        spit(index, index_bytes, n);
        assert_int_equal(th__consolidate(folder, output), TH_ERR_DATA);
        th_error_clear();
    }
    for (size_t at = 0; at < n_index; at++) { /* a garbled one: no signal */
        index_bytes[at] ^= 0x55;
        spit(index, index_bytes, n_index);
        th__shards *shards = th__shards_open(folder);
        th__shards_close(shards);
        th_error_clear();
        index_bytes[at] ^= 0x55;
    }
    spit(index, index_bytes, n_index);
    unlink(data);
    assert_int_equal(th__consolidate(folder, output), TH_ERR_NOT_FOUND);
    th_error_clear();
    assert_false(exists(output));
    unlink(index);
    assert_null(th__shards_open(folder));
    assert_non_null(strstr(th_error_message(), "incomplete"));
    free(bytes);
    free(index_bytes);
}

/* ---------------------------------------------------------------- the command */

static int run_command(const char *arguments, char *output, size_t size)
{
    char command[1500];
    snprintf(command, sizeof command, "'%s/bin/fabric' consolidate %s 2>&1", TEST_BINARY_DIR, arguments);
    FILE *pipe = popen(command, "r");
    size_t n = fread(output, 1, size - 1, pipe);
    output[n] = '\0';
    return WEXITSTATUS(pclose(pipe));
}

static void test_command(void **state)
{
    char text[4096], arguments[1200], *folder = scratch(*state, "cli"), *file = scratch(*state, "file");
    if (!exists(TEST_BINARY_DIR "/bin/fabric")) {
        print_message("skipped: the program is not built\n");
        skip();
    }
    snprintf(arguments, sizeof arguments, "'%s'", folder);
    assert_int_equal(run_command(arguments, text, sizeof text), 1);
    assert_non_null(strstr(text, "The provided checkpoint folder does not exist"));
    spit(file, "x", 1);
    snprintf(arguments, sizeof arguments, "'%s'", file);
    assert_int_equal(run_command(arguments, text, sizeof text), 1);
    assert_non_null(strstr(text, "must be a folder"));
    assert_int_equal(mkdir(folder, 0777), 0);
    snprintf(arguments, sizeof arguments, "'%s'", folder);
    assert_int_equal(run_command(arguments, text, sizeof text), 1);
    assert_non_null(strstr(text, "not in that format"));
    save(folder, 3);
    snprintf(arguments, sizeof arguments, "'%s/'", folder); /* the slash is not part of the name */
    if (run_command(arguments, text, sizeof text) != 0) fail_msg("%s", text);
    assert_true(exists(scratch(*state, "cli.consolidated")));
    assert_int_equal(run_command(arguments, text, sizeof text), 1);
    assert_non_null(strstr(text, "already exists"));
    snprintf(arguments, sizeof arguments, "--output_file='%s' '%s'", scratch(*state, "other.pt"), folder);
    if (run_command(arguments, text, sizeof text) != 0) fail_msg("%s", text);
    assert_true(exists(scratch(*state, "other.pt")));
    assert_int_equal(run_command("", text, sizeof text), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_written_and_read_in_other_pieces),
        CASE(test_saving_again_keeps_foreign_files_and_removes_old_shards),
        CASE(test_an_interrupted_save_leaves_the_old_checkpoint),
        CASE(test_full_over_sharded_and_back),
        CASE(test_consolidated),
        CASE(test_python_reads_ours),
        CASE(test_we_read_pythons),
        CASE(test_damage_is_found),
        CASE(test_command),
    };
    return cmocka_run_group_tests_name("sharded", tests, NULL, NULL);
}
