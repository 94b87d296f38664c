/* The module object: registration, lookup, forward, hooks, the wrapper seam, iteration, modes, moves, printing. */
#include "nn_support.h"

#include "nn/internal.h"

static th_tensor *twice(th_module *self, th_tensor *input)
{
    (void)self;
    return th_mul_scalar(input, TH_S(2.0));
}

static th_tensors sum_and_difference(th_module *self, th_tensors in)
{
    (void)self;
    th_tensor *a = in.data[0], *b = in.data[1];
    return th_list(TH_TENSORS(th_add(a, b), th_sub(a, b)));
}

typedef struct net {
    th_module *fc1, *fc2;
    th_tensor *scale;
} net;

static th_tensor *net_forward(th_module *self, th_tensor *x)
{
    net *n = th_module_data(self);
    x = th_relu(th_forward(n->fc1, x));
    return th_mul(th_forward(n->fc2, x), n->scale);
}

static th_module *net_new(void)
{
    net *n = calloc(1, sizeof *n);
    th_module *self = th_module_new("Net", .data = n, .forward = net_forward, .free_data = free);
    n->fc1 = th_register_module(self, "fc1", th_nn_linear(4, 3));
    n->fc2 = th_register_module(self, "fc2", th_nn_linear(3, 2, .bias = false));
    TH_SCOPE();
    n->scale = th_register_parameter(self, "scale", th_ones(TH_INTS(1)));
    th_register_buffer(self, "steps", th_zeros(TH_INTS(1)), true);
    th_register_buffer(self, "cache", th_zeros(TH_INTS(2)), false);
    return self;
}

/* ---------------------------------------------------------------- making and looking up */

static void new_needs_one_forward(void **state)
{
    (void)state;
    expect_error(th_module_new("None", .data = NULL) == NULL, TH_ERR_VALUE, "none of forward");
    expect_error(th_module_new("Both", .forward = twice, .forward_n = sum_and_difference) == NULL, TH_ERR_VALUE,
                 "both of forward");
}

static void names_are_unique_and_without_dots(void **state)
{
    (void)state;
    th_module *m = net_new();
    expect_error(th_register_module(m, "fc1", th_nn_identity()) == NULL, TH_ERR_KEY, "already has");
    expect_error(th_register_module(m, "scale", th_nn_identity()) == NULL, TH_ERR_KEY, "already has");
    expect_error(th_register_module(m, "a.b", th_nn_identity()) == NULL, TH_ERR_KEY, "'a.b'");
    expect_error(th_register_parameter(m, "", NULL) == NULL, TH_ERR_KEY, "not allowed");
    expect_error(th_register_module(m, "x", NULL) == NULL, TH_ERR_TYPE, "is NULL");
    th_module_free(m);
    assert_int_equal(live_modules(), 0);
}

static void a_module_cannot_contain_itself(void **state)
{
    (void)state;
    th_module *a = th_nn_sequential(), *b = th_nn_sequential();
    th_register_module(a, "b", b);
    th_module_retain(a);
    expect_error(th_register_module(b, "a", a) == NULL, TH_ERR_VALUE, "which it contains");
    th_module_free(a);
    assert_int_equal(live_modules(), 0);
}

static void paths_find_things(void **state)
{
    (void)state;
    th_module *m = net_new();
    assert_string_equal(th_module_class(th_module_get(m, "fc2")), "Linear");
    assert_ptr_equal(th_module_get(m, ""), m);
    assert_int_equal(th_size(th_module_parameter(m, "fc1.weight"), 1), 4);
    assert_int_equal(th_numel(th_module_buffer(m, "cache")), 2);
    assert_int_equal(th_module_n_children(m), 2);
    const char *name = NULL;
    th_module_child_at(m, 1, &name);
    assert_string_equal(name, "fc2");
    expect_error(th_module_get(m, "fc1.x.y") == NULL, TH_ERR_KEY, "Net has no module 'fc1.x.y'");
    expect_error(th_module_parameter(m, "fc3.weight") == NULL, TH_ERR_KEY, "'fc3.weight'");
    expect_error(th_module_parameter(m, "fc2.bias") == NULL, TH_ERR_KEY, "absent");
    expect_error(th_module_child_at(m, 2, NULL) == NULL, TH_ERR_KEY, "child 2");
    th_module_free(m);
}

