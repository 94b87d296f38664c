/* safetensors_test.c: round trips, equality with the reference library's bytes, and every rule a file can break. */
#include "checkpoint_support.h"

#include <sys/wait.h>

/* The same tensors as flat() in checkpoint.py. */
static th_value *flat(void)
{
    static const th_dtype dtypes[] = {TH_BOOL,  TH_UINT8,   TH_INT8,      TH_INT16,   TH_FLOAT16, TH_BFLOAT16,
                                      TH_INT32, TH_FLOAT32, TH_COMPLEX64, TH_FLOAT64, TH_INT64};
    TH_SCOPE();
    th_value *v = th_value_dict();
    int64_t bits[6] = {0, 1, 0, 1, 0, 1};
    th_tensor *base = th_tensor_from(bits, TH_INTS(2, 3), TH_INT64);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        th_value_set(v, th_dtype_name(dtypes[i]),
                     th_value_tensor(th_call("aten::to.dtype", TH_A(base), {.kind = TH_ARG_DTYPE, .v.dtype = dtypes[i]})));
    th_value_set(v, "scalar", th_value_tensor(th_tensor_scalar(TH_S(1.0), TH_FLOAT32)));
    th_value_set(v, "none", th_value_tensor(th_call("aten::zeros", TH_A_INTS(TH_INTS(0)))));
    th_value_set(v, "rows", th_value_tensor(th_call("aten::zeros", TH_A_INTS(TH_INTS(2, 0)))));
    return v;
}

static void test_equal_to_the_reference_library(void **state)
{
    char *path = scratch(*state, "x.safetensors");
    th_value *v = flat(), *metadata = th_value_dict();
    th_value_set(metadata, "format", th_value_string("pt \"\xc3\xa9\n\\"));
    assert_int_equal(th_safetensors_save(v, path, metadata), TH_OK);
    size_t ours_size, theirs_size;
    unsigned char *ours = slurp(path, &ours_size),
                  *theirs = slurp(TEST_SOURCE_DIR "/tests/golden/checkpoint/reference.safetensors", &theirs_size);
    assert_int_equal(ours_size, theirs_size);
    assert_memory_equal(ours, theirs, ours_size);
    free(ours);
    free(theirs);
    th_value *back = th_safetensors_load(path);
    assert_non_null(back);
    assert_int_equal(th_value_size(back), th_value_size(v));
    for (size_t i = 0; i < th_value_size(v); i++)
        assert_true(th_value_equal(th_value_at(v, i), th_value_get(back, th_value_key_at(v, i, NULL))));
    th_safetensors *file = th_safetensors_open(path);
    th_value *again = th_safetensors_metadata(file);
    assert_true(th_value_equal(metadata, again));
    th_safetensors_close(file);
    th_value_free(again);
    th_value_free(metadata);
    th_value_free(back);
    th_value_free(v);
}

static void test_the_reference_library_reads_ours(void **state)
{
    char command[1500];
    th_value *v = flat();
    assert_int_equal(th_safetensors_save(v, scratch(*state, "x.safetensors"), NULL), TH_OK);
    th_value_free(v);
    snprintf(command, sizeof command,
             "timeout 60 '%s/.venv/bin/python' '%s/tests/golden/checkpoint.py' safetensors '%s' >/dev/null 2>&1", TEST_SOURCE_DIR,
             TEST_SOURCE_DIR, (char *)*state);
    int status = access(TEST_SOURCE_DIR "/.venv/bin/python", X_OK) == 0 ? system(command) : 77 << 8;
    if (WEXITSTATUS(status) == 77) {
        print_message("skipped: the safetensors package is not installed; the kept file still pins the bytes\n");
        skip();
    }
    assert_int_equal(status, 0);
}

static void test_lazy_tensors_outlive_the_file(void **state)
{
    char *path = scratch(*state, "lazy.safetensors");
    TH_SCOPE();
    th_value *v = th_value_dict();
    th_tensor *base = th_call("aten::arange", TH_A_SCALAR(TH_S(20)));
    th_value_set(v, "t", th_value_tensor(th_call("aten::t", TH_A(th_call("aten::view", TH_A(base), TH_A_INTS(TH_INTS(4, 5)))))));
    th_value_set(v, "b", th_value_tensor(base));
    assert_int_equal(th_safetensors_save(v, path, NULL), TH_OK);
    th_safetensors *file = th_safetensors_open(path);
    assert_int_equal(th_safetensors_size(file), 2);
    assert_string_equal(th_safetensors_name(file, 0), "b");
    assert_null(th_safetensors_name(file, 2));
    th_dtype dtype;
    th_ints sizes;
    assert_int_equal(th_safetensors_info(file, "t", &dtype, &sizes), TH_OK);
    assert_int_equal(dtype, TH_INT64);
    assert_int_equal(sizes.data[0], 5);
    th_tensor *lazy = th_safetensors_get(file, "t");
    th_safetensors_close(file);
    unlink(path);
    assert_int_equal(th_item_int(th_call("aten::sum", TH_A(lazy))), 190);
    ((int64_t *)th_data_ptr(lazy))[0] = 7; /* a private copy */
    th_value_free(v);
}

