/* unit/optim/optimizer_test.c: groups, hyperparameters, closures, errors, optimizers of one's own, the wrapper seam. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/object.h"
#include "optim/internal.h"
#include <cfabric/autograd.h>
#include <cfabric/error.h>
#include <cfabric/ops.h>
#include <cfabric/optimizers.h>
#include <math.h>
#include <string.h>

static th_tensor *leaf(int64_t n, double value)
{
    return th_requires_grad_(th_full(TH_INTS(n), TH_S(value), .dtype = TH_FLOAT32), true);
}

static void give_grad(th_tensor *param, double value) { th_set_grad(param, th_full_like(param, TH_S(value))); }

static double first(th_tensor *tensor)
{
    TH_SCOPE();
    return th_item(th_narrow(th_detach(tensor), 0, 0, 1));
}

static void assert_error(th_status status, const char *part)
{
    assert_int_equal(th_error(), status);
    if (strstr(th_error_message(), part) == NULL) fail_msg("'%s' does not contain '%s'", th_error_message(), part);
    th_error_clear();
}

static void defaults_are_pytorch(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_tensors p = TH_TENSORS(leaf(2, 1));
    const struct {
        th_optimizer *opt;
        th_options expected;
    } table[] = {
        {th_optim_sgd(p), TH_OPTIONS({"lr", 1e-3}, {"momentum", 0}, {"dampening", 0}, {"weight_decay", 0}, {"nesterov", 0},
                                     {"maximize", 0}, {"foreach", -1}, {"differentiable", 0}, {"fused", -1})},
        {th_optim_adam(p), TH_OPTIONS({"lr", 1e-3}, {"betas.0", 0.9}, {"betas.1", 0.999}, {"eps", 1e-8}, {"weight_decay", 0},
                                      {"amsgrad", 0}, {"maximize", 0}, {"foreach", -1}, {"capturable", 0}, {"differentiable", 0},
                                      {"fused", -1}, {"decoupled_weight_decay", 0})},
        {th_optim_adamw(p), TH_OPTIONS({"lr", 1e-3}, {"betas.0", 0.9}, {"betas.1", 0.999}, {"eps", 1e-8}, {"weight_decay", 1e-2},
                                       {"amsgrad", 0}, {"decoupled_weight_decay", 1})},
        {th_optim_adadelta(p), TH_OPTIONS({"lr", 1.0}, {"rho", 0.9}, {"eps", 1e-6}, {"weight_decay", 0}, {"foreach", -1})},
        {th_optim_adagrad(p), TH_OPTIONS({"lr", 1e-2}, {"lr_decay", 0}, {"weight_decay", 0}, {"initial_accumulator_value", 0},
                                         {"eps", 1e-10}, {"fused", -1})},
        {th_optim_rmsprop(p),
         TH_OPTIONS({"lr", 1e-2}, {"alpha", 0.99}, {"eps", 1e-8}, {"weight_decay", 0}, {"momentum", 0}, {"centered", 0})},
        {th_optim_lbfgs(p), TH_OPTIONS({"lr", 1}, {"max_iter", 20}, {"max_eval", 25}, {"tolerance_grad", 1e-7},
                                       {"tolerance_change", 1e-9}, {"history_size", 100})},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_non_null(table[i].opt);
        for (size_t k = 0; k < table[i].expected.size; k++)
            assert_true(th_optimizer_get(table[i].opt, 0, table[i].expected.data[k].name) == table[i].expected.data[k].value);
        th_optimizer_free(table[i].opt);
    }
    assert_int_equal(th_error(), TH_OK);
}

/* BC-061: what a group does not set it inherits from the optimizer, not from the class. */
static void groups_inherit_the_optimizers_defaults(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_tensor *a = leaf(2, 1), *b = leaf(3, 1);
    th_optimizer *opt = th_optim_sgd(TH_TENSORS(a), .lr = 0.0, .momentum = 0.5);
    assert_int_equal(th_optimizer_add_param_group(opt, TH_TENSORS(b), TH_OPTIONS({"weight_decay", 0.1})), TH_OK);
    assert_int_equal(th_optimizer_n_groups(opt), 2);
    assert_true(th_optimizer_get(opt, 1, "lr") == 0.0);
    assert_true(th_optimizer_get(opt, 1, "momentum") == 0.5);
    assert_true(th_optimizer_get(opt, 1, "weight_decay") == 0.1);
    assert_true(th_optimizer_get(opt, 0, "weight_decay") == 0.0);
    /* Changing a group later does not change what new groups inherit. */
    th_optimizer_set(opt, 0, "lr", 3.0);
    assert_int_equal(th_optimizer_add_param_group(opt, TH_TENSORS(leaf(1, 1))), TH_OK);
    assert_true(th_optimizer_get(opt, 2, "lr") == 0.0);
    assert_true(th_is_same(th_optimizer_params(opt, 1).data[0], b));
    th_optimizer_free(opt);
}

