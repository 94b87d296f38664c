/* cfabric/cfabric.h: everything, for programs. */
#ifndef CFABRIC_CFABRIC_H
#define CFABRIC_CFABRIC_H

#include <cfabric/autograd.h>
#include <cfabric/base.h>
#include <cfabric/data.h>
#include <cfabric/error.h>
#include <cfabric/fabric.h>
#include <cfabric/nn.h>
#include <cfabric/ops.h>
#include <cfabric/optim.h>
#include <cfabric/optimizers.h>
#include <cfabric/schedulers.h>
#include <cfabric/scope.h>
#include <cfabric/tensor.h>
#include <cfabric/value.h>

#endif
