/* nn/clip_grad.c: clipping gradients (torch.nn.utils.clip_grad). */
#include "base/error.h"
#include "base/memory.h"
#include <cfabric/autograd.h>
#include <cfabric/nn_utils.h>
#include <cfabric/ops.h>
#include <math.h>
#include <stdlib.h>

/* The gradients that exist. [scoped] */
static th_tensors gradients(th_tensors parameters)
{
    if (parameters.size == 0) return (th_tensors){0};
    th_tensor **grads = th__malloc(parameters.size * sizeof *grads);
    if (grads == NULL) return (th_tensors){0};
    size_t n = 0;
    for (size_t i = 0; i < parameters.size; i++)
        if (th_has_grad(parameters.data[i])) grads[n++] = th_grad(parameters.data[i]);
    th_tensors list = th_list((th_tensors){grads, n});
    free(grads);
    return list;
}

/* The norm of the norms, which is the norm of all elements. */
static th_tensor *total_norm(th_tensors grads, double norm_type)
{
    th_tensor **norms = th__malloc(grads.size * sizeof *norms);
    if (norms == NULL) return NULL;
    th_device first = th_device_of(grads.data[0]);
    for (size_t i = 0; i < grads.size; i++) {
        norms[i] = th_linalg_vector_norm(grads.data[i], TH_S(norm_type));
        th_device device = th_device_of(grads.data[i]);
        if (device.type != first.type || device.index != first.index) norms[i] = th_to_dtype_layout(norms[i], .device = first);
    }
    th_tensor *stacked = th_stack((th_tensors){norms, grads.size});
    free(norms);
    return th_linalg_vector_norm(stacked, TH_S(norm_type));
}

static void scale(th_tensors grads, th_tensor *norm, double max_norm)
{
    /* max_norm / (norm + 1e-6), at most 1. Multiplying always avoids waiting for a GPU to tell the norm. */
    th_tensor *coefficient = th_mul_scalar(th_reciprocal(th_add_scalar(norm, TH_S(1e-6))), TH_S(max_norm));
    coefficient = th_clamp(coefficient, .max = TH_S(1.0));
    for (size_t i = 0; i < grads.size; i++) {
        th_device device = th_device_of(grads.data[i]), at = th_device_of(coefficient);
        bool here = device.type == at.type && device.index == at.index;
        th_mul_(grads.data[i], here ? coefficient : th_to_dtype_layout(coefficient, .device = device));
    }
}

th_tensor *th_nn_utils_clip_grad_norm__call(struct th_nn_utils_clip_grad_norm_args args)
{
    TH__CHECK_PENDING_NULL();
    int depth = th_scope_push();
    TH_NO_GRAD();
    th_tensors grads = gradients(args.parameters);
    th_tensor *norm = NULL;
    if (th__pending() == TH_OK) norm = grads.size > 0 ? total_norm(grads, args.norm_type) : th_tensor_scalar(TH_S(0.0), TH_FLOAT32);
    if (norm != NULL && grads.size > 0) {
        if (args.error_if_nonfinite && !isfinite(th_item(norm)))
            TH__FAIL(TH_ERR_RUNTIME, "the total norm of order %g of the gradients is %g, so they cannot be clipped; .error_if_nonfinite = "
                     "false scales them anyway", args.norm_type, th_item(norm));
        else scale(grads, norm, args.max_norm);
    }
    norm = th__pending() == TH_OK ? th_escape(norm) : NULL;
    th_scope_pop(depth);
    return norm;
}

th_status th_nn_utils_clip_grad_value_(th_tensors parameters, double clip_value)
{
    TH__CHECK_PENDING();
    int depth = th_scope_push();
    TH_NO_GRAD();
    th_tensors grads = gradients(parameters);
    for (size_t i = 0; i < grads.size; i++) th_clamp_(grads.data[i], .min = TH_S(-clip_value), .max = TH_S(clip_value));
    th_scope_pop(depth);
    return th__pending();
}
