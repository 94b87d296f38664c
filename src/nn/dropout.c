/* nn/dropout.c: Dropout, Dropout2d, AlphaDropout. */
#include <cfabric/nn_modules.h>

#include "nn/module_impl.h"
#include <cfabric/ops.h>

typedef struct dropout {
    double p;
    bool inplace;
} dropout;

static th_tensor *dropout_forward(th_module *self, th_tensor *input)
{
    const dropout *d = self->args.data;
    return d->inplace ? th_dropout_(input, d->p, self->training) : th_dropout(input, d->p, self->training);
}

static th_tensor *dropout2d_forward(th_module *self, th_tensor *input)
{
    const dropout *d = self->args.data;
    return d->inplace ? th_feature_dropout_(input, d->p, self->training) : th_feature_dropout(input, d->p, self->training);
}

static th_tensor *alpha_forward(th_module *self, th_tensor *input)
{
    const dropout *d = self->args.data;
    return th_alpha_dropout(input, d->p, self->training);
}

static th_module *build(const char *name, struct th_nn_dropout_args args, th_tensor *(*forward)(th_module *, th_tensor *))
{
    TH__CHECK_PENDING_NULL();
    if (!(args.p >= 0 && args.p <= 1)) {
        th__fail(TH_ERR_VALUE, name, "p %g, expected a probability between 0 and 1", args.p);
        return NULL;
    }
    dropout d = {args.p, args.inplace};
    char repr[TH__REPR_MAX] = "", p[40];
    th__repr_add(repr, "p=%s, inplace=%s", th__repr_double(args.p, p), th__repr_bool(args.inplace));
    return TH__BUILTIN(&d, sizeof d, name, .forward = forward, .extra_repr = repr);
}

th_module *th_nn_dropout_call(struct th_nn_dropout_args args) { return build("Dropout", args, dropout_forward); }
th_module *th_nn_dropout2d_call(struct th_nn_dropout_args args) { return build("Dropout2d", args, dropout2d_forward); }
th_module *th_nn_alpha_dropout_call(struct th_nn_dropout_args args) { return build("AlphaDropout", args, alpha_forward); }
