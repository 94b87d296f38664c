/* What th_print shows equals Python's print(tensor), character by character (texts produced by PyTorch 2.13). */
#include <cfabric/autograd.h>
#include <cfabric/error.h>
#include <cfabric/ops.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void expect(th_tensor *t, const char *text)
{
    char *got = th_to_string(t);
    assert_non_null(got);
    assert_string_equal(got, text);
    free(got);
}

#define FLOATS(...) \
    th_tensor_from((float[]){__VA_ARGS__}, TH_INTS(sizeof((float[]){__VA_ARGS__}) / sizeof(float)), TH_FLOAT32)

static void numbers(void **state)
{
    (void)state;
    TH_SCOPE();
    expect(th_tensor_scalar(TH_S(3.5), TH_DTYPE_NONE), "tensor(3.5000)");
    expect(th_tensor_scalar(TH_S(7), TH_DTYPE_NONE), "tensor(7)");
    expect(th_tensor_from((int64_t[]){1, 2, 30}, TH_INTS(3), TH_INT64), "tensor([ 1,  2, 30])");
    expect(FLOATS(1.0f, 2.5f, 1e10f), "tensor([1.0000e+00, 2.5000e+00, 1.0000e+10])");
    expect(FLOATS(1e-5f, 1.0f), "tensor([1.0000e-05, 1.0000e+00])");
    expect(FLOATS(NAN, 1.0f, INFINITY), "tensor([nan, 1., inf])");
    expect(th_zeros(TH_INTS(2)), "tensor([0., 0.])");
    expect(th_tensor_from((bool[]){true, false}, TH_INTS(2), TH_BOOL), "tensor([ True, False])");
    expect(th_to_dtype(FLOATS(1, 2), TH_FLOAT16), "tensor([1., 2.], dtype=torch.float16)");
    expect(th_tensor_from((int32_t[]){1, 2}, TH_INTS(2), TH_INT32), "tensor([1, 2], dtype=torch.int32)");
    expect(th_complex(FLOATS(1.0f, 0.5f), FLOATS(2.0f, -1.0f)), "tensor([1.0000+2.j, 0.5000-1.j])");
}

static void shapes(void **state)
{
    (void)state;
    TH_SCOPE();
    expect(th_zeros(TH_INTS(0)), "tensor([])");
    expect(th_zeros(TH_INTS(0, 3)), "tensor([], size=(0, 3))");
    expect(th_ones(TH_INTS(2, 2, 2)), "tensor([[[1., 1.],\n         [1., 1.]],\n\n        [[1., 1.],\n         [1., 1.]]])");
    expect(th_arange(TH_S(2000)), "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])");
    expect(th_reshape(th_arange(TH_S(1600)), TH_INTS(40, 40)),
           "tensor([[   0,    1,    2,  ...,   37,   38,   39],\n        [  40,   41,   42,  ...,   77,   78,   79],\n"
           "        [  80,   81,   82,  ...,  117,  118,  119],\n        ...,\n"
           "        [1480, 1481, 1482,  ..., 1517, 1518, 1519],\n        [1520, 1521, 1522,  ..., 1557, 1558, 1559],\n"
           "        [1560, 1561, 1562,  ..., 1597, 1598, 1599]])");
    char *text = th_to_string(th_arange(TH_S(100.0)));
    assert_non_null(strstr(text, "11., 12., 13.,\n        14., 15.,"));
    free(text);
}

static void suffixes(void **state)
{
    (void)state;
    TH_SCOPE();
    th_tensor *leaf = th_requires_grad_(FLOATS(1.5f), true);
    expect(leaf, "tensor([1.5000], requires_grad=True)");
    expect(th_mul(th_requires_grad_(th_ones(TH_INTS(2)), true), FLOATS(2, 2)), "tensor([2., 2.], grad_fn=<MulBackward0>)");
    expect(th_empty_memory_format(TH_INTS(2), .device = TH_META), "tensor(..., device='meta', size=(2,))");
}

int main(void)
{
    th_set_error_policy(TH_ERROR_RETURN, NULL, NULL);
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers), cmocka_unit_test(shapes), cmocka_unit_test(suffixes)};
    return cmocka_run_group_tests_name("print", tests, NULL, NULL);
}
