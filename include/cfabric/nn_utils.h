/* cfabric/nn_utils.h: torch.nn.utils. */
#ifndef CFABRIC_NN_UTILS_H
#define CFABRIC_NN_UTILS_H

#include <cfabric/scope.h>

TH_BEGIN_DECLS

struct th_nn_utils_clip_grad_norm_args {
    th_tensors parameters;
    double max_norm;
    double norm_type;         /**< 2; INFINITY for the largest element */
    bool error_if_nonfinite;  /**< false; true: a norm that is NaN or infinite is TH_ERR_RUNTIME */
};
/** clip_grad_norm_(): scales the gradients in place so that their total norm is at most max_norm. Parameters without a gradient are
 * skipped. Returns the norm before (a 0-dimensional tensor; 0 without gradients). [scoped] */
FABRIC_API th_tensor *th_nn_utils_clip_grad_norm__call(struct th_nn_utils_clip_grad_norm_args args);
#define th_nn_utils_clip_grad_norm_(parameters_, ...) \
    th_nn_utils_clip_grad_norm__call(                 \
        (struct th_nn_utils_clip_grad_norm_args){.parameters = (parameters_), .norm_type = 2.0, .max_norm = __VA_ARGS__})

/** clip_grad_value_(): clamps every element of the gradients to +-clip_value in place. */
FABRIC_API th_status th_nn_utils_clip_grad_value_(th_tensors parameters, double clip_value);

TH_END_DECLS
#endif