static void parameters_are_leaves_that_need_gradients(void **state)
{
    (void)state;
    TH_SCOPE();
    th_module *m = th_nn_identity();
    th_tensor *leaf = th_ones(TH_INTS(2));
    th_tensor *handle = th_register_parameter(m, "w", leaf);
    assert_true(th_requires_grad(handle));
    assert_true(th_is_same(handle, leaf));
    expect_error(th_register_parameter(m, "v", th_mul_scalar(leaf, TH_S(2.0))) == NULL, TH_ERR_TYPE, "expected a leaf");
    assert_non_null(th_register_parameter(m, "index", th_zeros(TH_INTS(2), .dtype = TH_INT64)));
    assert_int_equal(th_module_set_tensor(m, "w", th_zeros(TH_INTS(5))), TH_OK);
    assert_int_equal(th_numel(th_module_parameter(m, "w")), 5);
    th_tensor **slot = th__module_parameter_slot(m, "w");
    assert_ptr_equal(*slot, th_module_parameter(m, "w"));
    th_module_free(m);
}

/* ---------------------------------------------------------------- running */

static void forward_lets_only_the_result_escape(void **state)
{
    (void)state;
    TH_SCOPE();
    th_module *m = net_new();
    th_tensor *x = th_ones(TH_INTS(5, 4));
    size_t before = th_scope_live();
    th_tensor *y = th_forward(m, x);
    assert_int_equal(th_scope_live(), before + 1);
    assert_int_equal(th_size(y, 1), 2);
    th_module *same = th_nn_identity();
    assert_ptr_equal(th_forward(same, x), x);
    assert_int_equal(th_scope_live(), before + 1);
    th_module_free(same);
    th_module_free(m);
}

static void several_inputs_and_outputs(void **state)
{
    (void)state;
    TH_SCOPE();
    th_module *m = th_module_new("Pair", .forward_n = sum_and_difference);
    th_tensors out = th_forward_n(m, TH_TENSORS(th_full(TH_INTS(1), TH_S(5.0)), th_full(TH_INTS(1), TH_S(3.0))));
    assert_int_equal(out.size, 2);
    assert_true(th_item(out.data[0]) == 8.0 && th_item(out.data[1]) == 2.0);
    assert_true(th_item(th_forward(m, out.data[0], out.data[1])) == 10.0);
    th_module_free(m);
    m = th_nn_linear(4, 3);
    expect_error(th_forward(m, out.data[0], out.data[1]) == NULL, TH_ERR_TYPE, "takes 1 input, got 2");
    th_module_free(m);
}

static th_tensor *returns_nothing(th_module *self, th_tensor *input) { return (void)self, (void)input, NULL; }

static void errors_end_a_forward(void **state)
{
    (void)state;
    TH_SCOPE();
    th_module *m = net_new(), *broken = th_module_new("Broken", .forward = returns_nothing);
    th_tensor *x = th_ones(TH_INTS(5, 7));
    size_t before = th_scope_live();
    expect_error(th_forward(m, x) == NULL, TH_ERR_ENGINE, "");
    assert_int_equal(th_scope_live(), before);
    expect_error(th_forward(broken, x) == NULL, TH_ERR_RUNTIME, "Broken returned no tensor");
    expect_error(th_forward(NULL, x) == NULL, TH_ERR_TYPE, "module is NULL");
    th_module_free(m);
    th_module_free(broken);
}

static int calls;

static th_tensors add_one(th_module *module, th_tensors inputs, void *user)
{
    (void)module;
    calls += *(int *)user;
    return th_list(TH_TENSORS(th_add_scalar(inputs.data[0], TH_S(1.0))));
}

static th_tensors negate(th_module *module, th_tensors inputs, th_tensors outputs, void *user)
{
    (void)module;
    (void)user;
    assert_true(th_item(inputs.data[0]) == 4.0); /* the hook sees what the pre-hook made */
    return th_list(TH_TENSORS(th_neg(outputs.data[0])));
}

