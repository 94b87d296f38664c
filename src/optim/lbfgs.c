/* optim/lbfgs.c: L-BFGS: the two-loop recursion and its stopping rules. Its state is in lbfgs_state.c. */
#include "optim/lbfgs.h"

#include <cfabric/autograd.h>
#include <cfabric/ops.h>
#include <cfabric/optimizers.h>
#include <stdlib.h>
#include <string.h>

enum { LR, MAX_ITER, MAX_EVAL, TOLERANCE_GRAD, TOLERANCE_CHANGE, HISTORY_SIZE, LINE_SEARCH_FN, N_OPTIONS };

static const th_option_spec options[N_OPTIONS] = {
    [LR] = {"lr", TH_OPTION_DOUBLE, 1, 0, NULL},
    [MAX_ITER] = {"max_iter", TH_OPTION_INT, 20, 0, NULL},
    [MAX_EVAL] = {"max_eval", TH_OPTION_INT, 25, 0, NULL},
    [TOLERANCE_GRAD] = {"tolerance_grad", TH_OPTION_DOUBLE, 1e-7, 0, NULL},
    [TOLERANCE_CHANGE] = {"tolerance_change", TH_OPTION_DOUBLE, 1e-9, 0, NULL},
    [HISTORY_SIZE] = {"history_size", TH_OPTION_INT, 100, 0, NULL},
    [LINE_SEARCH_FN] = {"line_search_fn", TH_OPTION_TEXT, 0, 0, NULL},
};

static th_status check(th_optimizer *self, size_t index)
{
    const th__group *group = &self->groups[index];
    const char *search = group->hyper[LINE_SEARCH_FN].text;
    if (search != NULL && strcmp(search, "strong_wolfe") != 0)
        return th__fail(TH_ERR_RUNTIME, "LBFGS", "only 'strong_wolfe' is supported as line_search_fn, but got '%s'", search);
    if (th__opt(group, HISTORY_SIZE) < 1)
        return th__fail(TH_ERR_VALUE, "LBFGS", "history_size is %g, expected at least 1", th__opt(group, HISTORY_SIZE));
    return th__check_not_negative("LBFGS", "learning rate", th__opt(group, LR));
}

/* ---------------------------------------------------------------- vectors */

th_tensor *th__lbfgs_flat_grad(th_optimizer *self)
{
    const th__group *group = &self->groups[0];
    const int64_t flat[] = {-1};
    th_tensor **views = th__scope_alloc(group->n * sizeof *views);
    if (views == NULL) return NULL;
    for (size_t i = 0; i < group->n; i++) {
        th_tensor *param = group->params[i].tensor, *grad = th_grad(param);
        if (grad == NULL)
            grad = th_zeros_like(param);
        else if (th_layout_of(grad) != TH_STRIDED)
            grad = th_to_dense(grad);
        if (th_dtype_is_complex(th_dtype_of(grad))) grad = th_view_as_real(grad);
        views[i] = th_reshape(grad, (th_ints){flat, 1});
    }
    return th_cat((th_tensors){views, group->n}, .dim = 0);
}

void th__lbfgs_move(th_optimizer *self, double step, th_tensor *direction)
{
    const th__group *group = &self->groups[0];
    int64_t offset = 0;
    for (size_t i = 0; i < group->n && th__pending() == TH_OK; i++) {
        TH_SCOPE();
        th_tensor *param = group->params[i].tensor;
        if (th_dtype_is_complex(th_dtype_of(param))) param = th_view_as_real(param);
        int64_t numel = th_numel(param);
        th_tensor *part =
            th_view(th_slice(direction, .dim = 0, .start = TH_INT(offset), .end = TH_INT(offset + numel)), th_sizes(param));
        th_add_(param, part, .alpha = TH_S(step));
        offset += numel;
    }
}

double th__lbfgs_evaluate(th_optimizer *self)
{
    th__lbfgs *state = self->data;
    TH_SCOPE();
    th_tensor *loss = th_closure_call(state->closure, state->user);
    return loss != NULL ? th_item(loss) : NAN;
}

static th__number scalar(const th__lbfgs *state, th_tensor *tensor)
{
    return th__tensor_number(tensor != NULL ? th_item(tensor) : NAN, state->single);
}

th__number th__lbfgs_dot(th_optimizer *self, th_tensor *a, th_tensor *b)
{
    TH_SCOPE();
    return scalar(self->data, th_dot(a, b));
}

th__number th__lbfgs_peak(th_optimizer *self, th_tensor *a)
{
    TH_SCOPE();
    return scalar(self->data, th_max(th_abs(a)));
}

static void own(th_tensor **slot, th_tensor *tensor)
{
    th_free(*slot);
    *slot = th_keep(tensor);
}

/* ---------------------------------------------------------------- history */

static void drop_oldest(th__lbfgs *state)
{
    th_free(state->old_dirs[0]);
    th_free(state->old_stps[0]);
    state->n_old--;
    memmove(state->old_dirs, state->old_dirs + 1, state->n_old * sizeof *state->old_dirs);
    memmove(state->old_stps, state->old_stps + 1, state->n_old * sizeof *state->old_stps);
    memmove(state->ro, state->ro + 1, state->n_old * sizeof *state->ro);
}

