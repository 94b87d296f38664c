/* cfabric/cfabric.h: everything, for programs. */
#ifndef CFABRIC_CFABRIC_H
#define CFABRIC_CFABRIC_H

#include <cfabric/amp.h>
#include <cfabric/autograd.h>
#include <cfabric/base.h>
#include <cfabric/checkpoint.h>
#include <cfabric/data.h>
#include <cfabric/dist.h>
#include <cfabric/error.h>
#include <cfabric/fabric.h>
#include <cfabric/nn.h>
#include <cfabric/nn_init.h>
#include <cfabric/nn_modules.h>
#include <cfabric/nn_utils.h>
#include <cfabric/ops.h>
#include <cfabric/optim.h>
#include <cfabric/optimizers.h>
#include <cfabric/schedulers.h>
#include <cfabric/scope.h>
#include <cfabric/strategies.h>
#include <cfabric/tensor.h>
#include <cfabric/value.h>

#endif