static void groups_step_with_their_own_rate(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_tensor *a = leaf(2, 1), *b = leaf(3, 1), *none = leaf(1, 1);
    th_optimizer *opt = th_optim_sgd(TH_TENSORS(a, none), .lr = 0.5);
    assert_int_equal(th_optimizer_add_param_group(opt, TH_TENSORS(b), TH_OPTIONS({"lr", 0.25})), TH_OK);
    give_grad(a, 1);
    give_grad(b, 1);
    assert_int_equal(th_optimizer_step(opt), TH_OK);
    assert_true(first(a) == 0.5 && first(b) == 0.75 && first(none) == 1.0);
    th_optimizer_set(opt, 0, "lr", 0.0);
    assert_int_equal(th_optimizer_step(opt), TH_OK);
    assert_true(first(a) == 0.5 && first(b) == 0.5);
    th_optimizer_free(opt);
}

static void zero_grad_drops_or_fills(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_tensor *a = leaf(2, 1);
    th_optimizer *opt = th_optim_sgd(TH_TENSORS(a));
    give_grad(a, 3);
    assert_int_equal(th_optimizer_zero_grad(opt, .set_to_none = false), TH_OK);
    assert_true(th_has_grad(a) && first(th_grad(a)) == 0.0);
    assert_int_equal(th_optimizer_zero_grad(opt), TH_OK);
    assert_false(th_has_grad(a));
    th_optimizer_free(opt);
}

static void wrong_arguments_are_named(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_tensor *a = leaf(2, 1);
    th_tensors p = TH_TENSORS(a);
    assert_null(th_optim_sgd(p, .lr = -1));
    assert_error(TH_ERR_VALUE, "Invalid learning rate: -1");
    assert_null(th_optim_sgd(p, .lr = NAN));
    assert_error(TH_ERR_VALUE, "Invalid learning rate: nan");
    assert_null(th_optim_sgd(p, .momentum = -0.5));
    assert_error(TH_ERR_VALUE, "Invalid momentum value: -0.5");
    assert_null(th_optim_sgd(p, .nesterov = true));
    assert_error(TH_ERR_VALUE, "Nesterov momentum requires a momentum and zero dampening");
    assert_null(th_optim_adam(p, .betas = {0.9, 1.0}));
    assert_error(TH_ERR_VALUE, "Invalid beta parameter at index 1: 1");
    assert_null(th_optim_adamw(p, .eps = -1));
    assert_error(TH_ERR_VALUE, "Invalid epsilon value: -1");
    assert_null(th_optim_adadelta(p, .rho = 1.5));
    assert_error(TH_ERR_VALUE, "Invalid rho value: 1.5");
    assert_null(th_optim_adagrad(p, .lr_decay = -1));
    assert_error(TH_ERR_VALUE, "Invalid lr_decay value: -1");
    assert_null(th_optim_rmsprop(p, .alpha = -1));
    assert_error(TH_ERR_VALUE, "Invalid alpha value: -1");
    assert_null(th_optim_lbfgs(p, .line_search_fn = "armijo"));
    assert_error(TH_ERR_RUNTIME, "'armijo'");
    assert_null(th_optim_adam(p, .fused = TH_SOME_BOOL(true), .foreach = TH_SOME_BOOL(true)));
    assert_error(TH_ERR_RUNTIME, "cannot be `True` together");
    assert_null(th_optim_adam(p, .capturable = true));
    assert_error(TH_ERR_UNAVAILABLE, "capturable");
    assert_null(th_optim_sgd((th_tensors){NULL, 0}));
    assert_error(TH_ERR_VALUE, "empty parameter list");
    assert_null(th_optim_sgd(TH_TENSORS(th_mul_scalar(a, TH_S(2.0)))));
    assert_error(TH_ERR_VALUE, "non-leaf");
    assert_null(th_optim_sgd(TH_TENSORS(a, a)));
    assert_error(TH_ERR_VALUE, "params[0] and params[1] are the same tensor");
    assert_null(th_optim_sgd(TH_TENSORS((th_tensor *)NULL)));
    assert_int_not_equal(th_error_clear(), TH_OK);
}