static void drop_history(th__lbfgs *state)
{
    while (state->n_old > 0) drop_oldest(state);
}

/* Room for `n` pairs. */
bool th__lbfgs_reserve(th__lbfgs *state, size_t n)
{
    if (n <= state->old_capacity) return true;
    th_tensor **dirs = th__realloc(state->old_dirs, n, sizeof *dirs);
    if (dirs != NULL) state->old_dirs = dirs;
    th_tensor **stps = th__realloc(state->old_stps, n, sizeof *stps);
    if (stps != NULL) state->old_stps = stps;
    double *ro = th__realloc(state->ro, n, sizeof *ro);
    if (ro != NULL) state->ro = ro;
    double *al = th__realloc(state->al, n, sizeof *al);
    if (al != NULL) state->al = al;
    if (dirs == NULL || stps == NULL || ro == NULL || al == NULL) return false;
    state->old_capacity = n;
    return true;
}

/* Remembers the last step and the change of the gradient that it made. */
static void remember(th_optimizer *self, th_tensor *flat_grad)
{
    th__lbfgs *state = self->data;
    size_t limit = (size_t)th__opt(&self->groups[0], HISTORY_SIZE);
    TH_SCOPE();
    th_tensor *y = th_sub(flat_grad, state->prev_flat_grad), *s = th_mul_scalar(state->d, TH_S(state->t.v));
    th__number ys = th__lbfgs_dot(self, y, s);
    if (th__pending() != TH_OK || !th__less(th__py(1e-10), ys)) return;
    while (state->n_old > 0 && state->n_old >= limit) drop_oldest(state);
    if (!th__lbfgs_reserve(state, state->n_old + 1)) return;
    state->H_diag = th__over(ys, th__lbfgs_dot(self, y, y));
    state->old_dirs[state->n_old] = th_keep(y);
    state->old_stps[state->n_old] = th_keep(s);
    state->ro[state->n_old++] = th__over(th__py(1.0), ys).v;
}

/* The approximate inverse Hessian times the negative gradient. [scoped] */
static th_tensor *direction(th_optimizer *self, th_tensor *flat_grad)
{
    th__lbfgs *state = self->data;
    th_tensor *q = th_neg(flat_grad);
    for (size_t i = state->n_old; i-- > 0;) {
        th__number ro = th__tensor_number(state->ro[i], state->single);
        state->al[i] = th__times(th__lbfgs_dot(self, state->old_stps[i], q), ro).v;
        th_add_(q, state->old_dirs[i], .alpha = TH_S(-state->al[i]));
    }
    if (state->n_old > state->n_al) state->n_al = state->n_old;
    th_tensor *r = th_mul_scalar(q, TH_S(state->H_diag.v));
    for (size_t i = 0; i < state->n_old; i++) {
        th__number ro = th__tensor_number(state->ro[i], state->single), al = th__tensor_number(state->al[i], state->single);
        th__number be = th__times(th__lbfgs_dot(self, state->old_dirs[i], r), ro);
        th_add_(r, state->old_stps[i], .alpha = TH_S(th__minus(al, be).v));
    }
    return r;
}

/* ---------------------------------------------------------------- a step */

typedef struct progress {
    th_tensor *grad; /* owned handle: the gradient at the present parameters */
    double loss;
    int64_t evaluations; /* of this step */
    bool optimal;
} progress;

static bool is_optimal(th_optimizer *self, th_tensor *grad)
{
    return th__less_equal(th__lbfgs_peak(self, grad), th__py(th__opt(&self->groups[0], TOLERANCE_GRAD)));
}

static void choose_direction(th_optimizer *self, progress *p)
{
    th__lbfgs *state = self->data;
    TH_SCOPE();
    if (state->n_iter == 1) {
        own(&state->d, th_neg(p->grad));
        drop_history(state);
        state->H_diag = th__py(1);
    } else {
        remember(self, p->grad);
        if (th__pending() == TH_OK) own(&state->d, direction(self, p->grad));
    }
    if (th__pending() != TH_OK) return;
    if (state->prev_flat_grad == NULL)
        own(&state->prev_flat_grad, th_clone(p->grad, .memory_format = TH_CONTIGUOUS_FORMAT));
    else
        th_copy_(state->prev_flat_grad, p->grad);
    state->prev_loss = p->loss;
}

static th__number first_try(th_optimizer *self, th_tensor *grad)
{
    const th__lbfgs *state = self->data;
    th__number lr = th__py(th__opt(&self->groups[0], LR));
    TH_SCOPE();
    if (state->n_iter != 1) return lr;
    return th__times(th__min(th__py(1.0), th__over(th__py(1.0), scalar(state, th_sum(th_abs(grad))))), lr);
}

