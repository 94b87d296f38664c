/* optim/lbfgs_state.c: the state dict entries of LBFGS, which are more than tensors by name. */
#include "optim/lbfgs.h"

#include <cfabric/ops.h>
#include <math.h>
#include <string.h>

enum { HISTORY_SIZE = 5 }; /* index of the option, as in lbfgs.c */

/* ---------------------------------------------------------------- saving */

static th_value *tensor_number(const th__lbfgs *state, double v)
{
    TH_SCOPE();
    return th_value_tensor(th_tensor_scalar(th_scalar_double(v), state->single ? TH_FLOAT32 : TH_FLOAT64));
}

static th_value *number(const th__lbfgs *state, th__number n)
{
    if (n.tensor) return tensor_number(state, n.v);
    return n.v == floor(n.v) && fabs(n.v) < 1e15 ? th_value_int((int64_t)n.v) : th_value_double(n.v);
}

static th_value *tensor_list(th_tensor **tensors, size_t n)
{
    th_value *list = th_value_list();
    for (size_t i = 0; list != NULL && i < n; i++) th_value_append(list, th_value_tensor(tensors[i]));
    return list;
}

/* `n` numbers as tensors, then None up to `length`. */
static th_value *number_list(const th__lbfgs *state, const double *numbers, size_t n, size_t length)
{
    th_value *list = th_value_list();
    for (size_t i = 0; list != NULL && i < length; i++)
        th_value_append(list, i < n ? tensor_number(state, numbers[i]) : th_value_none());
    return list;
}

th_status th__lbfgs_save(th_optimizer *self, size_t group, size_t i, th_value *out)
{
    const th__lbfgs *state = self->data;
    if (group != 0 || i != 0 || state->func_evals == 0) return TH_OK;
    th_value_set(out, "func_evals", th_value_int(state->func_evals));
    th_value_set(out, "n_iter", th_value_int(state->n_iter));
    if (!state->begun) return th__pending();
    if (state->n_al > 0) {
        size_t history = (size_t)th__opt(&self->groups[0], HISTORY_SIZE);
        th_value_set(out, "al", number_list(state, state->al, state->n_al, history > state->n_al ? history : state->n_al));
    }
    th_value_set(out, "d", th_value_tensor(state->d));
    th_value_set(out, "t", number(state, state->t));
    th_value_set(out, "old_dirs", tensor_list(state->old_dirs, state->n_old));
    th_value_set(out, "old_stps", tensor_list(state->old_stps, state->n_old));
    th_value_set(out, "ro", number_list(state, state->ro, state->n_old, state->n_old));
    th_value_set(out, "H_diag", number(state, state->H_diag));
    th_value_set(out, "prev_flat_grad", th_value_tensor(state->prev_flat_grad));
    th_value_set(out, "prev_loss", th_value_double(state->prev_loss));
    return th__pending();
}

/* ---------------------------------------------------------------- loading */

static int64_t total_numel(const th_optimizer *self)
{
    int64_t total = 0;
    for (size_t i = 0; i < self->groups[0].n; i++) {
        th_tensor *param = self->groups[0].params[i].tensor;
        total += th_numel(param) * (th_dtype_is_complex(th_dtype_of(param)) ? 2 : 1);
    }
    return total;
}

static th_status check_flat(const th_optimizer *self, const char *key, const th_value *value)
{
    static const char name[] = "th_optimizer_load_state_dict";
    th_tensor *tensor = th_value_as_tensor(value);
    if (tensor == NULL)
        return th__fail(TH_ERR_TYPE, name, "LBFGS state '%s' is a %s, expected a tensor", key,
                        th_value_kind_name(th_value_kind_of(value)));
    int64_t expected = total_numel(self);
    if (th_dim(tensor) == 1 && th_numel(tensor) == expected) return TH_OK;
    return th__fail(TH_ERR_VALUE, name, "LBFGS state '%s' has %lld elements in %lld dimensions, expected %lld in 1", key,
                    (long long)th_numel(tensor), (long long)th_dim(tensor), (long long)expected);
}

