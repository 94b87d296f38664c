/* interop_test.c: files that this machine's PyTorch writes are read, and what we write PyTorch reads. Skipped, with a word,
 * without it. */
#include "checkpoint_python.h"

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* Python writes, C reads and writes again, Python compares: values, tensors bit by bit, strides and sharing; also with mmap=True.
 */
static void test_python_to_c_and_back(void **state)
{
    run_script("make", *state);
    th__strings names = {0};
    assert_int_equal(th__list_dir(*state, &names), TH_OK);
    int count = 0;
    for (size_t i = 0; i < names.count; i++) {
        char again[600];
        if (!ends_with(names.items[i], ".pt")) continue;
        snprintf(again, sizeof again, "%s/%s.again", (char *)*state, names.items[i]);
        th_value *value = th_load(scratch(*state, names.items[i]));
        if (value == NULL) fail_msg("%s: %s", names.items[i], th_error_message());
        if (th_save(value, again) != TH_OK) fail_msg("%s: %s", names.items[i], th_error_message());
        th_value *once_more = th_load(again);
        assert_non_null(once_more);
        th_value_free(once_more);
        th_value_free(value);
        count++;
    }
    assert_true(count >= 14);
    th__strings_free(&names);
    run_script("compare", *state);
}

static void test_what_must_be_refused(void **state)
{
    static const char *const cases[][2] = {
        {"custom.refuse", "__main__.Custom"},  {"whole_model.refuse", "torch.nn.modules.container.Sequential"},
        {"function.refuse", "builtins.print"}, {"compressed.refuse", "compressed"},
        {"cyclic.refuse", "contains itself"},  {"bigint.refuse", "64 bits"},
        {"laughs.refuse", "shared too often"}, {"script.refuse", "TorchScript"},
    };
    run_script("make", *state);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!exists(scratch(*state, cases[i][0]))) continue;
        assert_null(th_load(scratch(*state, cases[i][0])));
        if (strstr(th_error_message(), cases[i][1]) == NULL) fail_msg("%s: %s", cases[i][0], th_error_message());
        th_error_clear();
    }
}

/* The same without Python: files that were made once. */
static void check_training_state(const char *path)
{
    th_value *v = th_load(path);
    if (v == NULL) fail_msg("%s: %s", path, th_error_message());
    assert_int_equal(th_value_as_int(th_value_get(v, "epoch"), 0), 3);
    th_value *model = th_value_get(v, "model"), *optimizer = th_value_get(v, "optimizer");
    assert_int_equal(th_value_size(model), 9);
    assert_string_equal(th_value_key_at(model, 0, NULL), "0.weight");
    th_tensor *weight = th_value_as_tensor(th_value_get(model, "0.weight"));
    assert_int_equal(th_size(weight, 0), 3);
    assert_int_equal(th_size(weight, 1), 4);
    assert_int_equal(th_item_int(th_value_as_tensor(th_value_get(model, "1.num_batches_tracked"))), 2);
    th_value *first = th_value_get_int(th_value_get(optimizer, "state"), 0);
    assert_true(th_item(th_value_as_tensor(th_value_get(first, "step"))) == 2.0);
    assert_int_equal(th_size(th_value_as_tensor(th_value_get(first, "exp_avg")), 1), 4);
    th_value *group = th_value_at(th_value_get(optimizer, "param_groups"), 0);
    assert_true(th_value_as_double(th_value_get(group, "lr"), 0) == 0.01);
    assert_int_equal(th_value_kind_of(th_value_get(group, "betas")), TH_VALUE_TUPLE);
    assert_int_equal(th_value_size(th_value_get(group, "params")), 6);
    th_value_free(v);
}

static void test_kept_files(void **state)
{
    (void)state;
    check_training_state(TEST_SOURCE_DIR "/tests/golden/checkpoint/python_zip.ckpt");
    check_training_state(TEST_SOURCE_DIR "/tests/golden/checkpoint/python_legacy.ckpt");
    th_value *v = th_load(TEST_SOURCE_DIR "/tests/golden/checkpoint/python_lightning.ckpt");
    assert_non_null(v);
    assert_int_equal(th_value_as_int(th_value_get(v, "global_step"), 0), 20);
    assert_true(th_value_as_double(th_value_get(th_value_get(v, "hyper_parameters"), "lr"), 0) == 0.1);
    th_value_free(v);
    assert_null(th_load(TEST_SOURCE_DIR "/tests/golden/checkpoint/python_custom.ckpt"));
    assert_non_null(strstr(th_error_message(), "Custom"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(test_python_to_c_and_back), CASE(test_what_must_be_refused), CASE(test_kept_files)};
    return cmocka_run_group_tests_name("interop", tests, NULL, NULL);
}
