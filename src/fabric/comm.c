/* fabric/comm.c: collectives on tensors, numbers and nested values. The strategy's collectives work on single tensors. */
#include "fabric/internal.h"
#include "strategies/internal.h"
#include <cfabric/ops.h>
#include <ctype.h>
#include <stdlib.h>

th_status fabric_barrier(fabric *fab)
{
    FABRIC__ENTER_LAUNCHED(fab);
    return fabric_strategy_barrier(fab->strategy, NULL);
}

th_value *fabric_broadcast(fabric *fab, th_value *value, int src)
{
    th_value *result = NULL;
    if (th__pending() == TH_OK && fabric__check_launched(fab, __func__)) result = fabric_strategy_broadcast(fab->strategy, value, src);
    th_value_free(value);
    return result;
}

static th_status need_tensor(const th_tensor *tensor, const char *function)
{
    return tensor != NULL ? TH_OK : th__fail(TH_ERR_TYPE, function, "the tensor is NULL");
}

th_tensor *fabric_broadcast_tensor(fabric *fab, th_tensor *tensor, int src)
{
    FABRIC__ENTER_LAUNCHED_NULL(fab);
    TH__TRY_NULL(need_tensor(tensor, __func__));
    if (fabric__strategy_single_process(fab->strategy)) return tensor;
    th_value *value = th_value_tensor(tensor);
    th_value *result = fabric_strategy_broadcast(fab->strategy, value, src);
    th_tensor *out = th_value_as_tensor(result);
    if (out != NULL) out = th_detach(out);    /* in the caller's scope, because `result` ends here */
    th_value_free(result);
    th_value_free(value);
    return out;
}

/* ---- reductions by name, in any case */

enum { OP_TEXT = 24 };

static const char *lowered(const char *op, char buffer[OP_TEXT])
{
    size_t n = 0;
    for (; op != NULL && op[n] != '\0' && n + 1 < OP_TEXT; n++) buffer[n] = (char)tolower((unsigned char)op[n]);
    buffer[n] = '\0';
    return buffer;
}

/* ---- tensors */

th_tensor *fabric_all_gather_call(struct fabric_all_gather_args args)
{
    FABRIC__ENTER_LAUNCHED_NULL(args.fab);
    TH__TRY_NULL(need_tensor(args.tensor, __func__));
    th_tensor *here = fabric__move(args.tensor, fabric_device(args.fab));
    return fabric_strategy_all_gather(args.fab->strategy, here, args.sync_grads, args.group);
}

th_tensor *fabric_all_reduce_call(struct fabric_all_reduce_args args)
{
    FABRIC__ENTER_LAUNCHED_NULL(args.fab);
    TH__TRY_NULL(need_tensor(args.tensor, __func__));
    char op[OP_TEXT];
    return fabric_strategy_all_reduce(args.fab->strategy, args.tensor, lowered(args.reduce_op, op), args.group);
}

/* ---- numbers */

static th_tensor *number_tensor(fabric *fab, th_scalar number, th_dtype dtype)
{
    return fabric__move(th_tensor_scalar(number, dtype), fabric_device(fab));
}

th_tensor *fabric_all_gather_number(fabric *fab, double number)
{
    FABRIC__ENTER_LAUNCHED_NULL(fab);
    return fabric_strategy_all_gather(fab->strategy, number_tensor(fab, TH_S(number), TH_FLOAT32), false, NULL);
}

double fabric_all_reduce_number(fabric *fab, double number, const char *reduce_op)
{
    if (th__pending() != TH_OK || !fabric__check_launched(fab, __func__)) return NAN;
    char op[OP_TEXT];
    int depth = th_scope_push();
    th_tensor *tensor = number_tensor(fab, TH_S(number), TH_FLOAT64);    /* nothing of the number is lost on the way */
    double result = th_item(fabric_strategy_all_reduce(fab->strategy, tensor, lowered(reduce_op, op), NULL));
    th_scope_pop(depth);
    return th__pending() == TH_OK ? result : NAN;
}

/* ---- nested values */

typedef struct collective {
    fabric *fab;
    const char *op;    /* NULL: all_gather */
    bool sync_grads;
    th_process_group *group;
} collective;