static void test_what_cannot_be_written(void **state)
{
    char *path = scratch(*state, "no.safetensors");
    TH_SCOPE();
    th_value *v = th_value_dict();
    th_value_set(v, "x", th_value_int(1));
    assert_int_equal(th_safetensors_save(v, path, NULL), TH_ERR_TYPE);
    th_error_clear();
    double z[2] = {1, 2};
    th_value_set(v, "x", th_value_tensor(th_tensor_from(z, TH_INTS(1), TH_COMPLEX128)));
    assert_int_equal(th_safetensors_save(v, path, NULL), TH_ERR_TYPE);
    assert_non_null(strstr(th_error_message(), "complex128"));
    th_error_clear();
    assert_false(exists(path));
    th_value_free(v);
}

/* ---------------------------------------------------------------- broken files */

static void write_raw(const char *path, const char *json, size_t n_json, size_t data)
{
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < 8; i++) fputc((int)(n_json >> (8 * i) & 255), file);
    fwrite(json, 1, n_json, file);
    for (size_t i = 0; i < data; i++) fputc(0, file);
    fclose(file);
}

static void test_every_rule(void **state)
{
#define T(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
    static const struct {
        const char *json;
        size_t data;
        const char *says;
    } cases[] = {
        {"{\"a\":" T("F32", "[1000,1000]", "[0,4]") "}", 4, "by its shape"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[2,6]") "}", 6, "although"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[8,12]") "}", 12, "hole"},
        {"{\"a\":" T("F32", "[1]", "[4,8]") "}", 8, "hole"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") "}", 20, "has 20 bytes"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") "}", 2, "truncated"},
        {"{\"a\":" T("F32", "[1]", "[4,0]") "}", 4, "offsets"},
        {"{\"a\":" T("F32", "[-1]", "[0,4]") "}", 4, "no list of sizes"},
        {"{\"a\":" T("F32", "[1.5]", "[0,4]") "}", 4, "no list of sizes"},
        {"{\"a\":" T("F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "overflows"},
        {"{\"a\":" T("F32", "[9007199254740992,9007199254740992,0]", "[0,0]") "}", 0, "overflows"},
        {"{\"a\":" T("F32", "[1]", "[0]") "}", 4, "data_offsets"},
        {"{\"a\":" T("F32", "[1]", "[0,1e300]") "}", 4, "data_offsets"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "no shape"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"a\":" T("F32", "[1]", "[4,8]") "}", 8, "two tensors"},
        {"{\"a\":3}", 0, "no object"},
        {"{\"__metadata__\":{\"x\":1}}", 0, "no text"},
        {"{\"__metadata__\":[]}", 0, "no object"},
        {"[]", 0, "begin with '{'"},
        {" {}", 0, "begin with '{'"},
        {"{\"a\"", 0, "JSON"},
        {"{\"\xff\":1}", 0, "UTF-8"},
        {"", 0, "begin with '{'"},
    };
    char *path = scratch(*state, "bad.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_raw(path, cases[i].json, strlen(cases[i].json), cases[i].data);
        assert_null(th_safetensors_load(path));
        assert_int_equal(th_error(), TH_ERR_DATA);
        if (strstr(th_error_message(), cases[i].says) == NULL) fail_msg("%zu: %s", i, th_error_message());
        th_error_clear();
    }
}

static void test_padding(void **state)
{
    char *path = scratch(*state, "pad.safetensors");
    write_raw(path, "{}\0\0\0\0\0\0", 8, 0);
    assert_null(th_safetensors_load(path));
    assert_non_null(strstr(th_error_message(), "NUL"));
    th_error_clear();
    write_raw(path, "{}    \t\n", 8, 0);
    th_value *v = th_safetensors_load(path);
    assert_non_null(v);
    assert_int_equal(th_value_size(v), 0);
    th_value_free(v);
    spit(path, "\xff\xff\xff\xff\0\0\0\0{}", 10);
    assert_null(th_safetensors_load(path));
    assert_non_null(strstr(th_error_message(), "100 MB"));
    th_error_clear();
    spit(path, "\x20\0\0\0\0\0\0\0{}", 10);
    assert_null(th_safetensors_load(path));
    assert_non_null(strstr(th_error_message(), "truncated"));
    th_error_clear();
    spit(path, "{}", 2);
    assert_null(th_safetensors_load(path));
    th_error_clear();
}

