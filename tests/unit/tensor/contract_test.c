/* What the layer promises to programs that misuse it: no crash, one line, the right owner; and to programs with threads. */
#include <cfabric/autograd.h>
#include <cfabric/error.h>
#include <cfabric/ops.h>
#include <cfabric/value.h>

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int setup(void **state)
{
    (void)state;
    th_error_clear();
    th_set_error_policy(TH_ERROR_RETURN, NULL, NULL);
    return 0;
}

#define EXPECT(status)                            \
    do {                                          \
        assert_int_equal(th_error(), status);     \
        assert_true(th_error_message()[0] != 0);  \
        th_error_clear();                         \
    } while (0)

static void null_handles_are_errors(void **state)
{
    (void)state;
    TH_SCOPE();
    assert_int_equal(th_dim(NULL), -1);
    EXPECT(TH_ERR_TYPE);
    assert_int_equal(th_size(NULL, 0), -1);
    EXPECT(TH_ERR_TYPE);
    assert_null(th_sizes(NULL).data);
    EXPECT(TH_ERR_TYPE);
    assert_true(isnan(th_item(NULL)));
    EXPECT(TH_ERR_TYPE);
    assert_int_equal(th_backward(NULL), TH_ERR_TYPE);
    EXPECT(TH_ERR_TYPE);
    assert_null(th_grad(NULL));
    EXPECT(TH_ERR_TYPE);
    assert_null(th_to_string(NULL));
    EXPECT(TH_ERR_TYPE);
    assert_null(th_add(th_ones(TH_INTS(1)), NULL));
    EXPECT(TH_ERR_TYPE);
    assert_null(th_cat(TH_TENSORS(th_ones(TH_INTS(1)), NULL)));
    EXPECT(TH_ERR_TYPE);
    assert_null(th_retain(NULL));
    EXPECT(TH_ERR_TYPE);
    assert_int_equal(th_generator_manual_seed(NULL, 1), TH_ERR_TYPE);
    EXPECT(TH_ERR_TYPE);
    assert_null(th_value_string(NULL));
    EXPECT(TH_ERR_TYPE);
    assert_false(th_is_same(NULL, NULL));
    th_free(NULL);
    th_hook_remove(NULL);
    th_value_free(NULL);
    assert_int_equal(th_error(), TH_OK);
}

static void bad_values_are_errors(void **state)
{
    (void)state;
    TH_SCOPE();
    th_tensor *x = th_ones(TH_INTS(2, 3));
    th_item(x);
    EXPECT(TH_ERR_VALUE);
    th_size(x, 2);
    EXPECT(TH_ERR_ENGINE);
    th_device_parse("gpu0");
    assert_non_null(strstr(th_error_message(), "gpu0"));
    EXPECT(TH_ERR_VALUE);
    th_set_num_threads(0);
    EXPECT(TH_ERR_VALUE);
    th_set_default_dtype(TH_INT64);
    EXPECT(TH_ERR_TYPE);
    th_tensor_from((int[]){1}, TH_INTS(1), TH_DTYPE_NONE);
    EXPECT(TH_ERR_ENGINE);
    th_call("aten::relu", TH_A_STRING("x"));
    EXPECT(TH_ERR_TYPE);
    th_call("aten::relu", TH_A(x), TH_A(x));
    EXPECT(TH_ERR_TYPE);
    th_set_grad(x, th_ones(TH_INTS(3)));
    EXPECT(TH_ERR_ENGINE);
    th_register_post_accumulate_grad_hook(x, NULL, NULL);
    EXPECT(TH_ERR_RUNTIME);
    th_load_library("/no/such/library.so");
    assert_non_null(strstr(th_error_message(), "/no/such/library.so"));
    EXPECT(TH_ERR_NOT_FOUND);
}

#ifdef CFABRIC_DEBUG
static void late_use_is_named(void **state)
{
    (void)state;
    th_tensor *escaped_by_mistake;
    {
        TH_SCOPE();
        escaped_by_mistake = th_ones(TH_INTS(2));
    }
    assert_null(th_relu(escaped_by_mistake));
    assert_non_null(strstr(th_error_message(), "after its scope ended"));
    assert_non_null(strstr(th_error_message(), "aten::ones"));
    EXPECT(TH_ERR_TYPE);
}
#endif

static int handler_calls;
static void count_errors(th_status status, const char *function, const char *message, void *user)
{
    assert_int_equal(status, TH_ERR_VALUE);
    assert_non_null(function);
    assert_string_equal(message, "one two");
    assert_ptr_equal(user, &handler_calls);
    handler_calls++;
}