static th_status validate(const th_optimizer *self, const th_value *saved)
{
    static const char *const vectors[] = {"d", "prev_flat_grad"}, *const lists[] = {"old_dirs", "old_stps"};
    for (int k = 0; k < 2; k++) {
        const th_value *value = th_value_get(saved, vectors[k]), *list = th_value_get(saved, lists[k]);
        if (value != NULL && th_value_kind_of(value) != TH_VALUE_NONE) TH__TRY(check_flat(self, vectors[k], value));
        for (size_t i = 0; i < th_value_size(list); i++) TH__TRY(check_flat(self, lists[k], th_value_at(list, i)));
    }
    size_t n = th_value_size(th_value_get(saved, "old_dirs"));
    if (n == th_value_size(th_value_get(saved, "old_stps")) && n == th_value_size(th_value_get(saved, "ro"))) return TH_OK;
    return th__fail(TH_ERR_VALUE, "th_optimizer_load_state_dict", "LBFGS state 'old_dirs', 'old_stps' and 'ro' differ in length");
}

static th__number load_number(const th_value *value, double fallback, bool single)
{
    th_tensor *tensor = th_value_as_tensor(value);
    if (tensor != NULL) return th__tensor_number(th_item(tensor), single);
    return th__py(th_value_as_double(value, fallback));
}

/* An own copy of a saved vector, in the dtype and on the device of the parameters. */
static th_tensor *load_vector(const th_optimizer *self, const th_value *value)
{
    th_tensor *saved = th_value_as_tensor(value), *like = self->groups[0].params[0].tensor;
    if (saved == NULL) return NULL;
    TH_SCOPE();
    if (th_dtype_is_complex(th_dtype_of(like))) like = th_view_as_real(like);
    th_tensor *fresh = th_empty_like(saved, .dtype = th_dtype_of(like), .device = th_device_of(like));
    return th_keep(th_copy_(fresh, saved));
}

th_status th__lbfgs_load(th_optimizer *self, size_t group, size_t i, th_value *saved, bool validate_only)
{
    th__lbfgs *state = self->data;
    if (group != 0 || i != 0) return TH_OK;
    if (validate_only) return saved != NULL ? validate(self, saved) : TH_OK;
    th__lbfgs_clear(state);
    if (saved == NULL) return TH_OK;
    th_dtype dtype = th_dtype_of(self->groups[0].params[0].tensor);
    state->single = dtype != TH_FLOAT64 && dtype != TH_COMPLEX128;
    state->func_evals = th_value_as_int(th_value_get(saved, "func_evals"), 0);
    state->n_iter = th_value_as_int(th_value_get(saved, "n_iter"), 0);
    state->begun = th_value_as_tensor(th_value_get(saved, "d")) != NULL;
    state->d = load_vector(self, th_value_get(saved, "d"));
    state->prev_flat_grad = load_vector(self, th_value_get(saved, "prev_flat_grad"));
    state->t = load_number(th_value_get(saved, "t"), 1, state->single);
    state->H_diag = load_number(th_value_get(saved, "H_diag"), 1, state->single);
    state->prev_loss = th_value_as_double(th_value_get(saved, "prev_loss"), 0);
    const th_value *dirs = th_value_get(saved, "old_dirs"), *stps = th_value_get(saved, "old_stps"),
                   *ro = th_value_get(saved, "ro");
    const th_value *al = th_value_get(saved, "al");
    size_t n = th_value_size(dirs), n_al = 0;
    while (n_al < th_value_size(al) && th_value_as_tensor(th_value_at(al, n_al)) != NULL) n_al++;
    if (!th__lbfgs_reserve(state, n > n_al ? n : n_al)) return th__pending();
    for (size_t k = 0; k < n_al; k++) state->al[k] = load_number(th_value_at(al, k), 0, state->single).v;
    state->n_al = n_al;
    for (size_t k = 0; k < n && th__pending() == TH_OK; k++) {
        state->old_dirs[k] = load_vector(self, th_value_at(dirs, k));
        state->old_stps[k] = load_vector(self, th_value_at(stps, k));
        state->ro[k] = load_number(th_value_at(ro, k), 0, state->single).v;
        state->n_old = k + 1;
    }
    return th__pending();
}
