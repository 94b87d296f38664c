/* checkpoint/plan.c: collects the storages of a state (each once, however many tensors share it) and pickles the state around
 * them. */
#include "checkpoint/plan.h"

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/from_nodes.h"
#include <cfabric/autograd.h>
#include <cfabric/scope.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 500 };

/* ---------------------------------------------------------------- first walk: tensors and storages */

static size_t hash_of(const void *id, th_dtype dtype) { return ((uintptr_t)id >> 4) * 0x9e3779b97f4a7c15u + (size_t)dtype * 31; }

static th_status grow_table(th__plan *plan)
{
    size_t size = plan->table_size == 0 ? 64 : plan->table_size * 2;
    uint32_t *table = th__calloc(size, sizeof *table);
    if (table == NULL) return th__pending();
    for (size_t i = 0; i < plan->n_storages; i++) {
        size_t at = hash_of(plan->storages[i].id, plan->storages[i].dtype) & (size - 1);
        while (table[at] != 0) at = (at + 1) & (size - 1);
        table[at] = (uint32_t)i + 1;
    }
    free(plan->table);
    plan->table = table;
    plan->table_size = size;
    return TH_OK;
}

/* The storage of a tensor; made when it is new. Tensors that view one memory as two dtypes get a storage each, as the format
 * knows no other way. NULL with an error. */
static th__plan_storage *storage_of(th__plan *plan, th_tensor *tensor)
{
    const void *id = th_storage_id(tensor);
    th_dtype dtype = th_dtype_of(tensor);
    if (plan->n_storages * 2 >= plan->table_size && grow_table(plan) != TH_OK) return NULL;
    size_t at = hash_of(id, dtype) & (plan->table_size - 1);
    for (; plan->table[at] != 0; at = (at + 1) & (plan->table_size - 1)) {
        th__plan_storage *s = &plan->storages[plan->table[at] - 1];
        if (s->id == id && s->dtype == dtype) return s;
    }
    th__plan_storage fresh = {.id = id, .dtype = dtype};
    if (TH__PUSH(plan->storages, plan->n_storages, plan->storages_capacity, fresh) != 0) return NULL;
    plan->table[at] = (uint32_t)plan->n_storages;
    return &plan->storages[plan->n_storages - 1];
}

/* One past the last element of the storage that the tensor uses. */
static uint64_t extent_of(th_tensor *tensor)
{
    th_ints sizes = th_sizes(tensor), strides = th_strides(tensor);
    uint64_t last = (uint64_t)th_storage_offset(tensor);
    for (size_t i = 0; i < sizes.size; i++) {
        if (sizes.data[i] == 0) return 0;
        last += (uint64_t)(sizes.data[i] - 1) * (uint64_t)strides.data[i];
    }
    return last + 1;
}

static th_status add_tensor(th__plan *plan, th_tensor *tensor)
{
    TH_SCOPE();
    th_dtype dtype = th_dtype_of(tensor);
    if (th__dtype_info_of(dtype) == NULL && th__pending() == TH_OK)
        return th__fail(TH_ERR_NOT_IMPLEMENTED, "th_save", "a tensor of dtype %s cannot be saved", th_dtype_name(dtype));
    th_tensor *plain = th_call("aten::resolve_neg", TH_A(tensor));
    if (plain != NULL && th_dtype_is_complex(dtype)) plain = th_call("aten::resolve_conj", TH_A(plain));
    if (plain == NULL) return th__pending();
    th_tensor *mine = th_retain(plain);
    if (mine == NULL) return th__pending();
    if (TH__PUSH(plan->tensors, plan->n_tensors, plan->tensors_capacity, mine) != 0) {
        th_free(mine);
        return th__pending();
    }
    if (th_numel(mine) > 0 && th_data_ptr(mine) == NULL && th__pending() == TH_OK)
        return th__fail(TH_ERR_VALUE, "th_save", "a tensor without memory (meta) cannot be saved");
    th__plan_storage *s = storage_of(plan, mine);
    if (s == NULL) return th__pending();
    uint64_t extent = extent_of(mine);
    if (extent > s->numel) {
        s->numel = extent;
        s->keep = mine; /* the one that reaches farthest; borrowed from plan->tensors until fetch_storages */
    }
    return th__pending();
}