static void handlers_see_an_error_once(void **state)
{
    (void)state;
    th_set_error_policy(TH_ERROR_RETURN, count_errors, &handler_calls);
    assert_int_equal(th_error_set(TH_ERR_VALUE, "one\ntwo"), TH_ERR_VALUE);
    assert_int_equal(th_error_set(TH_ERR_TYPE, "second"), TH_ERR_VALUE);
    assert_int_equal(handler_calls, 1);
    assert_string_equal(th_error_message(), "one two");
    assert_int_equal(th_error_clear(), TH_ERR_VALUE);
    assert_string_equal(th_error_message(), "");
    th_set_error_policy(TH_ERROR_RETURN, NULL, NULL);
}

/* ---------------------------------------------------------------- threads */

struct work { th_tensor *shared, *scoped_elsewhere; th_status foreign; size_t live; double sum; bool grad_mode; };

static void *worker(void *pointer)
{
    struct work *w = pointer;
    {
        TH_SCOPE();
        for (int i = 0; i < 200; i++) {
            TH_SCOPE();
            th_tensor *y = th_mul_scalar(w->shared, TH_S(2.0));
            w->sum += th_item(th_sum(y));
        }
        th_relu(NULL); /* this thread's error is its own */
        w->grad_mode = th_is_grad_enabled();
        th_error_clear();
        th_keep(w->scoped_elsewhere);
        w->foreign = th_error_clear();
    }
    w->live = th_scope_live();
    return NULL;
}

static void threads_have_their_own_scopes_and_errors(void **state)
{
    (void)state;
    TH_SCOPE();
    TH_NO_GRAD();
    enum { N = 4 };
    th_tensor *shared = th_keep(th_ones(TH_INTS(16)));
    struct work work[N];
    pthread_t threads[N];
    for (int i = 0; i < N; i++) {
        work[i] = (struct work){.shared = shared, .scoped_elsewhere = th_ones(TH_INTS(1))};
        assert_int_equal(pthread_create(&threads[i], NULL, worker, &work[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        assert_true(work[i].sum == 200 * 32.0);
        assert_int_equal(work[i].live, 0);
        assert_int_equal(work[i].foreign, TH_ERR_RUNTIME);
        assert_true(work[i].grad_mode); /* grad mode is thread-local: new threads begin with it on */
    }
    assert_int_equal(th_error(), TH_OK);
    th_free(shared);
}

static void modes_nest(void **state)
{
    (void)state;
    TH_SCOPE();
    th_tensor *w = th_requires_grad_(th_ones(TH_INTS(2)), true);
    {
        TH_NO_GRAD();
        {
            TH_ENABLE_GRAD();
            assert_true(th_requires_grad(th_mul(w, w)));
        }
        assert_false(th_is_grad_enabled());
    }
    {
        TH_INFERENCE_MODE();
        {
            TH_INFERENCE_MODE();
            assert_false(th_requires_grad(th_mul(w, w)));
        }
        assert_false(th_requires_grad(th_mul(w, w)));
    }
    assert_true(th_requires_grad(th_mul(w, w)));
}

static void freed_by_count(void *data, void *user)
{
    (void)data;
    ++*(int *)user;
}

static void wrapped_memory_is_given_back_once(void **state)
{
    (void)state;
    static float data[4];
    int freed = 0;
    th_tensor *view = NULL;
    {
        TH_SCOPE();
        th_tensor *t = th_from_blob(data, TH_INTS(4), TH_FLOAT32, .deleter = freed_by_count, .user = &freed);
        th_assign(&view, th_slice(t, 0, TH_INT(1), TH_INT(3)));
    }
    assert_int_equal(freed, 0);
    th_free(view);
    assert_int_equal(freed, 1);
}

static void operators_of_other_libraries(void **state)
{
    (void)state;
    TH_SCOPE();
    assert_false(th_has_op("cfabric_test::twice"));
    assert_int_equal(th_load_library(TEST_BINARY_DIR "/tests/libcustom_op.so"), TH_OK);
    assert_true(th_has_op("cfabric_test::twice"));
    assert_true(th_item(th_call("cfabric_test::twice", TH_A(th_full(TH_INTS(1), TH_S(4.0))))) == 8.0);
    assert_null(th_call("cfabric_test::fails", TH_A(th_ones(TH_INTS(1)))));
    assert_non_null(strstr(th_error_message(), "on purpose"));
    EXPECT(TH_ERR_ENGINE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(null_handles_are_errors, setup),
        cmocka_unit_test_setup(bad_values_are_errors, setup),
#ifdef CFABRIC_DEBUG
        cmocka_unit_test_setup(late_use_is_named, setup),
#endif
        cmocka_unit_test_setup(handlers_see_an_error_once, setup),
        cmocka_unit_test_setup(threads_have_their_own_scopes_and_errors, setup),
        cmocka_unit_test_setup(modes_nest, setup),
        cmocka_unit_test_setup(wrapped_memory_is_given_back_once, setup),
        cmocka_unit_test_setup(operators_of_other_libraries, setup),
    };
    return cmocka_run_group_tests_name("contract", tests, NULL, NULL);
}
