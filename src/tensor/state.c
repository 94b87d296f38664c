/* tensor/state.c: th_state for generators; the other th_state_* functions live beside their objects. */
#include "tensor/internal.h"
#include <stdio.h>
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

bool th__torch_at_least(int major, int minor)
{
    static int cached_major = -1, cached_minor;
    if (cached_major < 0) {
        int found_major = 0, found_minor = 0;
        if (sscanf(th_torch_version(), "%d.%d", &found_major, &found_minor) != 2) found_major = 999;
        cached_minor = found_minor;
        cached_major = found_major;
    }
    return cached_major > major || (cached_major == major && cached_minor >= minor);
}