/* An unknown dtype spoils its own tensor only. */
static void test_unknown_dtypes(void **state)
{
    static const char *const names[] = {"F3", "F8_E8M0", "f32", "F4"};
    char *path = scratch(*state, "dtype.safetensors");
    TH_SCOPE();
    for (size_t i = 0; i < 4; i++) {
        char json[300];
        snprintf(json, sizeof json,
                 "{\"odd\":{\"dtype\":\"%s\",\"shape\":[9],\"data_offsets\":[0,4]},\"good\":" T("F32", "[1]", "[4,8]") "}",
                 names[i]);
        write_raw(path, json, strlen(json), 8);
        th_safetensors *file = th_safetensors_open(path);
        assert_non_null(file);
        assert_int_equal(th_safetensors_size(file), 2);
        assert_non_null(th_safetensors_get(file, "good"));
        assert_null(th_safetensors_get(file, "odd"));
        assert_int_equal(th_error(), TH_ERR_DATA);
        assert_non_null(strstr(th_error_message(), names[i]));
        assert_non_null(strstr(th_error_message(), "odd"));
        th_error_clear();
        assert_null(th_safetensors_get(file, "absent"));
        assert_int_equal(th_error(), TH_ERR_KEY);
        th_error_clear();
        th_safetensors_close(file);
    }
}

static void test_every_truncation(void **state)
{
    char *path = scratch(*state, "whole.safetensors"), *cut = scratch(*state, "cut.safetensors");
    th_value *v = flat();
    assert_int_equal(th_safetensors_save(v, path, NULL), TH_OK);
    size_t size;
    unsigned char *bytes = slurp(path, &size);
    for (size_t n = 0; n < size; n++) {
        spit(cut, bytes, n);
        assert_null(th_safetensors_load(cut));
        th_error_clear();
    }
    free(bytes);
    th_value_free(v);
}

static void test_misuse(void **state)
{
    char *path = scratch(*state, "x.safetensors");
    th_value *number = th_value_int(1), *empty = th_value_dict();
    assert_null(th_safetensors_open(NULL));
    assert_int_equal(th_error_clear(), TH_ERR_VALUE);
    assert_null(th_safetensors_load(""));
    assert_int_equal(th_error_clear(), TH_ERR_VALUE);
    assert_null(th_safetensors_metadata(NULL));
    assert_int_equal(th_error_clear(), TH_ERR_TYPE);
    assert_null(th_safetensors_get(NULL, "x"));
    assert_int_equal(th_error_clear(), TH_ERR_TYPE);
    assert_int_equal(th_safetensors_save(NULL, path, NULL), TH_ERR_TYPE);
    th_error_clear();
    assert_int_equal(th_safetensors_save(number, path, NULL), TH_ERR_TYPE);
    th_error_clear();
    assert_int_equal(th_safetensors_save(empty, NULL, NULL), TH_ERR_VALUE);
    th_error_clear();
    assert_int_equal(th_safetensors_save(empty, path, number), TH_ERR_TYPE);
    th_error_clear();
    assert_int_equal(th_safetensors_save(empty, path, NULL), TH_OK);
    th_safetensors *file = th_safetensors_open(path);
    assert_int_equal(th_safetensors_size(file), 0);
    assert_null(th_safetensors_get(file, NULL));
    assert_int_equal(th_error_clear(), TH_ERR_KEY);
    th_safetensors_close(file);
    th_safetensors_close(NULL);
    assert_int_equal(th_save(NULL, path), TH_ERR_VALUE);
    th_error_clear();
    assert_int_equal(th_save(number, NULL), TH_ERR_VALUE);
    th_error_clear();
    assert_null(th_load(NULL));
    assert_int_equal(th_error_clear(), TH_ERR_VALUE);
    th_value_free(number);
    th_value_free(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_equal_to_the_reference_library),
        CASE(test_the_reference_library_reads_ours),
        CASE(test_lazy_tensors_outlive_the_file),
        CASE(test_what_cannot_be_written),
        CASE(test_every_rule),
        CASE(test_padding),
        CASE(test_unknown_dtypes),
        CASE(test_every_truncation),
        CASE(test_misuse),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
