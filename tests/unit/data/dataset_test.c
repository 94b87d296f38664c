/* Datasets made of tensors, of other datasets and of callbacks. */
#include "helpers.h"

#include <cfabric/ops.h>

static void assert_values(th_tensor *tensor, size_t n, const int64_t *expected)
{
    int64_t values[64];
    assert_non_null(tensor);
    assert_int_equal(th_numel(tensor), n);
    assert_int_equal(th_copy_to(tensor, values, n * sizeof *values, TH_INT64), TH_OK);
    for (size_t i = 0; i < n; i++) assert_int_equal(values[i], expected[i]);
}
#define VALUES(tensor, ...)                                                                                                      \
    assert_values((tensor), sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]){__VA_ARGS__})

static void test_tensor_dataset(void **state)
{
    (void)state;
    TH_SCOPE();
    th_tensor *x = th_reshape(th_arange(TH_S(12), .dtype = TH_FLOAT32), TH_INTS(4, 3));
    th_tensor *y = th_arange(TH_S(4), .dtype = TH_INT64);
    th_dataset *set = th_dataset_tensor(TH_TENSORS(x, y));
    th_sample s;
    assert_int_equal(th_dataset_len(set), 4);
    assert_int_equal(th_dataset_get(set, 2, &s), TH_OK);
    assert_int_equal(s.size, 2);
    VALUES(s.data[0], 6, 7, 8);
    VALUES(s.data[1], 2);
    assert_int_equal(th_dim(s.data[1]), 0);
    assert_int_equal(th_dataset_get_batch(set, TH_INTS(3, 0, 3), &s), TH_OK);
    VALUES(s.data[0], 9, 10, 11, 0, 1, 2, 9, 10, 11);
    VALUES(s.data[1], 3, 0, 3);
    assert_int_equal(th_dataset_get(set, 4, &s), TH_ERR_VALUE);
    assert_error(TH_ERR_VALUE, "index 4 is outside dataset 'TensorDataset' of 4 samples");
    assert_null(th_dataset_tensor(TH_TENSORS(x, th_arange(TH_S(5)))));
    assert_error(TH_ERR_VALUE, "tensor 0 has 4 rows, tensor 1 has 5");
    assert_null(th_dataset_tensor(TH_TENSORS(th_tensor_scalar(TH_S(1), TH_INT64))));
    assert_error(TH_ERR_VALUE, "no dimensions");
    th_dataset_free(set);
    /* not dense: the rows of a transposed tensor */
    set = th_dataset_tensor(TH_TENSORS(th_t(x)));
    assert_int_equal(th_dataset_get_batch(set, TH_INTS(2, 0), &s), TH_OK);
    VALUES(s.data[0], 2, 5, 8, 11, 0, 3, 6, 9);
    th_dataset_free(set);
}

static void test_subset_and_concat(void **state)
{
    (void)state;
    TH_SCOPE();
    th_sample s;
    th_dataset *all = th_dataset_concat((th_dataset *[]){range_new(3), range_new(2), range_new(4)}, 3);
    assert_int_equal(th_dataset_len(all), 9);
    assert_int_equal(th_dataset_get_batch(all, TH_INTS(0, 2, 3, 4, 5, 8, -1), &s), TH_OK);
    VALUES(s.data[0], 0, 2, 0, 1, 0, 3, 3);
    th_dataset *part = th_dataset_subset(th_dataset_subset(all, TH_INTS(8, 7, 0)), TH_INTS(1, -1));
    assert_int_equal(th_dataset_len(part), 2);
    assert_int_equal(th_dataset_get_batch(part, TH_INTS(0, 1), &s), TH_OK);
    VALUES(s.data[0], 2, 0);
    th_dataset_free(part);
    assert_null(th_dataset_subset(range_new(3), TH_INTS(3)));
    assert_error(TH_ERR_VALUE, "index 3 is outside");
    assert_null(th_dataset_subset(stream_new(3), TH_INTS(0)));
    assert_error(TH_ERR_TYPE, "iterable-style");
    assert_null(th_dataset_concat((th_dataset *[]){range_new(3), stream_new(2)}, 2));
    assert_error(TH_ERR_TYPE, "iterable-style");
}

