/* Backward, clipping, optimizer steps, regions: semantics 8.6, 8.7, 8.9, 8.11, 8.12, 9.1, 9.2, 21 items 41, 42, 53, 55-58, 62. */
#include "fabric_support.h"

#include <math.h>

/* ---- backward */

static th_tensor *loss_of(th_module *model)
{
    return th_sum(th_forward(model, th_ones(TH_INTS(3, 2))));
}

static void plain_backward_is_allowed(void **state)
{
    (void)state;
    fabric *fab = fabric_plain();
    th_module *model = th_nn_linear(2, 2);
    fabric_setup(fab, model);
    assert_int_equal(th_backward(loss_of(model)), TH_OK);
    assert_int_equal(fabric_backward(fab, loss_of(model)), TH_OK);
    assert_true(th_item(th_select_int(th_grad(th_module_parameter(model, "bias")), 0, 0)) == 6.0); /* accumulated twice */
    th_module_free(model);
    assert_int_equal(fabric_finish(fab), 0);
}

static th_tensors two_outputs(th_module *self, th_tensors inputs)
{
    th_tensor *weight = th_module_parameter(self, "weight");
    return th_list(TH_TENSORS(th_mul(weight, inputs.data[0]), th_add(weight, inputs.data[0])));
}

static void guarded_backward(void **state)
{
    (void)state;
    struct watch watch = {0};
    fabric *fab = fabric_watched(&watch);
    th_module *first = th_nn_linear(2, 2), *second = th_nn_linear(2, 2);
    th_module *pair = th_module_new("Pair", .forward_n = two_outputs);
    th_register_parameter(pair, "weight", th_ones(TH_INTS(2)));
    fabric_setup(fab, first), fabric_setup(fab, second), fabric_setup(fab, pair);
    assert_ok();

    th_backward(loss_of(first));
    assert_raised(TH_ERR_RUNTIME, "fabric_backward");
    assert_int_equal(fabric_backward(fab, loss_of(first)), TH_OK);
    th_backward(loss_of(first)); /* the flag is lowered again */
    assert_raised(TH_ERR_RUNTIME, "fabric_backward");

    /* after a failed backward too */
    fabric_backward(fab, th_ones(TH_INTS(2)));
    assert_int_not_equal(th_error(), TH_OK);
    th_error_clear();
    th_backward(loss_of(first));
    assert_raised(TH_ERR_RUNTIME, "fabric_backward");

    /* chained models, and every one of several outputs */
    th_backward(th_sum(th_forward(second, th_forward(first, th_ones(TH_INTS(1, 2))))));
    assert_raised(TH_ERR_RUNTIME, "fabric_backward");
    th_tensors outputs = th_forward_n(pair, TH_TENSORS(th_ones(TH_INTS(2))));
    assert_int_equal(outputs.size, 2);
    th_backward(th_sum(outputs.data[1]));
    assert_raised(TH_ERR_RUNTIME, "fabric_backward");
    outputs = th_forward_n(pair, TH_TENSORS(th_ones(TH_INTS(2))));
    assert_int_equal(fabric_backward(fab, th_sum(th_add(outputs.data[0], outputs.data[1]))), TH_OK);
    {
        TH_NO_GRAD();
        assert_false(th_requires_grad(th_forward(first, th_ones(TH_INTS(1, 2)))));
    }
    th_module_free(first), th_module_free(second), th_module_free(pair);
    assert_int_equal(fabric_finish(fab), 0);
}

