/* tensor/state.c: th_state for generators; the other th_state_* functions live beside their objects. */
#include "tensor/internal.h"
#include <cfabric/value.h>

static th_value *generator_state(void *object)
{
    TH_SCOPE();
    th_tensor *state = th_generator_get_state(object);
    return state == NULL ? NULL : th_value_tensor(state);
}

static th_status load_generator_state(void *object, th_value *state, bool strict)
{
    (void)strict;
    th_tensor *tensor = th_value_as_tensor(state);
    if (tensor == NULL)
        return TH__FAIL(TH_ERR_TYPE, "a generator's state is a %s, expected a tensor", th_value_kind_name(th_value_kind_of(state)));
    return th_generator_set_state(object, tensor);
}

static const th_stateful generator_ops = {sizeof(th_stateful), "generator", generator_state, load_generator_state};

th_value *th_state_generator(th_generator *generator) { return th_value_object(&generator_ops, generator); }