static void a_failed_group_changes_nothing(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_tensor *a = leaf(2, 1), *b = leaf(2, 1);
    th_optimizer *opt = th_optim_sgd(TH_TENSORS(a), .lr = 0.1);
    th_status status = th_optimizer_add_param_group(opt, TH_TENSORS(b), TH_OPTIONS({"rho", 0.1}));
    assert_int_equal(status, TH_ERR_KEY);
    assert_error(TH_ERR_KEY, "SGD has no option 'rho'");
    status = th_optimizer_add_param_group(opt, TH_TENSORS(b), TH_OPTIONS({"lr", -0.1}));
    assert_int_equal(status, TH_ERR_VALUE);
    assert_error(TH_ERR_VALUE, "Invalid learning rate: -0.1");
    status = th_optimizer_add_param_group(opt, TH_TENSORS(b, a));
    assert_int_equal(status, TH_ERR_VALUE);
    assert_error(TH_ERR_VALUE, "params[1] is parameter 0 of group 0");
    assert_int_equal(th_optimizer_n_groups(opt), 1);
    assert_true(isnan(th_optimizer_get(opt, 0, "momentun")));
    assert_error(TH_ERR_KEY, "'momentun'");
    assert_true(isnan(th_optimizer_get(opt, 5, "lr")));
    assert_error(TH_ERR_VALUE, "group is 5, but the optimizer has 1 groups");
    th_optimizer_free(opt);
}

static void sparse_gradients_are_refused_by_name(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_tensor *w = th_requires_grad_(th_ones(TH_INTS(4, 2)), true);
    th_backward(th_sum(th_embedding(w, th_tensor_from((int64_t[]){1, 1}, TH_INTS(2), TH_INT64), .sparse = true)));
    th_optimizer *adam = th_optim_adam(TH_TENSORS(w));
    assert_int_not_equal(th_optimizer_step(adam), TH_OK);
    assert_error(TH_ERR_RUNTIME, "does not support sparse gradients");
    assert_null(th_optimizer_state(adam, 0, 0, "exp_avg"));
    th_optimizer *decayed = th_optim_adagrad(TH_TENSORS(w), .weight_decay = 0.1);
    assert_int_not_equal(th_optimizer_step(decayed), TH_OK);
    assert_error(TH_ERR_RUNTIME, "weight_decay option is not compatible with sparse gradients");
    th_optimizer_free(adam);
    th_optimizer_free(decayed);
}

/* ---------------------------------------------------------------- closures */

typedef struct closure_data {
    th_tensor *param;
    int calls;
    bool grad_mode;
    bool fail;
} closure_data;

static th_tensor *closure(void *user)
{
    closure_data *data = user;
    data->calls++;
    data->grad_mode = th_is_grad_enabled();
    if (data->fail) {
        th_error_set(TH_ERR_CALLBACK, "the closure gave up");
        return NULL;
    }
    th_set_grad(data->param, NULL);
    th_tensor *loss = th_sum(th_mul(data->param, data->param));
    th_backward(loss);
    return loss;
}

static void closures_run_with_gradients_on(void **unused)
{
    (void)unused;
    TH_SCOPE();
    closure_data data = {leaf(2, 1), 0, false, false};
    th_optimizer *opt = th_optim_sgd(TH_TENSORS(data.param), .lr = 0.25);
    TH_NO_GRAD();
    th_tensor *loss = th_optimizer_step_closure(opt, closure, &data);
    assert_non_null(loss);
    assert_true(th_item(loss) == 2.0 && data.calls == 1 && data.grad_mode && !th_is_grad_enabled());
    assert_true(first(data.param) == 0.5);
    data.fail = true;
    assert_null(th_optimizer_step_closure(opt, closure, &data));
    assert_error(TH_ERR_CALLBACK, "the closure gave up");
    assert_true(first(data.param) == 0.5);
    th_optimizer_free(opt);
}

