/* unit/optim/state_test.c: state dicts of optimizers: their form, exact continuation (BC-067), refusals that name both sides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/object.h"
#include <cfabric/autograd.h>
#include <cfabric/error.h>
#include <cfabric/ops.h>
#include <cfabric/optimizers.h>
#include <stdio.h>
#include <string.h>

enum { N = 2 };
typedef struct model {
    th_tensor *p[N];
} model;

static model new_model(void)
{
    th_manual_seed(3);
    return (model){
        {th_keep(th_requires_grad_(th_randn(TH_INTS(4, 3)), true)), th_keep(th_requires_grad_(th_randn(TH_INTS(5)), true))}};
}

static void free_model(model *m)
{
    for (int i = 0; i < N; i++) th_free(m->p[i]);
}

static void grads(model *m, int step)
{
    TH_SCOPE();
    th_manual_seed(100 + (uint64_t)step);
    for (int i = 0; i < N; i++) th_set_grad(m->p[i], th_randn(th_sizes(m->p[i])));
}

static th_tensor *loss(void *user)
{
    model *m = user;
    for (int i = 0; i < N; i++) th_set_grad(m->p[i], NULL);
    th_tensor *sum = th_add(th_sum(th_cosh(m->p[0])), th_sum(th_mul(th_mul(m->p[1], m->p[1]), m->p[1])));
    th_tensor *total = th_add(th_mul(sum, sum), th_sum(th_cosh(m->p[1])));
    th_backward(total);
    return total;
}

typedef th_optimizer *(*maker)(model *m);
#define PARAMS ((th_tensors){m->p, N})
static th_optimizer *sgd(model *m) { return th_optim_sgd(PARAMS, .lr = 0.1, .momentum = 0.9, .weight_decay = 0.01); }
static th_optimizer *adam(model *m) { return th_optim_adam(PARAMS, .amsgrad = true); }
static th_optimizer *adamw(model *m) { return th_optim_adamw(PARAMS, .lr = 0.01, .betas = {0.8, 0.9}); }
static th_optimizer *adadelta(model *m) { return th_optim_adadelta(PARAMS); }
static th_optimizer *adagrad(model *m) { return th_optim_adagrad(PARAMS, .lr_decay = 0.1, .initial_accumulator_value = 0.1); }
static th_optimizer *rmsprop(model *m) { return th_optim_rmsprop(PARAMS, .momentum = 0.9, .centered = true); }
static th_optimizer *lbfgs(model *m) { return th_optim_lbfgs(PARAMS, .lr = 0.01, .max_iter = 3, .history_size = 4); }
static th_optimizer *lbfgs_wolfe(model *m) { return th_optim_lbfgs(PARAMS, .max_iter = 3, .line_search_fn = "strong_wolfe"); }

static void step(th_optimizer *opt, model *m, int i)
{
    TH_SCOPE();
    if (strcmp(th_optimizer_class(opt), "LBFGS") == 0) {
        assert_non_null(th_optimizer_step_closure(opt, loss, m));
    } else {
        grads(m, i);
        assert_int_equal(th_optimizer_step(opt), TH_OK);
    }
}

static bool equal(model *a, model *b)
{
    TH_SCOPE();
    bool same = true;
    for (int i = 0; i < N; i++) same = same && th_equal(a->p[i], b->p[i]);
    return same;
}

static void copy(model *to, model *from)
{
    TH_SCOPE();
    TH_NO_GRAD();
    for (int i = 0; i < N; i++) th_copy_(to->p[i], from->p[i]);
}

static void assert_error(th_status status, const char *part)
{
    assert_int_equal(th_error(), status);
    if (strstr(th_error_message(), part) == NULL) fail_msg("'%s' does not contain '%s'", th_error_message(), part);
    th_error_clear();
}

/* Three steps, save, load into a fresh optimizer made with other options, three more: equal to six in a row. */
static void continuing(maker make, maker other)
{
    TH_SCOPE();
    model straight = new_model(), resumed = new_model();
    th_optimizer *a = make(&straight), *b = other(&resumed);
    for (int i = 0; i < 3; i++) step(a, &straight, i);
    copy(&resumed, &straight);
    th_value *state = th_optimizer_state_dict(a);
    assert_int_equal(th_optimizer_load_state_dict(b, state), TH_OK);
    th_value *again = th_optimizer_state_dict(b);
    assert_true(th_value_equal(state, again));
    th_value_free(again);
    th_value_free(state);
    for (int i = 3; i < 6; i++) {
        step(a, &straight, i); /* the state of one does not follow the other */
        step(b, &resumed, i);
        assert_true(equal(&straight, &resumed));
    }
    th_optimizer_free(a);
    th_optimizer_free(b);
    free_model(&straight);
    free_model(&resumed);
    assert_int_equal(th_error(), TH_OK);
}

