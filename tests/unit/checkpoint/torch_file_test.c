/* torch_file_test.c: th_save and th_load without Python: every kind of value and tensor, sharing, damage of every kind. */
#include "checkpoint_support.h"

#include <math.h>
#include <sys/resource.h>

/* ---------------------------------------------------------------- round trips */

static void test_values_round_trip(void **state)
{
    char *path = scratch(*state, "values.pt");
    th_value *nested = th_value_dict(), *list = th_value_list(), *tuple = th_value_tuple();
    th_value_append(list, th_value_int(1));
    th_value_append(list, th_value_none());
    th_value_append(tuple, th_value_double(-0.0));
    th_value_append(tuple, th_value_bool(true));
    th_value_set(nested, "list", list);
    th_value_set(nested, "tuple", tuple);
    th_value_set(nested, "empty", th_value_dict());
    th_value_set_int(nested, -7, th_value_string("seven"));
    th_value_set_int(nested, INT64_MIN, th_value_int(INT64_MAX));
    th_value_set(nested, "bytes", th_value_bytes("\0\x7f\x80\xff", 4));
    th_value_set(nested, "text", th_value_string("caf\xc3\xa9 \xe2\x82\xac"));
    th_value_set(nested, "inf", th_value_double(INFINITY));
    th_value_set(nested, "byte", th_value_int(255));
    th_value_set(nested, "word", th_value_int(65536));
    th_value_set(nested, "big", th_value_int(INT64_C(1) << 40));
    assert_int_equal(th_save(nested, path), TH_OK);
    th_value *back = th_load(path);
    assert_non_null(back);
    assert_true(th_value_equal(nested, back));
    assert_true(signbit(th_value_as_double(th_value_at(th_value_get(back, "tuple"), 0), 1.0)));
    assert_int_equal(th_value_as_int(th_value_get_int(back, INT64_MIN), 0), INT64_MAX);
    th_value_free(nested);
    th_value_free(back);
}

static void test_every_dtype(void **state)
{
    static const th_dtype dtypes[] = {TH_UINT8,   TH_INT8,    TH_INT16,     TH_INT32,      TH_INT64, TH_FLOAT16,
                                      TH_FLOAT32, TH_FLOAT64, TH_COMPLEX64, TH_COMPLEX128, TH_BOOL,  TH_BFLOAT16};
    char *path = scratch(*state, "dtypes.pt");
    TH_SCOPE();
    th_value *all = th_value_dict();
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        unsigned char bytes[6 * 16];
        for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = dtypes[i] == TH_BOOL ? k % 2 : (unsigned char)(k * 37 % 120);
        th_value_set(all, th_dtype_name(dtypes[i]), th_value_tensor(th_tensor_from(bytes, TH_INTS(2, 3), dtypes[i])));
    }
    th_value_set(all, "scalar", th_value_tensor(th_tensor_scalar(TH_S(2.5), TH_FLOAT32)));
    th_value_set(all, "none", th_value_tensor(th_tensor_from("", TH_INTS(2, 0), TH_FLOAT32)));
    assert_int_equal(th_save(all, path), TH_OK);
    th_value *back = th_load(path);
    assert_non_null(back);
    assert_true(th_value_equal(all, back));
    th_value_free(all);
    th_value_free(back);
}

static void test_sharing_and_strides_are_kept(void **state)
{
    char *path = scratch(*state, "sharing.pt");
    TH_SCOPE();
    float data[12];
    for (int i = 0; i < 12; i++) data[i] = (float)i;
    th_tensor *base = th_tensor_from(data, TH_INTS(3, 4), TH_FLOAT32);
    th_tensor *column = th_call("aten::select.int", TH_A(base), TH_A_INT(1), TH_A_INT(2));
    th_tensor *flipped = th_call("aten::t", TH_A(base));
    th_value *v = th_value_dict();
    th_value_set(v, "column", th_value_tensor(column));
    th_value_set(v, "base", th_value_tensor(base));
    th_value_set(v, "t", th_value_tensor(flipped));
    th_value_set(v, "again", th_value_tensor(base));
    assert_int_equal(th_save(v, path), TH_OK);
    th_value *back = th_load(path);
    assert_non_null(back);
    assert_true(th_value_equal(v, back));
    th_tensor *c = th_value_as_tensor(th_value_get(back, "column")), *b = th_value_as_tensor(th_value_get(back, "base"));
    th_tensor *t = th_value_as_tensor(th_value_get(back, "t"));
    assert_ptr_equal(th_storage_id(c), th_storage_id(b));
    assert_ptr_equal(th_storage_id(t), th_storage_id(b));
    assert_int_equal(th_stride(c, 0), 4);
    assert_int_equal(th_storage_offset(c), 2);
    assert_int_equal(th_stride(t, 1), 4);
    ((float *)th_data_ptr(b))[2] = 99.0f; /* really the same memory */
    assert_true(((float *)th_data_ptr(c))[0] == 99.0f);
    th_value_free(v);
    th_value_free(back);
}

