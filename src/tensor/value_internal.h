/* tensor/value_internal.h: the inside of a th_value, shared by value.c and value_tree.c. */
#ifndef FABRIC_TENSOR_VALUE_INTERNAL_H
#define FABRIC_TENSOR_VALUE_INTERNAL_H

#include "base/object.h"
#include "tensor/internal.h"
#include <cfabric/value.h>

struct th__value_key {
    char *text;     /* NULL: the key is `number` */
    int64_t number;
    uint64_t hash;
};

struct th__value_items {
    th_value **data;
    struct th__value_key *keys; /* dicts only, parallel to data */
    size_t count, capacity;
};

struct th_value {
    th__object object;
    th_value_kind kind;
    union {
        int64_t i;
        double d;
        struct { char *data; size_t size; } bytes; /* strings too; always terminated */
        th_tensor *tensor;
        struct th__value_items items;
        struct { const th_stateful *ops; void *pointer; } object;
    } u;
};

extern const th__class th__value_class;

#endif