static void lbfgs_needs_a_closure_and_one_group(void **unused)
{
    (void)unused;
    TH_SCOPE();
    closure_data data = {leaf(2, 3), 0, false, false};
    th_optimizer *opt = th_optim_lbfgs(TH_TENSORS(data.param), .line_search_fn = "strong_wolfe");
    assert_int_not_equal(th_optimizer_step(opt), TH_OK);
    assert_error(TH_ERR_VALUE, "th_optimizer_step_closure");
    assert_int_not_equal(th_optimizer_add_param_group(opt, TH_TENSORS(leaf(1, 1))), TH_OK);
    assert_error(TH_ERR_VALUE, "LBFGS doesn't support per-parameter options");
    assert_non_null(th_optimizer_step_closure(opt, closure, &data));
    assert_true(fabs(first(data.param)) < 1e-4 && data.calls > 1);
    data.fail = true;
    assert_null(th_optimizer_step_closure(opt, closure, &data));
    assert_error(TH_ERR_CALLBACK, "gave up");
    th_optimizer_free(opt);
}

/* ---------------------------------------------------------------- one's own class */

static int freed;

static th_status sign_step(th_optimizer *self, size_t group)
{
    th_tensors params = th_optimizer_params(self, group);
    for (size_t i = 0; i < params.size; i++) {
        th_tensor *grad = th_grad(params.data[i]);
        if (grad == NULL) continue;
        th_tensor *count = th_optimizer_state(self, group, i, "count");
        if (count == NULL)
            th_optimizer_set_state(self, group, i, "count", th_ones_like(grad));
        else
            th_add_scalar_(count, TH_S(1));
        th_add_(params.data[i], th_sign(grad), .alpha = TH_S(-th_optimizer_get(self, group, "lr")));
    }
    return th_error();
}

static void count_free(void *data) { (*(int *)data)++; }

static const th_option_spec sign_options[] = {{"lr", TH_OPTION_DOUBLE, 0.125, 0, NULL}};
static const char *const sign_state[] = {"count"};
static const th_optimizer_ops sign_ops = {.size = sizeof(th_optimizer_ops),
                                          .name = "Sign",
                                          .options = sign_options,
                                          .n_options = 1,
                                          .state_names = sign_state,
                                          .n_state = 1,
                                          .step = sign_step,
                                          .free_data = count_free};

static void own_optimizers_work(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_tensor *a = leaf(2, 1);
    th_optimizer *opt = th_optimizer_new(&sign_ops, TH_TENSORS(a), TH_OPTIONS({"lr", 0.25}), .data = &freed);
    assert_non_null(opt);
    assert_string_equal(th_optimizer_class(opt), "Sign");
    give_grad(a, -7);
    assert_int_equal(th_optimizer_step(opt), TH_OK);
    assert_int_equal(th_optimizer_step(opt), TH_OK);
    assert_true(first(a) == 1.5 && first(th_optimizer_state(opt, 0, 0, "count")) == 2.0);
    assert_int_equal(th_optimizer_set_state(opt, 0, 0, "moment", a), TH_ERR_KEY);
    assert_error(TH_ERR_KEY, "Sign keeps no state 'moment'");
    th_optimizer_free(opt);
    assert_int_equal(freed, 1);
    assert_null(th_optimizer_new(&sign_ops, TH_TENSORS(a), TH_OPTIONS({"mu", 0.25}), .data = &freed));
    assert_error(TH_ERR_KEY, "Sign has no option 'mu'");
    assert_int_equal(freed, 2);
}

/* ---------------------------------------------------------------- the seam */

typedef struct wrapper_log {
    int steps, frees;
} wrapper_log;

static th_tensor *wrapped_step(th_optimizer *optimizer, void *wrapper, th_closure fn, void *user)
{
    ((wrapper_log *)wrapper)->steps++;
    return th__optimizer_step_inner(optimizer, fn, user);
}
static void wrapped_free(void *wrapper) { ((wrapper_log *)wrapper)->frees++; }
static const th__optimizer_wrapper wrapper_ops = {wrapped_step, NULL, NULL, wrapped_free};