static void test_a_view_saves_no_more_than_it_reaches(void **state)
{
    char *path = scratch(*state, "view.pt");
    TH_SCOPE();
    th_tensor *big = th_call("aten::zeros", TH_A_INTS(TH_INTS(1000000)));
    th_value *v = th_value_tensor(th_call("aten::narrow", TH_A(big), TH_A_INT(0), TH_A_INT(10), TH_A_INT(5)));
    assert_int_equal(th_save(v, path), TH_OK);
    assert_true(file_size(path) < 4096);
    th_value *back = th_load(path);
    assert_true(th_value_equal(v, back));
    assert_int_equal(th_storage_offset(th_value_as_tensor(back)), 10);
    th_value_free(v);
    th_value_free(back);
}

static void test_requires_grad_is_kept_and_loaded_tensors_train(void **state)
{
    char *path = scratch(*state, "grad.pt");
    TH_SCOPE();
    th_tensor *w = th_requires_grad_(th_call("aten::ones", TH_A_INTS(TH_INTS(3))), true);
    th_value *v = th_value_tensor(w);
    assert_int_equal(th_save(v, path), TH_OK);
    th_value *back = th_load(path);
    th_tensor *t = th_value_as_tensor(back);
    assert_true(th_requires_grad(t));
    assert_true(th_is_leaf_of(t));
    assert_int_equal(th_backward(th_call("aten::sum", TH_A(t))), TH_OK);
    assert_true(th_item(th_call("aten::sum", TH_A(th_grad(t)))) == 3.0);
    th_value_free(v);
    th_value_free(back);
}

static void test_lazily_conjugated_tensors_are_saved_resolved(void **state)
{
    char *path = scratch(*state, "conj.pt");
    TH_SCOPE();
    double data[4] = {1, 2, 3, 4};
    th_tensor *z = th_call("aten::conj", TH_A(th_tensor_from(data, TH_INTS(2), TH_COMPLEX128)));
    th_value *v = th_value_tensor(z);
    assert_int_equal(th_save(v, path), TH_OK);
    th_value *back = th_load(path);
    assert_true(((double *)th_data_ptr(th_value_as_tensor(back)))[1] == -2.0);
    th_value_free(v);
    th_value_free(back);
}

/* ---------------------------------------------------------------- what cannot be saved */

static th_value *give_nothing(void *object)
{
    (void)object;
    return th_value_none();
}

static void test_what_cannot_be_saved(void **state)
{
    char *path = scratch(*state, "never.pt");
    TH_SCOPE();
    static const th_stateful ops = {sizeof ops, "thing", give_nothing, NULL};
    th_value *v = th_value_object(&ops, NULL);
    assert_int_equal(th_save(v, path), TH_ERR_TYPE);
    assert_non_null(strstr(th_error_message(), "thing"));
    th_error_clear();
    th_value_free(v);
    v = th_value_string("\xff");
    assert_int_equal(th_save(v, path), TH_ERR_VALUE);
    th_error_clear();
    th_value_free(v);
    assert_false(exists(path)); /* and no file is left behind */
    assert_int_equal(count_files(*state), 0);
}

/* ---------------------------------------------------------------- damage */

static th_value *small_state(void)
{
    TH_SCOPE();
    th_value *v = th_value_dict();
    float data[40];
    for (int i = 0; i < 40; i++) data[i] = (float)i * 1.5f;
    th_value_set(v, "weight", th_value_tensor(th_tensor_from(data, TH_INTS(4, 5), TH_FLOAT32)));
    th_value_set(v, "bias", th_value_tensor(th_tensor_from(data, TH_INTS(40), TH_BFLOAT16)));
    th_value_set(v, "epoch", th_value_int(3));
    return v;
}