static void test_split_errors(void **state)
{
    (void)state;
    th_dataset *parts[2];
    assert_int_equal(th_random_split(range_new(10), TH_INTS(3, 6), .parts = parts), TH_ERR_VALUE);
    assert_error(TH_ERR_VALUE, "add up to 9, but the dataset has 10");
    assert_null(parts[0]);
    assert_int_equal(th_random_split(range_new(10), .fractions = TH_DOUBLES(0.5, 0.6), .parts = parts), TH_ERR_VALUE);
    assert_error(TH_ERR_VALUE, "add up to 1.1");
    assert_int_equal(th_random_split(range_new(10), .fractions = TH_DOUBLES(1.5, -0.5), .parts = parts), TH_ERR_VALUE);
    assert_error(TH_ERR_VALUE, "fraction 0 is 1.5");
    assert_int_equal(th_random_split(range_new(10), TH_INTS(11, -1), .parts = parts), TH_ERR_VALUE);
    assert_error(TH_ERR_VALUE, "length 1 is -1");
}

static th_status add_one(th_sample *sample, void *user)
{
    *(int *)user += 1;
    sample->data[0] = th_add_scalar(sample->data[0], TH_S(1));
    return TH_OK;
}

static th_status twice(th_sample *sample, void *user)
{
    *(int *)user += 1;
    sample->data[0] = th_mul_scalar(sample->data[0], TH_S(2));
    return TH_OK;
}

static th_status silent_failure(th_sample *sample, void *user)
{
    (void)sample;
    (void)user;
    return TH_ERR_RUNTIME;
}

static void test_transforms(void **state)
{
    (void)state;
    TH_SCOPE();
    th_sample s;
    int singles = 0, batches = 0;
    th_dataset *set = th_dataset_transform(range_new(5), add_one, .user = &singles);
    set = th_dataset_transform(set, .batch_transform = twice, .user = &batches);
    assert_int_equal(th_dataset_get_batch(set, TH_INTS(0, 4), &s), TH_OK);
    VALUES(s.data[0], 2, 10);
    assert_int_equal(singles, 2);
    assert_int_equal(batches, 1); /* once for the batch */
    assert_int_equal(th_dataset_get(set, 3, &s), TH_OK);
    VALUES(s.data[0], 8);
    assert_int_equal(th_dim(s.data[0]), 0);
    th_dataset_free(set);
    set = th_dataset_transform(range_new(5), silent_failure);
    assert_int_equal(th_dataset_get(set, 0, &s), TH_ERR_CALLBACK);
    assert_error(TH_ERR_CALLBACK, "transform of 'range' failed with RuntimeError");
    th_dataset_free(set);
    assert_null(th_dataset_transform(range_new(5)));
    assert_error(TH_ERR_VALUE, "neither transform nor batch_transform");
}

static th_status odd_item(void *self, int64_t index, th_sample *sample)
{
    (void)self;
    sample->data[0] = th_zeros(TH_INTS(index + 1));
    sample->data[1] = sample->data[0];
    sample->size = index == 7 ? 2 : 1;
    return TH_OK;
}

static int64_t ten(void *self)
{
    (void)self;
    return 10;
}

static void test_collation_errors(void **state)
{
    (void)state;
    TH_SCOPE();
    th_sample s;
    const th_dataset_ops ops = {.size = sizeof ops, .name = "odd", .len = ten, .get_item = odd_item};
    th_dataset *set = th_dataset_new(&ops, NULL);
    assert_int_not_equal(th_dataset_get_batch(set, TH_INTS(1, 2), &s), TH_OK);
    assert_error(TH_ERR_ENGINE, "stack expects each tensor to be equal size");
    assert_int_equal(th_dataset_get_batch(set, TH_INTS(6, 7), &s), TH_ERR_RUNTIME);
    assert_error(TH_ERR_RUNTIME, "sample 0 has 1, sample 1 has 2");
    th_dataset_free(set);
}

static void test_tables(void **state)
{
    (void)state;
    const th_dataset_ops none = {.size = sizeof none, .name = "none"}, no_len = {.size = sizeof no_len, .get_item = odd_item};
    assert_null(th_dataset_new(&none, NULL));
    assert_error(TH_ERR_VALUE, "'none' has neither get_item nor iter_next");
    assert_null(th_dataset_new(&no_len, NULL));
    assert_error(TH_ERR_VALUE, "has no len");
    assert_null(th_dataset_new(NULL, NULL));
    assert_error(TH_ERR_VALUE, "is NULL");
    assert_int_equal(th_dataset_len(NULL), -1);
    assert_error(TH_ERR_TYPE, "dataset is NULL");
}

#define T(name) cmocka_unit_test_teardown(name, no_leftovers)
int main(void)
{
    const struct CMUnitTest tests[] = {T(test_tensor_dataset), T(test_subset_and_concat), T(test_split_errors),
                                       T(test_transforms),     T(test_collation_errors),  T(test_tables)};
    return cmocka_run_group_tests_name("data.dataset", tests, NULL, NULL);
}