static void the_wrapper_sees_every_step(void **unused)
{
    (void)unused;
    TH_SCOPE();
    wrapper_log log = {0, 0};
    th_tensor *a = leaf(2, 1);
    th_optimizer *opt = th_optim_sgd(TH_TENSORS(a), .lr = 0.5);
    assert_int_equal(th__optimizer_set_wrapper(opt, &wrapper_ops, &log), TH_OK);
    give_grad(a, 1);
    assert_int_equal(th_optimizer_step(opt), TH_OK);
    assert_true(log.steps == 1 && first(a) == 0.5);
    assert_int_equal(th__optimizer_set_wrapper(opt, &wrapper_ops, &log), TH_ERR_VALUE);
    assert_error(TH_ERR_VALUE, "has been set up already");
    assert_int_equal(th__optimizer_set_wrapper(opt, NULL, NULL), TH_OK);
    assert_int_equal(log.frees, 1);
    assert_int_equal(th_optimizer_step(opt), TH_OK);
    assert_int_equal(log.steps, 1);
    th_optimizer_free(opt);
    assert_int_equal(log.frees, 1);
}

static void fused_is_used_or_refused_clearly(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_tensor *a = leaf(2, 1);
    th_optimizer *opt = th_optim_adam(TH_TENSORS(a), .fused = TH_SOME_BOOL(true));
    assert_true(th__optimizer_is_fused(opt));
    give_grad(a, 1);
    if (th_optimizer_step(opt) == TH_OK)
        assert_true(first(a) < 1.0);
    else
        assert_error(TH_ERR_UNAVAILABLE, "has no cpu kernel of aten::_fused_adam_");
    th_optimizer_free(opt);
}

static void steps_leave_no_tensors_and_no_objects(void **unused)
{
    (void)unused;
    size_t objects = th__objects_live(NULL);
    TH_SCOPE();
    th_tensor *a = leaf(2, 1);
    give_grad(a, 1);
    th_optimizer *opts[] = {th_optim_adam(TH_TENSORS(a), .amsgrad = true), th_optim_adadelta(TH_TENSORS(a)),
                            th_optim_sgd(TH_TENSORS(a), .momentum = 0.9)};
    size_t live = th_scope_live();
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 3; i++) assert_int_equal(th_optimizer_step(opts[k]), TH_OK);
        th_optimizer_free(opts[k]);
    }
    assert_int_equal(th_scope_live(), live);
    assert_int_equal(th__objects_live(NULL), objects);
}

static void nothing_happens_while_an_error_is_pending(void **unused)
{
    (void)unused;
    TH_SCOPE();
    th_tensor *a = leaf(2, 1);
    th_optimizer *opt = th_optim_sgd(TH_TENSORS(a), .lr = 0.5);
    give_grad(a, 1);
    th_error_set(TH_ERR_VALUE, "earlier");
    assert_int_equal(th_optimizer_step(opt), TH_ERR_VALUE);
    assert_null(th_optim_sgd(TH_TENSORS(a)));
    assert_null(th_optimizer_state_dict(opt));
    assert_string_equal(th_error_message(), "earlier");
    th_error_clear();
    assert_true(first(a) == 1.0);
    th_optimizer_free(opt);
    th_optimizer_free(NULL);
}

int main(void)
{
    th_set_error_policy(TH_ERROR_RETURN, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_pytorch),
        cmocka_unit_test(groups_inherit_the_optimizers_defaults),
        cmocka_unit_test(groups_step_with_their_own_rate),
        cmocka_unit_test(zero_grad_drops_or_fills),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(a_failed_group_changes_nothing),
        cmocka_unit_test(sparse_gradients_are_refused_by_name),
        cmocka_unit_test(closures_run_with_gradients_on),
        cmocka_unit_test(lbfgs_needs_a_closure_and_one_group),
        cmocka_unit_test(own_optimizers_work),
        cmocka_unit_test(the_wrapper_sees_every_step),
        cmocka_unit_test(fused_is_used_or_refused_clearly),
        cmocka_unit_test(steps_leave_no_tensors_and_no_objects),
        cmocka_unit_test(nothing_happens_while_an_error_is_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