static void backward_arguments(void **state)
{
    (void)state;
    fabric *fab = fabric_plain();
    th_tensor *x = th_requires_grad_(th_ones(TH_INTS(2)), true), *y = th_requires_grad_(th_ones(TH_INTS(2)), true);
    th_tensor *z = th_sum(th_mul(x, y));
    assert_int_equal(fabric_backward(fab, z, .retain_graph = TH_SOME_BOOL(true)), TH_OK);
    assert_int_equal(fabric_backward(fab, z, .inputs = TH_TENSORS(x)), TH_OK);
    assert_true(th_item(th_sum(th_grad(x))) == 4.0);
    assert_true(th_item(th_sum(th_grad(y))) == 2.0);
    assert_int_equal(fabric_backward(fab, th_mul(x, y), .gradient = th_full(TH_INTS(2), TH_S(3.0))), TH_OK);
    assert_true(th_item(th_sum(th_grad(y))) == 8.0);
    fabric_backward(fab, NULL);
    assert_raised(TH_ERR_TYPE, "the tensor is NULL");
    assert_int_equal(fabric_finish(fab), 0);
}

/* ---- clipping (item 57) */

static th_module *linear_with_gradient(void)
{
    th_module *model = th_nn_linear(32, 2, .bias = false);
    TH_NO_GRAD();
    th_fill_scalar_(th_module_parameter(model, "weight"), TH_S(0.01));
    return model;
}

static void backward_once(fabric *fab, th_module *model, th_optimizer *optimizer)
{
    th_optimizer_zero_grad(optimizer);
    fabric_backward(fab, th_sum(th_forward(model, th_full(TH_INTS(1, 32), TH_S(0.1)))));
}

static double grad_norm(th_module *model)
{
    return th_item(th_linalg_vector_norm(th_grad(th_module_parameter(model, "weight"))));
}

static void clipping(void **state)
{
    (void)state;
    fabric *fab = fabric_plain();
    th_module *model = linear_with_gradient();
    th_optimizer *optimizer = th_optim_sgd(th_parameters(model), .lr = 0.1);
    fabric_setup(fab, model, optimizer);

    backward_once(fab, model, optimizer);
    assert_true(fabs(grad_norm(model) - 0.8) < 1e-6);
    th_tensor *norm = fabric_clip_gradients(fab, model, optimizer, .max_norm = 0.4);
    assert_true(fabs(th_item(norm) - 0.8) < 1e-6); /* the norm before */
    assert_true(fabs(grad_norm(model) - 0.4) < 1e-5);

    backward_once(fab, model, optimizer);
    assert_null(fabric_clip_gradients(fab, model, optimizer, .clip_val = 0.05));
    assert_ok();
    assert_true(fabs(th_item(th_max(th_grad(th_module_parameter(model, "weight")))) - 0.05) < 1e-7);
    assert_true(fabs(th_item(th_min(th_grad(th_module_parameter(model, "weight")))) - 0.05) < 1e-7);

    backward_once(fab, model, optimizer);
    norm = fabric_clip_gradients(fab, model, optimizer, .max_norm = 0.05, .norm_type = INFINITY);
    assert_true(fabs(th_item(norm) - 0.1) < 1e-7);

    fabric_clip_gradients(fab, model, optimizer, .max_norm = 1.0, .clip_val = 1.0);
    assert_raised(TH_ERR_VALUE, "only one of them");
    fabric_clip_gradients(fab, model, optimizer);
    assert_raised(TH_ERR_VALUE, "neither clip_val nor max_norm");

    th_set_grad(th_module_parameter(model, "weight"), th_full(TH_INTS(2, 32), TH_S((double)INFINITY)));
    assert_null(fabric_clip_gradients(fab, model, optimizer, .max_norm = 1.0));
    assert_raised(TH_ERR_RUNTIME, "cannot be clipped");
    norm = fabric_clip_gradients(fab, model, optimizer, .max_norm = 1.0, .error_if_nonfinite = false);
    assert_true(isinf(th_item(norm)));

    th_optimizer_zero_grad(optimizer);
    norm = fabric_clip_gradients(fab, model, optimizer, .max_norm = 1.0); /* no gradients */
    assert_true(th_item(norm) == 0.0);
    th_optimizer_free(optimizer);
    th_module_free(model);
    assert_int_equal(fabric_finish(fab), 0);
}

/* ---- optimizer steps and hooks (item 41) */