static th_tensors fails(th_module *module, th_tensors inputs, void *user)
{
    (void)module;
    (void)user;
    th_error_set(TH_ERR_CALLBACK, "no");
    return inputs;
}

static void hooks_change_inputs_and_outputs(void **state)
{
    (void)state;
    TH_SCOPE();
    th_module *m = th_module_new("Twice", .forward = twice);
    int step = 7;
    calls = 0;
    assert_int_equal(th_register_forward_pre_hook(m, add_one, &step), TH_OK);
    assert_int_equal(th_register_forward_hook(m, negate, NULL), TH_OK);
    th_tensor *three = th_full(TH_INTS(1), TH_S(3.0));
    size_t before = th_scope_live();
    assert_true(th_item(th_forward(m, three)) == -8.0);
    assert_int_equal(calls, 7);
    assert_int_equal(th_scope_live(), before + 1);
    assert_true(th_remove_forward_pre_hook(m, add_one, &step));
    assert_false(th_remove_forward_pre_hook(m, add_one, &step));
    assert_true(th_remove_forward_hook(m, negate, NULL));
    assert_true(th_item(th_forward(m, three)) == 6.0);
    th_register_forward_pre_hook(m, fails, NULL);
    expect_error(th_forward(m, three) == NULL, TH_ERR_CALLBACK, "no");
    th_module_free(m);
}

static int wrappers_freed;
static void free_wrapper(void *wrapper) { wrappers_freed += *(int *)wrapper; }

static th_tensors wrapped(th_module *module, void *wrapper, th_tensors inputs)
{
    assert_int_equal(*(int *)wrapper, 1);
    th_tensor *shifted = th_add_scalar(inputs.data[0], TH_S(10.0));
    return th__module_forward_inner(module, TH_TENSORS(shifted));
}

static void a_wrapper_stands_before_the_module(void **state)
{
    (void)state;
    TH_SCOPE();
    static const th__module_wrapper ops = {wrapped, free_wrapper};
    int one = 1;
    wrappers_freed = 0;
    th_module *m = th_module_new("Twice", .forward = twice);
    th_tensor *x = th_full(TH_INTS(1), TH_S(3.0));
    assert_int_equal(th__module_set_wrapper(m, &ops, &one), TH_OK);
    const th__module_wrapper *found = NULL;
    assert_ptr_equal(th__module_wrapper_of(m, &found), &one);
    assert_ptr_equal(found, &ops);
    size_t before = th_scope_live();
    assert_true(th_item(th_forward(m, x)) == 26.0);
    assert_int_equal(th_scope_live(), before + 1);
    expect_error(th__module_set_wrapper(m, &ops, &one) != TH_OK, TH_ERR_VALUE, "already");
    th__module_set_wrapper(m, NULL, NULL);
    assert_int_equal(wrappers_freed, 1);
    assert_true(th_item(th_forward(m, x)) == 6.0);
    th__module_set_wrapper(m, &ops, &one);
    th_module_free(m);
    assert_int_equal(wrappers_freed, 2);
}

/* ---------------------------------------------------------------- the tree */

static int append_name(const char *name, char *text)
{
    strcat(strcat(text, name), " ");
    return 0;
}
static int append_tensor(const char *name, th_tensor *tensor, void *user) { return (void)tensor, append_name(name, user); }
static int append_module(const char *name, th_module *module, void *user)
{
    strcat(strcat(user, name), ":");
    return append_name(th_module_class(module), user);
}
static int stop_at_second(const char *name, th_tensor *tensor, void *user)
{
    (void)name;
    (void)tensor;
    return ++*(int *)user == 2 ? 42 : 0;
}

static void iteration_is_in_pytorchs_order(void **state)
{
    (void)state;
    TH_SCOPE();
    th_module *m = net_new();
    char text[512] = "";
    th_named_parameters(m, append_tensor, text);
    assert_string_equal(text, "scale fc1.weight fc1.bias fc2.weight ");
    th_named_buffers(m, append_tensor, strcpy(text, ""));
    assert_string_equal(text, "steps cache ");
    th_named_modules(m, append_module, strcpy(text, ""));
    assert_string_equal(text, ":Net fc1:Linear fc2:Linear ");
    int seen = 0;
    assert_int_equal(th_named_parameters(m, stop_at_second, &seen), 42);
    assert_int_equal(th_parameters(m).size, 4);
    assert_int_equal(th_buffers(m).size, 2);
    assert_int_equal(th_parameters(th_module_get(m, "fc2")).size, 1);
    th_module_free(m);
}

