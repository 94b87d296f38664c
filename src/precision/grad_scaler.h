/* precision/grad_scaler.h: the scaler's steps with the hooks that Fabric needs. The public side is <cfabric/amp.h>. */
#ifndef FABRIC_PRECISION_GRAD_SCALER_H
#define FABRIC_PRECISION_GRAD_SCALER_H

#include <cfabric/amp.h>

/* How a step goes on after the check. */
typedef struct th__scaler_step {
    /* Combines this rank's overflow flag with the other ranks'; NULL: only its own counts. */
    bool (*combine)(bool found, void *user);
    th_tensor *(*step)(th_optimizer *optimizer, th_closure closure, void *user);
    void *user; /* of combine */
} th__scaler_step;

/* scaler.unscale_, with the flag combined. */
th_status th__grad_scaler_unscale(th_grad_scaler *scaler, th_optimizer *optimizer, const th__scaler_step *how);
/* scaler.step. False when skipped or with an error. */
bool th__grad_scaler_step(th_grad_scaler *scaler, th_optimizer *optimizer, const th__scaler_step *how);
/* True when gradients of this optimizer were unscaled since the last update and held infinities or NaNs. */
bool th__grad_scaler_found_inf(th_grad_scaler *scaler, th_optimizer *optimizer);
/* Tests: true uses the check written here although libtorch has an operator for it. */
void th__grad_scaler_use_own_check(bool own);

#endif
