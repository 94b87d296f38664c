/* ops/generate.h: the operator generator: collect.c reads schemas and picks names, emit.c writes C, generate.c is its main(). */
#ifndef FABRIC_OPS_GENERATE_H
#define FABRIC_OPS_GENERATE_H

#include "bridge/bridge.h"
#include <stdio.h>

typedef struct gen_arg {
    char *name;            /* as a C field */
    char *type_text;       /* as in the schema */
    char *default_text;    /* NULL without a default */
    th__type type;
    bool optional;
    bool default_in_macro; /* a plain int, bool or float whose default is not zero */
    int64_t default_int;
    double default_double;
} gen_arg;

typedef struct gen_op {
    char *c_name;                       /* "th_add_scalar" */
    char *name, *overload, *text;       /* "aten::add", "Scalar", the schema */
    gen_arg *args, *results;
    size_t n_args, n_results;
} gen_op;

typedef struct gen_skip { char *text; const char *reason; } gen_skip;

typedef struct gen_set {
    gen_op *ops;
    size_t n_ops, ops_capacity;
    gen_skip *skips;
    size_t n_skips, skips_capacity;
    char **reserved;                    /* names the hand-written headers use */
    size_t n_reserved, reserved_capacity;
    size_t foreign;                     /* operators of other namespaces: th_call reaches them */
} gen_set;

/* Reads the names a header declares or defines, so that generated ones do not collide. 0, or -1 with a message printed. */
int gen_reserve(gen_set *set, const char *header_path);
/* Collects every aten operator. 0, or -1 with a message printed; a collision of generated names is such a failure. */
int gen_collect(gen_set *set);
/* Write the header / one shard of the bodies / the report. */
int gen_write_header(const gen_set *set, const char *path);
int gen_write_bodies(const gen_set *set, const char *path, size_t shard, size_t shards);
int gen_write_report(const gen_set *set, const char *path);

#endif