static void test_every_truncation_is_an_error(void **state)
{
    char *path = scratch(*state, "whole.pt"), *cut = scratch(*state, "cut.pt");
    th_value *v = small_state();
    assert_int_equal(th_save(v, path), TH_OK);
    size_t size;
    unsigned char *bytes = slurp(path, &size);
    for (size_t n = 0; n < size; n++) {
        spit(cut, bytes, n);
        assert_null(th_load(cut));
        assert_int_equal(th_error(), TH_ERR_DATA);
        assert_non_null(strstr(th_error_message(), "cut.pt"));
        th_error_clear();
    }
    free(bytes);
    th_value_free(v);
}

static void test_every_flipped_bit_is_found(void **state)
{
    char *path = scratch(*state, "whole.pt"), *hurt = scratch(*state, "hurt.pt");
    th_value *v = small_state();
    assert_int_equal(th_save(v, path), TH_OK);
    size_t size;
    unsigned char *bytes = slurp(path, &size);
    for (size_t bit = 0; bit < size * 8; bit++) { /* all of them: some 14,000 */
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        spit(hurt, bytes, size);
        th_value *back = th_load(hurt);
        if (back != NULL) fail_msg("bit %zu of byte %zu of %zu was not noticed", bit % 8, bit / 8, size);
        th_error_clear();
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    free(bytes);
    th_value_free(v);
}

static void test_random_garbage_never_crashes(void **state)
{
    char *path = scratch(*state, "whole.pt"), *hurt = scratch(*state, "hurt.pt");
    th_value *v = small_state();
    assert_int_equal(th_save(v, path), TH_OK);
    size_t size;
    unsigned char *bytes = slurp(path, &size), *copy = malloc(size);
    uint64_t seed = 88172645463325252u;
    for (int round = 0; round < 2000; round++) {
        memcpy(copy, bytes, size);
        for (int k = 0; k < 8; k++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            copy[seed % size] = (unsigned char)(seed >> 32);
        }
        spit(hurt, copy, size);
        th_value_free(th_load(hurt));
        th_error_clear();
    }
    free(bytes);
    free(copy);
    th_value_free(v);
}

static void test_impostors_are_named(void **state)
{
    static const struct {
        const char *contents;
        size_t size;
        const char *says;
    } cases[] = {
        {"", 0, "empty"},
        {"<!DOCTYPE html>\n<html><body>Sign in</body></html>", 49, "HTML"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 3\n", 63, "Git LFS"},
        {"hello, this is only text\n", 25, "text file"},
        {"\x1f\x8b\x08\0\0\0\0\0\0\0\0\0", 12, "gzip"},
        {"\x80\x02}q\x00.", 6, "not one that torch.save wrote"},
        {"PK\x03\x04rest", 8, "too short"},
        {"\x01\x02\x03\x04\x05\x06\x07\x08\x09", 9, "not a checkpoint"},
    };
    char *path = scratch(*state, "impostor.pt");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spit(path, cases[i].contents, cases[i].size);
        assert_null(th_load(path));
        assert_int_equal(th_error(), TH_ERR_DATA);
        if (strstr(th_error_message(), cases[i].says) == NULL) fail_msg("%zu: %s", i, th_error_message());
        th_error_clear();
    }
    assert_null(th_load(scratch(*state, "absent.pt")));
    assert_int_equal(th_error(), TH_ERR_NOT_FOUND);
    th_error_clear();
    assert_null(th_load(*state));
    assert_non_null(strstr(th_error_message(), "folder"));
    th_error_clear();
}

/* Large files are read by several threads; they find damage as well, and say it once. */
static void test_large_files(void **state)
{
    char *path = scratch(*state, "large.pt");
    int threads = th_get_num_threads();
    th_set_num_threads(3);
    TH_SCOPE();
    th_value *v = th_value_list();
    for (int i = 0; i < 12; i++)
        th_value_append(v, th_value_tensor(th_call("aten::full", TH_A_INTS(TH_INTS(1 << 20)), TH_A_SCALAR(TH_S((double)i)))));
    th_value_append(v, th_value_tensor(th_value_as_tensor(th_value_at(v, 3))));
    assert_int_equal(th_save(v, path), TH_OK);
    th_value *back = th_load(path);
    assert_true(th_value_equal(v, back));
    assert_ptr_equal(th_storage_id(th_value_as_tensor(th_value_at(back, 3))),
                     th_storage_id(th_value_as_tensor(th_value_at(back, 12))));
    th_value_free(back);
    FILE *file = fopen(path, "r+b");
    fseek(file, 30 << 20, SEEK_SET);
    fputc(1, file);
    fclose(file);
    assert_null(th_load(path));
    assert_int_equal(th_error(), TH_ERR_DATA);
    assert_non_null(strstr(th_error_message(), "archive/data/7"));
    th_error_clear();
    th_value_free(v);
    th_set_num_threads(threads);
}

/* ---------------------------------------------------------------- full disks and the like */

static void test_file_size_limit(void **state)
{
    char *path = scratch(*state, "limited.pt");
    th_value *v = small_state();
    assert_int_equal(th_save(v, path), TH_OK);
    TH_SCOPE();
    th_value_set(v, "large", th_value_tensor(th_call("aten::zeros", TH_A_INTS(TH_INTS(1 << 20)))));
    struct rlimit old, low;
    getrlimit(RLIMIT_FSIZE, &old);
    low = old;
    low.rlim_cur = 1 << 20;
    setrlimit(RLIMIT_FSIZE, &low);
    th_status status = th_save(v, path);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(status, TH_ERR_IO);
    th_error_clear();
    assert_int_equal(count_files(*state), 1); /* no temporary */
    th_value *back = th_load(path);           /* the old one is whole */
    assert_non_null(back);
    assert_null(th_value_get(back, "large"));
    assert_int_equal(th_save(v, path), TH_OK); /* and life goes on */
    th_value_free(back);
    th_value_free(v);
}

static void test_folders_are_made_and_folders_are_refused(void **state)
{
    char *deep = scratch(*state, "a/b/c.pt");
    th_value *v = small_state();
    assert_int_equal(th_save(v, deep), TH_OK);
    assert_true(exists(deep));
    assert_int_equal(th_save(v, *state), TH_ERR_IO);
    th_error_clear();
    assert_int_equal(th_save(v, "/proc/never/x.pt"), TH_ERR_IO);
    th_error_clear();
    assert_int_equal(th_save(v, "/dev/full"), TH_ERR_IO);
    th_error_clear();
    assert_int_equal(th_save(v, ""), TH_ERR_VALUE);
    th_error_clear();
    th_value_free(v);
}

static void test_read_only_folder(void **state)
{
    char *path = scratch(*state, "kept.pt");
    th_value *v = small_state();
    assert_int_equal(th_save(v, path), TH_OK);
    if (geteuid() == 0) {
        print_message("skipped: root may write anywhere\n");
        th_value_free(v);
        skip();
    }
    chmod(*state, 0555);
    assert_int_equal(th_save(v, path), TH_ERR_IO);
    chmod(*state, 0755);
    th_error_clear();
    th_value *back = th_load(path);
    assert_true(th_value_equal(v, back));
    th_value_free(back);
    th_value_free(v);
}

static void test_loading_does_not_leak(void **state)
{
    char *path = scratch(*state, "flat.pt");
    TH_SCOPE();
    th_value *v = th_value_tensor(th_call("aten::ones", TH_A_INTS(TH_INTS(1 << 18))));
    assert_int_equal(th_save(v, path), TH_OK);
    size_t live = th_scope_live();
    for (int i = 0; i < 50; i++) th_value_free(th_load(path));
    long before = resident_kb();
    for (int i = 0; i < 950; i++) th_value_free(th_load(path));
    assert_true(resident_kb() - before < 4096); /* a single leaked megabyte per load would be 950 */
    assert_int_equal(th_scope_live(), live);
    th_value_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_values_round_trip),
        CASE(test_every_dtype),
        CASE(test_sharing_and_strides_are_kept),
        CASE(test_a_view_saves_no_more_than_it_reaches),
        CASE(test_requires_grad_is_kept_and_loaded_tensors_train),
        CASE(test_lazily_conjugated_tensors_are_saved_resolved),
        CASE(test_what_cannot_be_saved),
        CASE(test_every_truncation_is_an_error),
        CASE(test_every_flipped_bit_is_found),
        CASE(test_random_garbage_never_crashes),
        CASE(test_impostors_are_named),
        CASE(test_large_files),
        CASE(test_file_size_limit),
        CASE(test_folders_are_made_and_folders_are_refused),
        CASE(test_read_only_folder),
        CASE(test_loading_does_not_leak),
    };
    return cmocka_run_group_tests_name("torch_file", tests, NULL, NULL);
}