static void shared_modules_and_tensors_count_once(void **state)
{
    (void)state;
    TH_SCOPE();
    th_module *shared = th_nn_linear(3, 3), *m = th_nn_sequential(th_module_retain(shared), th_nn_relu(), shared);
    th_register_parameter(m, "tied", th_module_parameter(m, "0.weight"));
    assert_int_equal(th_parameters(m).size, 2);
    th_value *dict = th_module_state_dict(m);
    assert_int_equal(th_value_size(dict), 5); /* but has a name everywhere */
    assert_non_null(th_value_get(dict, "2.bias"));
    th_value_free(dict);
    th_module_free(m);
    assert_int_equal(live_modules(), 0);
}

static th_status record_class(th_module *module, void *user)
{
    append_name(th_module_class(module), user);
    return TH_OK;
}
static th_status refuse(th_module *module, void *user) { return (void)user, th_module_n_children(module) ? TH_ERR_VALUE : TH_OK; }

static void apply_visits_children_first(void **state)
{
    (void)state;
    th_module *m = th_nn_sequential(th_nn_linear(1, 1), th_nn_sequential(th_nn_relu()));
    char text[256] = "";
    assert_int_equal(th_module_apply(m, record_class, text), TH_OK);
    assert_string_equal(text, "Linear ReLU Sequential Sequential ");
    expect_error(th_module_apply(m, refuse, NULL) != TH_OK, TH_ERR_CALLBACK, "Sequential");
    th_module_free(m);
}

static void modes_reach_every_child(void **state)
{
    (void)state;
    TH_SCOPE();
    th_module *m = net_new();
    assert_true(th_is_training(m));
    th_eval(m);
    assert_false(th_is_training(th_module_get(m, "fc2")));
    th_train(m, true);
    assert_true(th_is_training(th_module_get(m, "fc2")));
    th_backward(th_sum(th_forward(m, th_ones(TH_INTS(1, 4)))));
    assert_true(th_has_grad(th_module_parameter(m, "fc1.weight")));
    th_module_zero_grad(m);
    assert_false(th_has_grad(th_module_parameter(m, "fc1.weight")));
    th_module_requires_grad_(m, false);
    assert_false(th_requires_grad(th_module_parameter(m, "fc1.weight")));
    th_module_free(m);
}

static void to_keeps_the_tensor_objects(void **state)
{
    (void)state;
    TH_SCOPE();
    th_module *m = net_new();
    th_register_buffer(m, "counter", th_zeros(TH_INTS(1), .dtype = TH_INT64), true);
    th_tensor *weight = th_module_parameter(m, "fc1.weight");
    th_backward(th_sum(th_forward(m, th_ones(TH_INTS(1, 4)))));
    assert_int_equal(th_module_to(m, TH_CPU, TH_FLOAT64), TH_OK);
    assert_ptr_equal(th_module_parameter(m, "fc1.weight"), weight);
    assert_int_equal(th_dtype_of(weight), TH_FLOAT64);
    assert_int_equal(th_dtype_of(th_grad(weight)), TH_FLOAT64);
    assert_int_equal(th_dtype_of(th_module_buffer(m, "steps")), TH_FLOAT64);
    assert_int_equal(th_dtype_of(th_module_buffer(m, "counter")), TH_INT64);
    th_module_zero_grad(m);
    assert_int_equal(th_backward(th_sum(th_forward(m, th_ones(TH_INTS(1, 4), .dtype = TH_FLOAT64)))), TH_OK);
    expect_error(th_module_to(m, TH_CPU, TH_INT32) != TH_OK, TH_ERR_TYPE, "int32, expected a floating point");
    th_module_free(m);
}