static th_status collect(th__plan *plan, const th_value *value, int depth)
{
    if (depth > DEPTH_MAX) return th__fail(TH_ERR_VALUE, "th_save", "the state is nested deeper than %d levels", DEPTH_MAX);
    switch (th_value_kind_of(value)) {
    case TH_VALUE_TENSOR: return add_tensor(plan, th_value_as_tensor(value));
    case TH_VALUE_LIST:
    case TH_VALUE_TUPLE:
    case TH_VALUE_DICT:
        for (size_t i = 0; i < th_value_size(value); i++) TH__TRY(collect(plan, th_value_at(value, i), depth + 1));
        return TH_OK;
    default: return TH_OK;
    }
}

/* Where each storage lies; what is not in CPU memory is brought there. */
static th_status fetch_storages(th__plan *plan)
{
    for (size_t i = 0; i < plan->n_storages; i++) {
        th__plan_storage *s = &plan->storages[i];
        th_tensor *tensor = s->keep;
        s->keep = NULL;
        s->nbytes = s->numel * th__dtype_info_of(s->dtype)->size;
        if (s->numel == 0) continue;
        TH_SCOPE();
        const int64_t numel = (int64_t)s->numel, one = 1;
        if (th_device_of(tensor).type != TH_DEVICE_CPU) {
            th_tensor *flat = th_call("aten::as_strided", TH_A(tensor), TH_A_INTS(((th_ints){&numel, 1})),
                                      TH_A_INTS(((th_ints){&one, 1})), TH_A_INT(0));
            if (flat != NULL) flat = th_call("aten::cpu", TH_A(flat));
            s->keep = flat != NULL ? th_retain(flat) : NULL;
            s->data = s->keep != NULL ? th_data_ptr(s->keep) : NULL;
        } else {
            s->data = (const char *)th_data_ptr(tensor) - (uint64_t)th_storage_offset(tensor) * th__dtype_info_of(s->dtype)->size;
        }
        TH__CHECK_PENDING();
    }
    return TH_OK;
}

/* ---------------------------------------------------------------- second walk: the pickle */

static th_status pickle_tensor(th__plan *plan, size_t *next)
{
    th_tensor *tensor = plan->tensors[(*next)++];
    th__plan_storage *s = storage_of(plan, tensor);
    if (s == NULL) return th__pending();
    char key[24], device[32] = "cpu";
    snprintf(key, sizeof key, "%zu", (size_t)(s - plan->storages));
    th_device where = th_device_of(tensor);
    if (where.type != TH_DEVICE_CPU) th_device_format(where, device, sizeof device);
    th_ints sizes = th_sizes(tensor), strides = th_strides(tensor);
    bool empty = th_numel(tensor) == 0;
    th__pickle_tensor_spec spec = {.dtype = th__dtype_info_of(s->dtype),
                                   .key = key,
                                   .device = device,
                                   .storage_numel = s->numel,
                                   .offset = empty ? 0 : th_storage_offset(tensor),
                                   .sizes = sizes.data,
                                   .strides = strides.data,
                                   .dim = sizes.size,
                                   .requires_grad = th_requires_grad(tensor)};
    return th__pickle_tensor(&plan->pickler, &spec);
}

static th_status pickle_value(th__plan *plan, const th_value *value, size_t *next);

static th_status pickle_items(th__plan *plan, const th_value *value, char kind, size_t *next)
{
    th__pickler *p = &plan->pickler;
    TH__TRY(th__pickle_open(p, kind));
    for (size_t i = 0; i < th_value_size(value); i++) {
        if (kind == '{') {
            int64_t number = 0;
            const char *key = th_value_key_at(value, i, &number);
            TH__TRY(key != NULL ? th__pickle_text(p, key) : th__pickle_int(p, number));
        }
        TH__TRY(pickle_value(plan, th_value_at(value, i), next));
    }
    return th__pickle_close(p, kind);
}

static th_status pickle_value(th__plan *plan, const th_value *value, size_t *next)
{
    th__pickler *p = &plan->pickler;
    size_t size = 0;
    const void *bytes;
    switch (th_value_kind_of(value)) {
    case TH_VALUE_NONE: return th__pickle_none(p);
    case TH_VALUE_BOOL: return th__pickle_bool(p, th_value_as_bool(value, false));
    case TH_VALUE_INT: return th__pickle_int(p, th_value_as_int(value, 0));
    case TH_VALUE_DOUBLE: return th__pickle_double(p, th_value_as_double(value, 0.0));
    case TH_VALUE_STRING: return th__pickle_text(p, th_value_as_string(value, ""));
    case TH_VALUE_BYTES: bytes = th_value_as_bytes(value, &size); return th__pickle_bytes(p, bytes, size);
    case TH_VALUE_TENSOR: return pickle_tensor(plan, next);
    case TH_VALUE_LIST: return pickle_items(plan, value, '[', next);
    case TH_VALUE_TUPLE: return pickle_items(plan, value, '(', next);
    case TH_VALUE_DICT: return pickle_items(plan, value, '{', next);
    case TH_VALUE_OBJECT: break;
    }
    void *object;
    const th_stateful *ops = th_value_as_object(value, &object);
    return th__fail(TH_ERR_TYPE, "th_save", "a live object (%s) is in the state; its state_dict is expected",
                    ops != NULL ? ops->type : "?");
}

