/* unit/optim/stored_test.c: every optimizer against numbers that PyTorch produced once (BC-061); the bits are the golden test's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "stored_values.h"
#include <cfabric/autograd.h>
#include <cfabric/error.h>
#include <cfabric/ops.h>
#include <cfabric/optimizers.h>
#include <math.h>
#include <string.h>

static th_optimizer *make(const char *name, th_tensors p)
{
    if (strcmp(name, "sgd") == 0) return th_optim_sgd(p, .lr = 0.1);
    if (strcmp(name, "sgd_nesterov") == 0)
        return th_optim_sgd(p, .lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true);
    if (strcmp(name, "adam") == 0) return th_optim_adam(p, .lr = 0.1);
    if (strcmp(name, "adam_amsgrad") == 0) return th_optim_adam(p, .lr = 0.1, .weight_decay = 0.1, .amsgrad = true);
    if (strcmp(name, "adamw") == 0) return th_optim_adamw(p, .lr = 0.1);
    if (strcmp(name, "adadelta") == 0) return th_optim_adadelta(p);
    if (strcmp(name, "adagrad") == 0) return th_optim_adagrad(p, .lr = 0.1, .lr_decay = 0.1);
    return th_optim_rmsprop(p, .momentum = 0.9, .centered = true);
}

static void ten_steps_agree_with_pytorch(void **unused)
{
    (void)unused;
    for (size_t k = 0; k < sizeof stored / sizeof *stored; k++) {
        TH_SCOPE();
        const double begin[3] = {0.5, -1.0, 2.0};
        th_tensor *p = th_requires_grad_(th_tensor_from(begin, TH_INTS(3), TH_FLOAT64), true);
        th_optimizer *opt = make(stored[k].name, TH_TENSORS(p));
        double *values = th_data_ptr(p);
        for (int t = 0; t < 10; t++) {
            TH_SCOPE();
            double grad[3];
            for (int i = 0; i < 3; i++) grad[i] = values[i] * 0.3 + cos(t + i);
            th_set_grad(p, th_tensor_from(grad, TH_INTS(3), TH_FLOAT64));
            assert_int_equal(th_optimizer_step(opt), TH_OK);
        }
        for (int i = 0; i < 3; i++)
            if (!(fabs(values[i] - stored[k].values[i]) < 1e-9 * (1 + fabs(values[i]))))
                fail_msg("%s: %.17g, PyTorch %.17g", stored[k].name, values[i], stored[k].values[i]);
        th_optimizer_free(opt);
    }
}

int main(void)
{
    th_set_error_policy(TH_ERROR_RETURN, NULL, NULL);
    const struct CMUnitTest tests[] = {cmocka_unit_test(ten_steps_agree_with_pytorch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