struct seen { int setups, steps; th_module *module; th_optimizer *optimizer; bool strategy; };

static th_status on_after_setup(fabric *fab, fabric_args args, void *user)
{
    struct seen *seen = user;
    seen->setups++;
    seen->module = fabric_args_module(args, "module");
    return fabric_is_wrapped(seen->module) && fabric_world_size(fab) == 1 ? TH_OK : TH_ERR_CALLBACK;
}

static th_status on_after_step(fabric *fab, fabric_args args, void *user)
{
    struct seen *seen = user;
    seen->steps++;
    seen->optimizer = fabric_args_optimizer(args, "optimizer");
    const fabric_arg *strategy = fabric_args_find(args, "strategy");
    seen->strategy = strategy != NULL && strategy->p == fabric_strategy_of(fab);
    return TH_OK;
}

static const fabric_hook seeing[] = {{"on_after_setup", on_after_setup}, {"on_after_optimizer_step", on_after_step}, {NULL, NULL}};

static th_tensor *closure(void *user)
{
    return loss_of(user);
}

static void hooks_are_called(void **state)
{
    (void)state;
    struct seen seen = {0};
    fabric *fab = fabric_new(.accelerator = "cpu", .callbacks = FABRIC_CALLBACKS({"seeing", seeing, &seen, NULL}));
    th_module *model = th_nn_linear(2, 2), *alone = th_nn_linear(2, 2);
    th_optimizer *optimizer = th_optim_sgd(th_parameters(model), .lr = 0.1);
    assert_int_equal(fabric_setup(fab, model, optimizer), TH_OK);
    assert_int_equal(seen.setups, 1);
    assert_ptr_equal(seen.module, model);
    assert_int_equal(fabric_setup_module(fab, alone), TH_OK); /* fires none */
    assert_int_equal(seen.setups, 1);
    fabric_backward(fab, loss_of(model));
    assert_int_equal(th_optimizer_step(optimizer), TH_OK);
    assert_int_equal(seen.steps, 1);
    assert_ptr_equal(seen.optimizer, optimizer);
    assert_true(seen.strategy);
    th_tensor *loss = th_optimizer_step_closure(optimizer, closure, model);
    assert_non_null(loss);
    assert_int_equal(seen.steps, 2);
    th_optimizer_free(optimizer);
    th_module_free(model), th_module_free(alone);
    assert_int_equal(fabric_finish(fab), 0);
}

/* ---- regions */

static void no_backward_sync(void **state)
{
    (void)state;
    fabric *fab = fabric_plain();
    th_module *model = th_nn_linear(2, 2);
    {
        FABRIC_NO_BACKWARD_SYNC(fab, model, true);
        assert_raised(TH_ERR_TYPE, "the module is not set up");
    }
    fabric_setup(fab, model);
    {
        FABRIC_NO_BACKWARD_SYNC(fab, model, true);
        fabric_backward(fab, loss_of(model));
    }
    {
        FABRIC_NO_BACKWARD_SYNC(fab, model, false);
    }
    assert_ok();
    assert_int_equal(support_message_count, 0); /* silent on a single device */
    th_module_free(model);
    assert_int_equal(fabric_finish(fab), 0);
}

static const fabric_strategy_ops unable_ops = {.size = sizeof unable_ops, .name = "UnableStrategy", .single_process = true};

static void no_backward_sync_without_support(void **state)
{
    (void)state;
    fabric *fab = fabric_new(.accelerator = "cpu", .strategy_object = fabric_strategy_new(&unable_ops, NULL));
    assert_ok();
    th_module *model = th_nn_linear(2, 2);
    fabric_setup(fab, model);
    support_message_count = 0;
    for (int i = 0; i < 3; i++) {
        FABRIC_NO_BACKWARD_SYNC(fab, model, true);
    }
    assert_int_equal(support_message_count, 1); /* one warning */
    assert_non_null(strstr(support_messages, "UnableStrategy"));
    th_module_free(model);
    assert_int_equal(fabric_finish(fab), 0);
}

