/* strategies/checkpoint.c: saving and loading as replicated strategies do it: global rank 0 writes one file, every rank reads it. */
#include "checkpoint/internal.h"
#include "strategies/internal.h"
#include <stdlib.h>

/* State dicts instead of live objects, filtered. [owned] */
static th_value *plain_state(th_value *state, const fabric_filter *filter)
{
    th__state_filter *filters = NULL;
    if (filter->size > 0) {
        filters = th__calloc(filter->size, sizeof *filters);
        if (filters == NULL) return NULL;
        for (size_t i = 0; i < filter->size; i++)
            filters[i] = (th__state_filter){filter->data[i].key, filter->data[i].keep, filter->data[i].user};
    }
    th_value *plain = th__state_to_plain(state, filters, filter->size);
    free(filters);
    return plain;
}

th_status fabric_strategy_default_save_checkpoint(fabric_strategy *s, const char *path, th_value *state,
                                                  const fabric_save_options *options)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__)) return th__pending();
    static const fabric_save_options plain_save = {0};
    if (options == NULL) options = &plain_save;
    th_value *plain = plain_state(state, &options->filter);    /* on every rank: a state dict may be a collective */
    if (plain == NULL) return th__pending();
    th_status status = TH_OK;
    if (fabric_strategy_global_rank(s) == 0) {
        if (s->checkpoint_io != NULL) status = fabric_checkpoint_io_save(s->checkpoint_io, path, plain);
        else if (options->async) status = th__checkpoint_write_async(path, plain);
        else status = th__checkpoint_write(path, plain);
    }
    th_value_free(plain);
    return status;
}

static th_value *read_file(fabric_strategy *s, const char *path)
{
    return s->checkpoint_io != NULL ? fabric_checkpoint_io_load(s->checkpoint_io, path) : th__checkpoint_read(path);
}

th_value *fabric_strategy_default_load_checkpoint(fabric_strategy *s, const char *path, th_value *state, bool strict)
{
    TH__CHECK_PENDING_NULL();
    if (!fabric__strategy_check(s, __func__)) return NULL;
    th_value *checkpoint = read_file(s, path);
    if (checkpoint == NULL || th_value_size(state) == 0) return checkpoint;
    if (th__state_from_plain(state, checkpoint, strict) != TH_OK) {
        th_value_free(checkpoint);
        return NULL;
    }
    return checkpoint;
}

th_status fabric_strategy_load_raw(fabric_strategy *s, const char *path, th_value *object, bool strict)
{
    TH__CHECK_PENDING();
    if (!fabric__strategy_check(s, __func__)) return th__pending();
    if (TH__SLOT(s->ops, load_raw)) return s->ops->load_raw(s, path, object, strict);
    th_value *checkpoint = read_file(s, path);
    if (checkpoint == NULL) return th__pending();
    th_status status = th__state_load_raw(object, checkpoint, strict);
    th_value_free(checkpoint);
    return status;
}
