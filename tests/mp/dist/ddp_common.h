/* ddp_common.h: what the tests of the gradient reducer share: small models, data, steps, comparisons between ranks. */
#ifndef TEST_MP_DIST_DDP_COMMON_H
#define TEST_MP_DIST_DDP_COMMON_H

#include "ranks.h"
#include <cfabric/autograd.h>
#include <cfabric/dist.h>
#include <cfabric/error.h>
#include <cfabric/nn_modules.h>
#include <cfabric/ops.h>
#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>

/* ---------------------------------------------------------------- help */

static inline void join(void) { RANK_CHECK(th_dist_init_process_group(.backend = "gloo", .timeout = 15) == TH_OK); }

static inline void leave(void)
{
    if (th_error() != TH_OK) fprintf(stderr, "pending: %s\n", th_error_message());
    RANK_CHECK(th_error() == TH_OK);
    th_dist_destroy_process_group(NULL);
}

static inline th_module *mlp(uint64_t seed)
{
    th_manual_seed(seed);
    return th_nn_sequential(th_nn_linear(6, 16), th_nn_relu(), th_nn_linear(16, 16), th_nn_relu(), th_nn_linear(16, 3));
}

/* Rows first .. first + n of a fixed data set. */
static inline th_tensor *rows(int64_t first, int64_t n)
{
    double values[32 * 6];
    for (int64_t i = 0; i < n * 6; i++) values[i] = sin((double)(first * 6 + i) * 1.7);
    return th_to_dtype(th_tensor_from(values, TH_INTS(n, 6), TH_FLOAT64), TH_FLOAT32);
}

static inline th_tensor *forward(th_ddp *ddp, th_module *m, th_tensor *x)
{
    if (ddp) RANK_CHECK(th_ddp_pre_forward(ddp) == TH_OK);
    th_tensor *out = th_forward(m, x);
    if (ddp) RANK_CHECK(th_ddp_post_forward(ddp, (th_tensors){&out, 1}) == TH_OK);
    return out;
}

static inline void backward(th_tensor *out) { RANK_CHECK(th_backward(th_mean(th_mul(out, out))) == TH_OK); }

static inline void sgd(th_module *m, double lr)
{
    TH_SCOPE();
    TH_NO_GRAD();
    th_tensors params = th_parameters(m);
    for (size_t i = 0; i < params.size; i++)
        if (th_has_grad(params.data[i])) th_add_(params.data[i], th_grad(params.data[i]), .alpha = TH_S(-lr));
    th_module_zero_grad(m);
}

static inline double distance(th_module *a, th_module *b)
{
    TH_SCOPE();
    TH_NO_GRAD();
    double worst = 0;
    th_tensors p = th_parameters(a), q = th_parameters(b);
    for (size_t i = 0; i < p.size; i++) worst = fmax(worst, th_item(th_max(th_abs(th_sub(p.data[i], q.data[i])))));
    return worst;
}

/* All ranks have the same bits. */
static inline bool same_on_all_ranks(th_tensor *t)
{
    TH_SCOPE();
    th_tensors all = th_dist_all_gather(th_detach(t));
    bool same = all.size > 0;
    for (size_t i = 1; i < all.size; i++) same = same && th_equal(all.data[0], all.data[i]);
    return same;
}

static inline bool module_same(th_module *m)
{
    TH_SCOPE();
    bool same = true;
    th_tensors p = th_parameters(m), b = th_buffers(m);
    for (size_t i = 0; i < p.size; i++) same = same_on_all_ranks(p.data[i]) && same;
    for (size_t i = 0; i < b.size; i++) same = same_on_all_ranks(b.data[i]) && same;
    return same;
}

static inline void run_ranks(const char *name, int world)
{
    ranks_result r;
    ranks_run(name, world, 60, &r);
    if (!r.ok) ranks_show(&r, world);
    assert_true(r.ok);
}

#define CASE(name) static void test_##name(void **state) { (void)state; run_ranks(#name, 2); }

#endif