static void meta_modules_get_memory_with_to_empty(void **state)
{
    (void)state;
    TH_SCOPE();
    th_module *m = th_nn_sequential(th_nn_linear(3, 3, .device = TH_META));
    th_register_parameter(m, "tied", th_module_parameter(m, "0.weight"));
    assert_int_equal(th_device_of(th_module_parameter(m, "0.weight")).type, TH_DEVICE_META);
    expect_error(th_module_to(m, TH_CPU, TH_DTYPE_NONE) != TH_OK, TH_ERR_NOT_IMPLEMENTED, "th_module_to_empty");
    assert_int_equal(th_module_to_empty(m, TH_CPU), TH_OK);
    assert_int_equal(th_device_of(th_module_parameter(m, "0.weight")).type, TH_DEVICE_CPU);
    assert_true(th_is_same(th_module_parameter(m, "0.weight"), th_module_parameter(m, "tied")));
    assert_true(th_requires_grad(th_module_parameter(m, "0.bias")));
    assert_int_equal(th_module_reset_parameters(th_module_get(m, "0")), TH_OK);
    assert_non_null(th_forward(m, th_ones(TH_INTS(1, 3))));
    th_module_free(m);
}

static void init_context_decides_dtype_and_device(void **state)
{
    (void)state;
    TH_SCOPE();
    th__init_context old = th__init_context_swap((th__init_context){TH_META, TH_BFLOAT16, false});
    th_module *m = th_nn_batch_norm1d(4), *own = th_nn_linear(1, 1, .device = TH_CPU, .dtype = TH_FLOAT64);
    th__init_context_swap((th__init_context){TH_CPU, TH_DTYPE_NONE, true});
    th_manual_seed(3);
    th_module *empty = th_nn_linear(64, 64);
    th_tensor *drawn = th_rand(TH_INTS(1));
    th__init_context_swap(old);
    th_manual_seed(3);
    assert_true(th_item(drawn) == th_item(th_rand(TH_INTS(1)))); /* nothing was drawn for `empty` */
    assert_int_equal(th_dtype_of(th_module_parameter(m, "weight")), TH_BFLOAT16);
    assert_int_equal(th_device_of(th_module_buffer(m, "running_mean")).type, TH_DEVICE_META);
    assert_int_equal(th_dtype_of(th_module_buffer(m, "num_batches_tracked")), TH_INT64);
    assert_int_equal(th_dtype_of(th_module_parameter(own, "weight")), TH_FLOAT64);
    th_module_free(m);
    th_module_free(own);
    th_module_free(empty);
}

static void printing_follows_pytorch(void **state)
{
    (void)state;
    th_module *m = net_new();
    th_register_module(m, "list", th_nn_module_list(th_nn_relu(), th_nn_relu(), th_nn_dropout(1e-5)));
    char *text = th_module_to_string(m);
    const char *head = "Net(\n  (fc1): Linear(in_features=4, out_features=3, bias=True)\n"
                       "  (fc2): Linear(in_features=3, out_features=2, bias=False)\n  (list): ModuleList(\n";
    assert_memory_equal(text, head, strlen(head));
    bool folded = strstr(text, "    (0-1): 2 x ReLU()\n    (2): Dropout(p=1e-05, inplace=False)\n  )\n)") != NULL;
    bool plain = strstr(text, "    (0): ReLU()\n    (1): ReLU()\n    (2): Dropout(p=1e-05, inplace=False)\n  )\n)") != NULL;
    assert_true(folded || plain); /* PyTorch 1 did not fold */
    free(text);
    th_module_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(new_needs_one_forward),
        TEST(names_are_unique_and_without_dots),
        TEST(a_module_cannot_contain_itself),
        TEST(paths_find_things),
        TEST(parameters_are_leaves_that_need_gradients),
        TEST(forward_lets_only_the_result_escape),
        TEST(several_inputs_and_outputs),
        TEST(errors_end_a_forward),
        TEST(hooks_change_inputs_and_outputs),
        TEST(a_wrapper_stands_before_the_module),
        TEST(iteration_is_in_pytorchs_order),
        TEST(shared_modules_and_tensors_count_once),
        TEST(apply_visits_children_first),
        TEST(modes_reach_every_child),
        TEST(to_keeps_the_tensor_objects),
        TEST(meta_modules_get_memory_with_to_empty),
        TEST(init_context_decides_dtype_and_device),
        TEST(printing_follows_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
