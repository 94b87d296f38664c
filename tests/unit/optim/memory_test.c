/* unit/optim/memory_test.c: every allocation of an optimizer's and a scheduler's life fails once: an error, no leak, no crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/memory.h"
#include "base/object.h"
#include <cfabric/autograd.h>
#include <cfabric/error.h>
#include <cfabric/ops.h>
#include <cfabric/optimizers.h>
#include <cfabric/schedulers.h>

static th_tensor *params[2];

static th_tensor *closure(void *user)
{
    (void)user;
    for (int i = 0; i < 2; i++) th_set_grad(params[i], NULL);
    th_tensor *loss = th_add(th_sum(th_mul(params[0], params[0])), th_sum(th_cosh(params[1])));
    th_backward(loss);
    return loss;
}

/* Makes, steps, saves, loads, frees. Whatever fails on the way, the rest must cope with. */
static void adam_life(void)
{
    TH_SCOPE();
    th_optimizer *opt = th_optim_adam((th_tensors){params, 1}, .amsgrad = true);
    if (opt == NULL) return;
    if (th_optimizer_add_param_group(opt, (th_tensors){params + 1, 1}, TH_OPTIONS({"lr", 0.1})) == TH_OK) {
        th_scheduler *scheduler = th_lr_scheduler_one_cycle_lr(opt, 0.1, 10);
        th_optimizer_step_closure(opt, closure, NULL);
        if (scheduler != NULL) th_scheduler_step(scheduler);
        th_value *state = th_optimizer_state_dict(opt);
        if (state != NULL) th_optimizer_load_state_dict(opt, state);
        th_value_free(state);
        state = scheduler != NULL ? th_scheduler_state_dict(scheduler) : NULL;
        if (state != NULL) th_scheduler_load_state_dict(scheduler, state);
        th_value_free(state);
        th_scheduler_free(scheduler);
    }
    th_optimizer_free(opt);
}

static void lbfgs_life(void)
{
    TH_SCOPE();
    th_optimizer *opt = th_optim_lbfgs((th_tensors){params, 2}, .max_iter = 3, .line_search_fn = "strong_wolfe");
    if (opt == NULL) return;
    th_optimizer_step_closure(opt, closure, NULL);
    th_value *state = th_optimizer_state_dict(opt);
    if (state != NULL) th_optimizer_load_state_dict(opt, state);
    th_value_free(state);
    th_optimizer_free(opt);
}

static void compose_life(void)
{
    TH_SCOPE();
    th_optimizer *opt = th_optim_sgd((th_tensors){params, 2}, .lr = 0.1, .momentum = 0.9);
    if (opt == NULL) return;
    th_scheduler *parts[] = {th_lr_scheduler_multi_step_lr(opt, TH_INTS(1, 2)), th_lr_scheduler_cyclic_lr(opt, 0.1, 1.0, 3)};
    th_scheduler *both = th_lr_scheduler_sequential_lr(opt, {parts, 2}, TH_INTS(3));
    if (both != NULL) {
        th_optimizer_step_closure(opt, closure, NULL);
        th_scheduler_step(both);
        th_value_free(th_scheduler_state_dict(both));
    }
    th_scheduler_free(both);
    th_optimizer_free(opt);
}

static void every_allocation_fails_once(void (*life)(void))
{
    life(); /* what is made once stays */
    assert_int_equal(th_error(), TH_OK);
    size_t objects = th__objects_live(NULL), live = th_scope_live();
    long n = 1;
    for (;; n++) {
        assert_true(n < 5000);
        th__fail_allocation(n);
        life();
        th__fail_allocation(0);
        th_status status = th_error_clear();
        assert_int_equal(th__objects_live(NULL), objects);
        assert_int_equal(th_scope_live(), live);
        if (status == TH_OK) break; /* fewer than n allocations */
        assert_int_equal(status, TH_ERR_MEMORY);
    }
    assert_true(n > 10);
}

static void adam(void **unused)
{
    (void)unused;
    every_allocation_fails_once(adam_life);
}
static void lbfgs(void **unused)
{
    (void)unused;
    every_allocation_fails_once(lbfgs_life);
}
static void composed(void **unused)
{
    (void)unused;
    every_allocation_fails_once(compose_life);
}

int main(void)
{
    th_set_error_policy(TH_ERROR_RETURN, NULL, NULL);
    TH_SCOPE();
    for (int i = 0; i < 2; i++) params[i] = th_requires_grad_(th_full(TH_INTS(3), TH_S(1.0 + i), .dtype = TH_FLOAT32), true);
    const struct CMUnitTest tests[] = {cmocka_unit_test(adam), cmocka_unit_test(lbfgs), cmocka_unit_test(composed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