/* Moves along the direction; returns how often the closure was called for it. */
static int64_t advance(th_optimizer *self, progress *p, th__number slope, bool last)
{
    th__lbfgs *state = self->data;
    const th__group *group = &self->groups[0];
    if (group->hyper[LINE_SEARCH_FN].text != NULL) {
        th__search search = {.d = state->d, .t = state->t, .f = th__py(p->loss), .gtd = slope, .g = p->grad};
        int64_t left = (int64_t)th__opt(group, MAX_EVAL) - p->evaluations;
        if (th__lbfgs_search(self, &search, th__opt(group, TOLERANCE_CHANGE), left) != TH_OK) return 0;
        th_free(p->grad);
        p->grad = search.g;
        p->loss = search.f.v;
        state->t = search.t;
        th__lbfgs_move(self, state->t.v, state->d);
        p->optimal = is_optimal(self, p->grad);
        return search.evaluations;
    }
    th__lbfgs_move(self, state->t.v, state->d);
    if (last || th__pending() != TH_OK) return 0;
    TH_SCOPE();
    p->loss = th__lbfgs_evaluate(self);
    own(&p->grad, th__lbfgs_flat_grad(self));
    p->optimal = is_optimal(self, p->grad);
    return 1;
}

static bool stands_still(th_optimizer *self, const progress *p)
{
    const th__lbfgs *state = self->data;
    double tolerance = th__opt(&self->groups[0], TOLERANCE_CHANGE);
    TH_SCOPE();
    if (th__less_equal(th__lbfgs_peak(self, th_mul_scalar(state->d, TH_S(state->t.v))), th__py(tolerance))) return true;
    return fabs(p->loss - state->prev_loss) < tolerance;
}

static void iterate(th_optimizer *self, progress *p)
{
    th__lbfgs *state = self->data;
    const th__group *group = &self->groups[0];
    int64_t max_iter = (int64_t)th__opt(group, MAX_ITER), max_eval = (int64_t)th__opt(group, MAX_EVAL);
    state->begun = true;
    for (int64_t i = 1; i <= max_iter && th__pending() == TH_OK; i++) {
        state->n_iter++;
        choose_direction(self, p);
        if (th__pending() != TH_OK) return;
        state->t = first_try(self, p->grad);
        th__number slope = th__lbfgs_dot(self, p->grad, state->d);
        if (th__less(th__py(-th__opt(group, TOLERANCE_CHANGE)), slope)) return;
        int64_t calls = advance(self, p, slope, i == max_iter);
        p->evaluations += calls;
        state->func_evals += calls;
        if (i == max_iter || p->evaluations >= max_eval || p->optimal || stands_still(self, p)) return;
    }
}

static th_tensor *step_closure(th_optimizer *self, th_closure closure, void *user)
{
    th__lbfgs *state = self->data;
    state->closure = closure;
    state->user = user;
    th_dtype dtype = th_dtype_of(self->groups[0].params[0].tensor);
    state->single = dtype != TH_FLOAT64 && dtype != TH_COMPLEX128;
    th_tensor *loss = th_closure_call(closure, user);
    if (loss == NULL) return NULL;
    TH_SCOPE();
    progress p = {.loss = th_item(loss), .evaluations = 1};
    state->func_evals++;
    own(&p.grad, th__lbfgs_flat_grad(self));
    if (th__pending() == TH_OK && !is_optimal(self, p.grad)) iterate(self, &p);
    th_free(p.grad);
    return th__pending() == TH_OK ? loss : NULL;
}

/* ---------------------------------------------------------------- making */

void th__lbfgs_clear(th__lbfgs *state)
{
    drop_history(state);
    own(&state->d, NULL);
    own(&state->prev_flat_grad, NULL);
    state->begun = false;
    state->func_evals = state->n_iter = 0;
    state->n_al = 0;
}

static void free_data(void *data)
{
    th__lbfgs *state = data;
    th__lbfgs_clear(state);
    free(state->old_dirs);
    free(state->old_stps);
    free(state->ro);
    free(state->al);
    free(state);
}

static const th_optimizer_ops lbfgs_ops = {
    .size = sizeof(th_optimizer_ops),
    .name = "LBFGS",
    .options = options,
    .n_options = N_OPTIONS,
    .step_closure = step_closure,
    .check = check,
    .save_state = th__lbfgs_save,
    .load_state = th__lbfgs_load,
    .free_data = free_data,
};

th_optimizer *th_optim_lbfgs_call(struct th_optim_lbfgs_args args)
{
    TH__CHECK_PENDING_NULL();
    th__lbfgs *state = th__calloc(1, sizeof *state);
    if (state == NULL) return NULL;
    th__hyper values[N_OPTIONS];
    th__optimizer_default_values(&lbfgs_ops, values);
    values[LR].v[0] = args.lr;
    values[MAX_ITER].v[0] = (double)args.max_iter;
    values[MAX_EVAL].v[0] = (double)(args.max_eval.has ? args.max_eval.value : args.max_iter * 5 / 4);
    values[TOLERANCE_GRAD].v[0] = args.tolerance_grad;
    values[TOLERANCE_CHANGE].v[0] = args.tolerance_change;
    values[HISTORY_SIZE].v[0] = (double)args.history_size;
    values[LINE_SEARCH_FN].text = args.line_search_fn;
    return th__optimizer_build(&lbfgs_ops, args.params, values, state);
}