static th_tensor *reduce_or_gather(th_tensor *tensor, void *user)
{
    collective *c = user;
    fabric_strategy *s = c->fab->strategy;
    if (c->op != NULL) return fabric_strategy_all_reduce(s, tensor, c->op, c->group);
    return fabric_strategy_all_gather(s, fabric__move(tensor, fabric_device(c->fab)), c->sync_grads, c->group);
}

static th_value *numbers_as_tensors(fabric *fab, th_value *value);

static void convert_items(fabric *fab, th_value *from, th_value *to)
{
    for (size_t i = 0; i < th_value_size(from) && th__pending() == TH_OK; i++) {
        th_value *item = numbers_as_tensors(fab, th_value_at(from, i));
        if (th_value_kind_of(from) != TH_VALUE_DICT) {
            th_value_append(to, item);
            continue;
        }
        int64_t number = 0;
        const char *key = th_value_key_at(from, i, &number);
        if (key != NULL) th_value_set(to, key, item);
        else th_value_set_int(to, number, item);
    }
}

/* The same tree with every number as a tensor: bool uint8, int int32, float float32. [owned] */
static th_value *numbers_as_tensors(fabric *fab, th_value *value)
{
    TH__CHECK_PENDING_NULL();
    th_value *result = NULL;
    switch (th_value_kind_of(value)) {
    case TH_VALUE_BOOL: return th_value_tensor(number_tensor(fab, TH_S((int64_t)th_value_as_bool(value, false)), TH_UINT8));
    case TH_VALUE_INT: return th_value_tensor(number_tensor(fab, TH_S(th_value_as_int(value, 0)), TH_INT32));
    case TH_VALUE_DOUBLE: return th_value_tensor(number_tensor(fab, TH_S(th_value_as_double(value, 0)), TH_FLOAT32));
    case TH_VALUE_LIST: result = th_value_list(); break;
    case TH_VALUE_TUPLE: result = th_value_tuple(); break;
    case TH_VALUE_DICT: result = th_value_dict(); break;
    default: return value != NULL ? th_value_retain(value) : th_value_none();
    }
    convert_items(fab, value, result);
    return result;
}

static th_value *collect(collective *c, th_value *value, const char *function)
{
    TH__CHECK_PENDING_NULL();
    if (!fabric__check_launched(c->fab, function)) return NULL;
    int depth = th_scope_push();
    /* A single tensor at the top is replaced as well, so everything goes into a list of one. */
    th_value *box = th_value_list();
    th_value_append(box, numbers_as_tensors(c->fab, value));
    th_value_map_tensors(box, reduce_or_gather, c);
    th_value *result = th__pending() == TH_OK ? th_value_retain(th_value_at(box, 0)) : NULL;
    th_value_free(box);
    th_scope_pop(depth);
    return result;
}

th_value *fabric_all_gather_value_call(struct fabric_all_gather_args args)
{
    collective c = {args.fab, NULL, args.sync_grads, args.group};
    th_value *result = collect(&c, args.value, __func__);
    th_value_free(args.value);
    return result;
}

th_value *fabric_all_reduce_value_call(struct fabric_all_reduce_args args)
{
    char op[OP_TEXT];
    collective c = {args.fab, lowered(args.reduce_op, op), false, args.group};
    th_value *result = collect(&c, args.value, __func__);
    th_value_free(args.value);
    return result;
}

/* ---- rank 0 first */

static void leave_rank_zero_first(fabric_guard *guard)
{
    if (th__pending() != TH_OK) return;    /* a failed rank enters no collective; the launcher ends the others */
    fabric_strategy *s = guard->fab->strategy;
    bool first = guard->context.slot[0] == 0;
    if (first && fabric_strategy_infinite_barrier(s) != TH_OK) return;
    fabric_strategy_infinite_barrier(s);
}

fabric_guard fabric_rank_zero_first(fabric *fab, bool local)
{
    fabric_guard guard = {.fab = fab};
    if (th__pending() != TH_OK || !fabric__check(fab, __func__)) return guard;
    if (fabric__strategy_single_process(fab->strategy) || !fab->launched) return guard;
    int rank = local ? fabric_local_rank(fab) : fabric_global_rank(fab);
    guard.context.slot[0] = rank;
    if (rank > 0 && fabric_strategy_infinite_barrier(fab->strategy) != TH_OK) return guard;
    guard.leave = leave_rank_zero_first;
    return guard;
}