static void autocast_region(void **state)
{
    (void)state;
    struct watch watch = {0};
    fabric *fab = fabric_watched(&watch);
    {
        FABRIC_AUTOCAST(fab);
        assert_int_equal(watch.entered, 1);
        assert_int_equal(watch.left, 0);
        th_error_set(TH_ERR_VALUE, "inside");
    }
    assert_int_equal(watch.left, 1); /* also with an error pending */
    assert_raised(TH_ERR_VALUE, "inside");
    fabric_guard guard = fabric_autocast(fab);
    fabric_leave(&guard);
    fabric_leave(&guard);
    assert_int_equal(watch.left, 2);
    assert_int_equal(fabric_finish(fab), 0);
}

static void init_regions(void **state)
{
    (void)state;
    struct watch watch = {.init_dtype = TH_FLOAT64};
    fabric *fab = fabric_watched(&watch);
    th_module *model;
    {
        FABRIC_INIT_MODULE(fab, 0);
        model = th_nn_linear(4, 4);
        assert_int_equal(th_dtype_of(th_module_parameter(model, "weight")), TH_FLOAT64);
        th_module_free(model);
        th_error_set(TH_ERR_VALUE, "inside");
    }
    assert_raised(TH_ERR_VALUE, "inside");
    assert_int_equal(th_get_default_dtype(), TH_FLOAT32); /* restored although an error was pending */
    {
        FABRIC_INIT_TENSOR(fab);
        assert_int_equal(th_dtype_of(th_zeros(TH_INTS(2))), TH_FLOAT64);
        assert_int_equal(th_dtype_of(th_tensor_scalar(TH_S(42.0), TH_DTYPE_NONE)), TH_FLOAT64);
        assert_int_equal(th_dtype_of(th_tensor_scalar(TH_S(42), TH_DTYPE_NONE)), TH_INT64);
        assert_int_equal(th_dtype_of(th_zeros(TH_INTS(2), .dtype = TH_FLOAT16)), TH_FLOAT16);
    }
    assert_int_equal(th_get_default_dtype(), TH_FLOAT32);
    assert_int_equal(fabric_finish(fab), 0);
}

/* Item 56: with empty_init the initialisers do not run, so no random number is drawn. */
static void empty_init(void **state)
{
    (void)state;
    fabric *fab = fabric_plain();
    for (int choice = -1; choice <= 1; choice++) {
        th_manual_seed(1);
        double untouched = th_item(th_rand(TH_INTS(1)));
        th_manual_seed(1);
        {
            FABRIC_INIT_MODULE(fab, choice);
            th_module_free(th_nn_linear(4, 4));
        }
        bool drew = th_item(th_rand(TH_INTS(1))) != untouched;
        assert_int_equal(drew, choice != 1);
    }
    assert_int_equal(fabric_finish(fab), 0);
}

static void rank_zero_first(void **state)
{
    (void)state;
    fabric *fab = fabric_plain(); /* before launching */
    int ran = 0;
    {
        FABRIC_RANK_ZERO_FIRST(fab, true);
        ran++;
    }
    fabric_launch(fab);
    {
        FABRIC_RANK_ZERO_FIRST(fab, false);
        ran++;
    }
    assert_int_equal(ran, 2);
    assert_ok();
    assert_int_equal(fabric_finish(fab), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FABRIC_CASE(plain_backward_is_allowed),
        FABRIC_CASE(guarded_backward),
        FABRIC_CASE(backward_arguments),
        FABRIC_CASE(clipping),
        FABRIC_CASE(hooks_are_called),
        FABRIC_CASE(no_backward_sync),
        FABRIC_CASE(no_backward_sync_without_support),
        FABRIC_CASE(autocast_region),
        FABRIC_CASE(init_regions),
        FABRIC_CASE(empty_init),
        FABRIC_CASE(rank_zero_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