static th_optimizer *plain_sgd(model *m) { return th_optim_sgd(PARAMS); }
static th_optimizer *plain_adam(model *m) { return th_optim_adam(PARAMS); }
static th_optimizer *plain_adamw(model *m) { return th_optim_adamw(PARAMS); }
static th_optimizer *plain_lbfgs(model *m) { return th_optim_lbfgs(PARAMS); }

static void a_resumed_run_equals_the_uninterrupted_one(void **unused)
{
    (void)unused;
    continuing(sgd, plain_sgd);
    continuing(adam, plain_adam);
    continuing(adamw, plain_adamw);
    continuing(adadelta, adadelta);
    continuing(adagrad, adagrad);
    continuing(rmsprop, rmsprop);
    continuing(lbfgs, plain_lbfgs);
    continuing(lbfgs_wolfe, plain_lbfgs);
}

static void the_form_is_pytorchs(void **unused)
{
    (void)unused;
    TH_SCOPE();
    model m = new_model();
    th_optimizer *opt = adam(&m);
    th_value *state = th_optimizer_state_dict(opt);
    assert_int_equal(th_value_size(th_value_get(state, "state")), 0);
    th_value_free(state);
    step(opt, &m, 0);
    state = th_optimizer_state_dict(opt);
    th_value *second = th_value_get_int(th_value_get(state, "state"), 1);
    const char *const keys[] = {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
    assert_int_equal(th_value_size(second), 4);
    for (size_t i = 0; i < 4; i++) assert_string_equal(th_value_key_at(second, i, NULL), keys[i]);
    th_tensor *count = th_value_as_tensor(th_value_get(second, "step"));
    assert_true(th_dtype_of(count) == TH_FLOAT32 && th_dim(count) == 0 && th_item(count) == 1.0);
    th_value *group = th_value_at(th_value_get(state, "param_groups"), 0);
    th_value *betas = th_value_get(group, "betas");
    assert_true(th_value_kind_of(betas) == TH_VALUE_TUPLE && th_value_as_double(th_value_at(betas, 1), 0) == 0.999);
    assert_true(th_value_kind_of(th_value_get(group, "foreach")) == TH_VALUE_NONE);
    assert_true(th_value_kind_of(th_value_get(group, "amsgrad")) == TH_VALUE_BOOL);
    th_value *ids = th_value_get(group, "params");
    assert_true(th_value_size(ids) == 2 && th_value_as_int(th_value_at(ids, 1), -1) == 1);
    th_value_free(state);
    th_optimizer_free(opt);
    free_model(&m);
}

/* BC-067: betas come from the file; a file without state begins at 0. */
static void without_saved_state_the_counter_is_zero(void **unused)
{
    (void)unused;
    TH_SCOPE();
    model m = new_model();
    th_optimizer *opt = adamw(&m), *used = plain_adamw(&m);
    th_value *empty = th_optimizer_state_dict(opt);
    for (int i = 0; i < 3; i++) step(used, &m, i);
    assert_non_null(th_optimizer_state(used, 0, 0, "exp_avg"));
    assert_int_equal(th_optimizer_load_state_dict(used, empty), TH_OK);
    assert_null(th_optimizer_state(used, 0, 0, "step"));
    assert_true(th_optimizer_get(used, 0, "betas.0") == 0.8);
    step(used, &m, 3);
    assert_true(th_item(th_optimizer_state(used, 0, 0, "step")) == 1.0);
    th_value_free(empty);
    th_optimizer_free(opt);
    th_optimizer_free(used);
    free_model(&m);
}

static void wrong_counts_name_both_sides(void **unused)
{
    (void)unused;
    TH_SCOPE();
    model m = new_model();
    th_optimizer *one = adam(&m), *two = th_optim_adam((th_tensors){m.p, 1});
    th_value *state = th_optimizer_state_dict(one);
    assert_int_equal(th_optimizer_load_state_dict(two, state), TH_ERR_VALUE);
    assert_error(TH_ERR_VALUE, "2 parameters in group 0, the optimizer has 1");
    assert_int_equal(th_optimizer_add_param_group(two, (th_tensors){m.p + 1, 1}), TH_OK);
    assert_int_equal(th_optimizer_load_state_dict(two, state), TH_ERR_VALUE);
    assert_error(TH_ERR_VALUE, "1 parameter groups, the optimizer has 2");
    th_value *junk = th_value_dict();
    assert_int_equal(th_optimizer_load_state_dict(one, junk), TH_ERR_VALUE);
    assert_error(TH_ERR_VALUE, "'state' and 'param_groups'");
    th_value_free(junk);
    th_value_free(state);
    th_optimizer_free(one);
    th_optimizer_free(two);
    free_model(&m);
}

static th_value *entry_of(th_value *state, int64_t id) { return th_value_get_int(th_value_get(state, "state"), id); }

/* BC-067: wrongly shaped state is refused, and nothing has changed. */
static void wrong_state_is_refused_and_changes_nothing(void **unused)
{
    (void)unused;
    TH_SCOPE();
    model m = new_model();
    th_optimizer *opt = adam(&m), *plain = sgd(&m);
    step(opt, &m, 0);
    th_value *before = th_optimizer_state_dict(opt), *copy_of = th_value_copy(before, true), *state = th_value_copy(before, true);
    th_value_set(entry_of(state, 1), "exp_avg", th_value_tensor(th_zeros(TH_INTS(5, 1))));
    th_value_set(th_value_at(th_value_get(state, "param_groups"), 0), "lr", th_value_double(7));
    assert_int_equal(th_optimizer_load_state_dict(opt, state), TH_ERR_VALUE);
    assert_error(TH_ERR_VALUE, "Adam state 'exp_avg' of parameter 1 has sizes [5, 1], expected [5]");
    th_value *after = th_optimizer_state_dict(opt);
    assert_true(th_value_equal(copy_of, after));
    th_value_free(after);
    assert_int_equal(th_optimizer_load_state_dict(plain, before), TH_ERR_KEY);
    assert_error(TH_ERR_KEY, "state 'step' of parameter 0 is not one that SGD keeps");
    th_value_set(entry_of(state, 1), "exp_avg", th_value_string("no"));
    assert_int_equal(th_optimizer_load_state_dict(opt, state), TH_ERR_TYPE);
    assert_error(TH_ERR_TYPE, "'exp_avg' of parameter 1 is a str, expected a tensor");
    th_value_free(state);
    state = th_value_copy(before, true);
    th_value_set(th_value_at(th_value_get(state, "param_groups"), 0), "betas", th_value_double(7));
    assert_int_equal(th_optimizer_load_state_dict(opt, state), TH_ERR_TYPE);
    assert_error(TH_ERR_TYPE, "option 'betas' of group 0 is a float");
    th_value_free(state);
    th_value_free(before);
    th_value_free(copy_of);
    th_optimizer_free(opt);
    th_optimizer_free(plain);
    free_model(&m);
}

/* Files of older PyTorch versions have counters that are ints or have one element; other dtypes are cast. */
static void older_forms_are_read(void **unused)
{
    (void)unused;
    TH_SCOPE();
    model m = new_model();
    th_optimizer *opt = adadelta(&m), *momentum = sgd(&m);
    step(opt, &m, 0);
    th_value *state = th_optimizer_state_dict(opt);
    th_value *changed = th_value_copy(state, true);
    th_value_set(entry_of(changed, 0), "step", th_value_int(41));
    th_value_set(entry_of(changed, 1), "step", th_value_tensor(th_full(TH_INTS(1), TH_S(41.0))));
    th_value_set(entry_of(changed, 1), "square_avg", th_value_tensor(th_ones(TH_INTS(5), .dtype = TH_FLOAT64)));
    th_value_remove(th_value_at(th_value_get(changed, "param_groups"), 0), "maximize");
    assert_int_equal(th_optimizer_load_state_dict(opt, changed), TH_OK);
    for (size_t i = 0; i < 2; i++) assert_true(th_item(th_optimizer_state(opt, 0, i, "step")) == 41.0);
    assert_true(th_dtype_of(th_optimizer_state(opt, 0, 1, "square_avg")) == TH_FLOAT32);
    step(opt, &m, 1);
    assert_true(th_item(th_optimizer_state(opt, 0, 1, "step")) == 42.0);
    th_value_free(changed);
    th_value_free(state);

    step(momentum, &m, 0);
    state = th_optimizer_state_dict(momentum);
    changed = th_value_copy(state, true);
    th_value_set(entry_of(changed, 0), "momentum_buffer", th_value_none()); /* 1.13 writes it before the first gradient */
    assert_int_equal(th_optimizer_load_state_dict(momentum, changed), TH_OK);
    assert_null(th_optimizer_state(momentum, 0, 0, "momentum_buffer"));
    th_value_free(changed);
    th_value_free(state);
    th_optimizer_free(opt);
    th_optimizer_free(momentum);
    free_model(&m);
}

static void in_a_nested_state_it_is_an_object(void **unused)
{
    (void)unused;
    TH_SCOPE();
    model m = new_model();
    th_optimizer *opt = adam(&m), *other = plain_adam(&m);
    step(opt, &m, 0);
    th_value *value = th_state(opt);
    void *object = NULL;
    const th_stateful *ops = th_value_as_object(value, &object);
    assert_true(ops != NULL && object == opt);
    assert_string_equal(ops->type, "optimizer");
    th_value *dict = ops->state_dict(object);
    assert_int_equal(ops->load_state_dict(other, dict, true), TH_OK);
    assert_non_null(th_optimizer_state(other, 0, 1, "max_exp_avg_sq"));
    th_value_free(dict);
    th_value_free(value);
    th_optimizer_free(opt);
    th_optimizer_free(other);
    free_model(&m);
}

/* BC-059: loading again and again does not add up. */
static void loading_many_times_leaks_nothing(void **unused)
{
    (void)unused;
    size_t objects = th__objects_live(NULL);
    TH_SCOPE();
    model m = new_model();
    th_optimizer *opts[] = {adam(&m), lbfgs(&m), sgd(&m)};
    for (int k = 0; k < 3; k++) {
        step(opts[k], &m, 0);
        step(opts[k], &m, 1);
        th_value *state = th_optimizer_state_dict(opts[k]);
        size_t live = th_scope_live();
        for (int i = 0; i < 50; i++) assert_int_equal(th_optimizer_load_state_dict(opts[k], state), TH_OK);
        assert_int_equal(th_scope_live(), live);
        th_value_free(state);
        th_optimizer_free(opts[k]);
    }
    free_model(&m);
    assert_int_equal(th__objects_live(NULL), objects);
}

int main(void)
{
    th_set_error_policy(TH_ERROR_RETURN, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_equals_the_uninterrupted_one), cmocka_unit_test(the_form_is_pytorchs),
        cmocka_unit_test(without_saved_state_the_counter_is_zero),    cmocka_unit_test(wrong_counts_name_both_sides),
        cmocka_unit_test(wrong_state_is_refused_and_changes_nothing), cmocka_unit_test(older_forms_are_read),
        cmocka_unit_test(in_a_nested_state_it_is_an_object),          cmocka_unit_test(loading_many_times_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