th_status th__plan_make(th__plan *plan, const th_value *state)
{
    TH__CHECK_PENDING();
    *plan = (th__plan){0};
    size_t next = 0;
    th_status status = collect(plan, state, 0);
    if (status == TH_OK) status = fetch_storages(plan);
    if (status == TH_OK) status = th__pickle_begin(&plan->pickler);
    if (status == TH_OK) status = pickle_value(plan, state, &next);
    if (status == TH_OK) status = th__pickle_end(&plan->pickler);
    if (status != TH_OK) th__plan_free(plan);
    return status;
}

/* ---------------------------------------------------------------- using it */

static void drop_tensors(th__plan *plan)
{
    for (size_t i = 0; i < plan->n_tensors; i++) th_free(plan->tensors[i]);
    free(plan->tensors);
    plan->tensors = NULL;
    plan->n_tensors = plan->tensors_capacity = 0;
}

th_status th__plan_snapshot(th__plan *plan)
{
    TH__CHECK_PENDING();
    for (size_t i = 0; i < plan->n_storages; i++) {
        th__plan_storage *s = &plan->storages[i];
        if (s->nbytes == 0 || s->keep != NULL) continue; /* what came from another device is a copy already */
        s->copy = th__storage_memory(s->nbytes);
        if (s->copy == NULL) return th__pending();
        memcpy(s->copy, s->data, (size_t)s->nbytes);
        s->data = s->copy;
    }
    drop_tensors(plan);
    return TH_OK;
}

uint64_t th__plan_nbytes(const th__plan *plan)
{
    uint64_t total = 0;
    for (size_t i = 0; i < plan->n_storages; i++) total += plan->storages[i].nbytes;
    return total;
}

th_status th__plan_write(const th__plan *plan, th__sink *sink)
{
    TH__CHECK_PENDING();
    static const uint16_t probe = 1;
    const char *order = *(const unsigned char *)&probe == 1 ? "little" : "big";
    th__zip_writer zip;
    th__zip_begin(&zip, sink);
    th_status status = th__zip_add(&zip, "archive/data.pkl", plan->pickler.out.data, plan->pickler.out.size);
    if (status == TH_OK) status = th__zip_add(&zip, "archive/.format_version", "1", 1);
    if (status == TH_OK) status = th__zip_add(&zip, "archive/.storage_alignment", "64", 2);
    if (status == TH_OK) status = th__zip_add(&zip, "archive/byteorder", order, strlen(order));
    for (size_t i = 0; i < plan->n_storages && status == TH_OK; i++) {
        char name[48];
        snprintf(name, sizeof name, "archive/data/%zu", i);
        status = th__zip_add(&zip, name, plan->storages[i].data, plan->storages[i].nbytes);
    }
    if (status == TH_OK) status = th__zip_add(&zip, "archive/version", "3\n", 2);
    if (status == TH_OK) status = th__zip_finish(&zip);
    th__zip_writer_free(&zip);
    return status;
}

th_status th__plan_write_file(const th__plan *plan, const char *path)
{
    th__atomic_file file;
    TH__TRY(th__atomic_open(&file, path));
    th__sink sink;
    th__sink_init(&sink, &file);
    th_status status = th__plan_write(plan, &sink);
    if (status == TH_OK) status = th__sink_flush(&sink);
    th__sink_free(&sink);
    if (status == TH_OK) return th__atomic_commit(&file);
    th__atomic_abort(&file);
    return status;
}

void th__plan_free(th__plan *plan)
{
    drop_tensors(plan);
    for (size_t i = 0; i < plan->n_storages; i++) {
        if (plan->storages[i].copy != NULL) free(plan->storages[i].copy);
        if (plan->storages[i].keep != NULL) th_free(plan->storages[i].keep);
    }
    free(plan->storages);
    free(plan->table);
    th__pickle_free(&plan->pickler);
    *plan = (th__plan){0};
}
