/* ops/emit.c: writes the generated header, the bodies and the report. */
#include "ops/generate.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *c_type(const gen_arg *arg)
{
    switch (arg->type) {
    case TH__TYPE_TENSOR: return "th_tensor *";
    case TH__TYPE_SCALAR: return "th_scalar ";
    case TH__TYPE_INT: return arg->optional ? "th_opt_int " : "int64_t ";
    case TH__TYPE_DOUBLE: return arg->optional ? "th_opt_double " : "double ";
    case TH__TYPE_BOOL: return arg->optional ? "th_opt_bool " : "bool ";
    case TH__TYPE_STRING: return "const char *";
    case TH__TYPE_INTS: return "th_ints ";
    case TH__TYPE_DOUBLES: return "th_doubles ";
    case TH__TYPE_BOOLS: return "th_bools ";
    case TH__TYPE_TENSORS: return "th_tensors ";
    case TH__TYPE_SCALARS: return "th_scalars ";
    case TH__TYPE_DTYPE: return "th_dtype ";
    case TH__TYPE_LAYOUT: return "th_layout ";
    case TH__TYPE_MEMORY_FORMAT: return "th_memory_format ";
    case TH__TYPE_DEVICE: return "th_device ";
    case TH__TYPE_GENERATOR: return "th_generator *";
    case TH__TYPE_UNSUPPORTED: break;
    }
    return "#error ";
}

static void write_result_type(FILE *out, const gen_op *op)
{
    if (op->n_results == 0) fputs("th_status ", out);
    else if (op->n_results == 1) fputs(c_type(&op->results[0]), out);
    else fprintf(out, "struct %s_result ", op->c_name);
}

static void write_defaults(FILE *out, const gen_op *op)
{
    for (size_t i = 0; i < op->n_args; i++) {
        const gen_arg *arg = &op->args[i];
        if (!arg->default_in_macro) continue;
        if (arg->type == TH__TYPE_BOOL) fprintf(out, ".%s = true, ", arg->name);
        else if (arg->type == TH__TYPE_INT) fprintf(out, ".%s = INT64_C(%" PRId64 "), ", arg->name, arg->default_int);
        else if (isinf(arg->default_double))
            fprintf(out, ".%s = %s__builtin_inf(), ", arg->name, arg->default_double < 0 ? "-" : "");
        else fprintf(out, ".%s = %.17g, ", arg->name, arg->default_double);
    }
}

/* The comment of an operator: its schema, and what leaving out an argument means. */
static void write_comment(FILE *out, const gen_op *op)
{
    fprintf(out, "/** %s\n", op->text);
    fputs(" *  Arguments: ", out);
    if (op->n_args == 0) fputs("none", out);
    for (size_t i = 0; i < op->n_args; i++) {
        const gen_arg *arg = &op->args[i];
        fprintf(out, "%s%s", i > 0 ? ", " : "", arg->name);
        if (arg->default_text != NULL && arg->default_text[0] != '\0' && strlen(arg->default_text) < 40)
            fprintf(out, " (default %s)", arg->default_text);
        else if (arg->optional) fputs(" (optional)", out);
    }
    fputs(". Tensor results are [scoped]; in-place and out forms return the handle given. */\n", out);
}

static void write_declaration(FILE *out, const gen_op *op)
{
    write_comment(out, op);
    if (op->n_results > 1) {
        fprintf(out, "struct %s_result {", op->c_name);
        for (size_t i = 0; i < op->n_results; i++) fprintf(out, " %s%s;", c_type(&op->results[i]), op->results[i].name);
        fputs(" };\n", out);
    }
    if (op->n_args == 0) {
        fputs("FABRIC_API ", out);
        write_result_type(out, op);
        fprintf(out, "%s_call(void);\n#define %s() %s_call()\n\n", op->c_name, op->c_name, op->c_name);
        return;
    }
    fprintf(out, "struct %s_args {", op->c_name);
    for (size_t i = 0; i < op->n_args; i++) fprintf(out, " %s%s;", c_type(&op->args[i]), op->args[i].name);
    fputs(" };\nFABRIC_API ", out);
    write_result_type(out, op);
    fprintf(out, "%s_call(struct %s_args a);\n", op->c_name, op->c_name);
    fprintf(out, "#define %s(...) %s_call((struct %s_args){", op->c_name, op->c_name, op->c_name);
    write_defaults(out, op);
    fprintf(out, ".%s = __VA_ARGS__})\n", op->args[0].name);
    fputs("#define ", out);
    for (const char *p = op->c_name; *p != '\0'; p++) fputc(toupper((unsigned char)*p), out);
    fputs("_DEFAULTS {", out);
    write_defaults(out, op);
    fputs("}\n\n", out);
}

/* Files are written beside their place and moved there only if they differ, so that an unchanged operator set rebuilds nothing. */
static char temporary[4096];

static FILE *begin(const char *path)
{
    snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *file = fopen(temporary, "w");
    if (file == NULL) fprintf(stderr, "cannot write %s\n", temporary);
    return file;
}

static bool same_content(const char *a, const char *b)
{
    FILE *fa = fopen(a, "r"), *fb = fopen(b, "r");
    bool same = fa != NULL && fb != NULL;
    static char buffer_a[1 << 16], buffer_b[1 << 16];
    for (size_t n = 1; same && n > 0;) {
        n = fread(buffer_a, 1, sizeof buffer_a, fa);
        same = fread(buffer_b, 1, sizeof buffer_b, fb) == n && memcmp(buffer_a, buffer_b, n) == 0;
    }
    if (fa != NULL) fclose(fa);
    if (fb != NULL) fclose(fb);
    return same;
}

static int finish(FILE *file, const char *path)
{
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0) failed = true;
    if (!failed && same_content(temporary, path)) return remove(temporary);
    if (failed || rename(temporary, path) != 0) {
        fprintf(stderr, "cannot write %s\n", path);
        return -1;
    }
    return 0;
}

int gen_write_header(const gen_set *set, const char *path)
{
    FILE *out = begin(path);
    if (out == NULL) return -1;
    fprintf(out,
            "/* cfabric/ops.h: generated from the operator schemas of libtorch %s; do not edit.\n *\n"
            " * th_add(x, y, .alpha = TH_S(2)): keyword macros over one argument struct and one function per operator. C++ and other\n"
            " * languages fill the struct (TH_ADD_DEFAULTS) and call the function (th_add_call). */\n"
            "#ifndef CFABRIC_OPS_H\n#define CFABRIC_OPS_H\n\n#include <cfabric/tensor.h>\n\nTH_BEGIN_DECLS\n\n",
            th_torch_version());
    for (size_t i = 0; i < set->n_ops; i++) write_declaration(out, &set->ops[i]);
    fputs("TH_END_DECLS\n#endif\n", out);
    return finish(out, path);
}

/* ---------------------------------------------------------------- bodies */

static void write_argument(FILE *out, const gen_arg *arg)
{
    static const struct { th__type type; const char *kind, *member; } names[] = {
        {TH__TYPE_TENSOR, "TENSOR", "tensor"}, {TH__TYPE_SCALAR, "SCALAR", "scalar"}, {TH__TYPE_INT, "INT", "i"},
        {TH__TYPE_DOUBLE, "DOUBLE", "d"}, {TH__TYPE_BOOL, "BOOL", "b"}, {TH__TYPE_STRING, "STRING", "s"},
        {TH__TYPE_INTS, "INTS", "ints"}, {TH__TYPE_DOUBLES, "DOUBLES", "doubles"}, {TH__TYPE_BOOLS, "BOOLS", "bools"},
        {TH__TYPE_TENSORS, "TENSORS", "tensors"}, {TH__TYPE_SCALARS, "SCALARS", "scalars"}, {TH__TYPE_DTYPE, "DTYPE", "dtype"},
        {TH__TYPE_LAYOUT, "LAYOUT", "layout"}, {TH__TYPE_MEMORY_FORMAT, "MEMORY_FORMAT", "memory_format"},
        {TH__TYPE_DEVICE, "DEVICE", "device"}, {TH__TYPE_GENERATOR, "GENERATOR", "generator"}};
    bool boxed_optional = arg->optional &&
                          (arg->type == TH__TYPE_INT || arg->type == TH__TYPE_DOUBLE || arg->type == TH__TYPE_BOOL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].type != arg->type) continue;
        if (boxed_optional)
            fprintf(out, "{.kind = a.%s.has ? TH_ARG_%s : TH_ARG_NONE, .v.%s = a.%s.value}", arg->name, names[i].kind,
                    names[i].member, arg->name);
        else fprintf(out, "{.kind = TH_ARG_%s, .v.%s = a.%s}", names[i].kind, names[i].member, arg->name);
    }
}

/* The member of th_arg that holds a result of this type. */
static const char *result_member(th__type type)
{
    switch (type) {
    case TH__TYPE_TENSOR: return "tensor";
    case TH__TYPE_TENSORS: return "tensors";
    case TH__TYPE_SCALAR: return "scalar";
    case TH__TYPE_INT: return "i";
    case TH__TYPE_DOUBLE: return "d";
    case TH__TYPE_BOOL: return "b";
    default: return "dtype";
    }
}

static void write_body(FILE *out, const gen_op *op)
{
    write_result_type(out, op);
    fprintf(out, op->n_args > 0 ? "%s_call(struct %s_args a)\n{\n" : "%s_call(void)\n{\n", op->c_name, op->c_name);
    fprintf(out, "    static th__op op = {\"%s\", \"%s\", 0};\n", op->name, op->overload);
    if (op->n_args > 0) {
        fputs("    const th_arg args[] = {", out);
        for (size_t i = 0; i < op->n_args; i++) {
            fputs(i > 0 ? ", " : "", out);
            write_argument(out, &op->args[i]);
        }
        fputs("};\n", out);
    }
    const char *args = op->n_args > 0 ? "args" : "0";
    if (op->n_results == 0) {
        fprintf(out, "    int n = th__op_call(&op, %s, %zu, 0, 0);\n    return n < 0 ? (th_status)n : TH_OK;\n}\n\n", args, op->n_args);
    } else if (op->n_results == 1 && op->results[0].type == TH__TYPE_TENSOR) {
        fprintf(out, "    return th__op_call_tensor(&op, %s, %zu);\n}\n\n", args, op->n_args);
    } else {
        fprintf(out, "    th_arg r[%zu] = {{0}};\n    th__op_call(&op, %s, %zu, r, %zu);\n    return ", op->n_results, args, op->n_args,
                op->n_results);
        if (op->n_results > 1) fprintf(out, "(struct %s_result){", op->c_name);
        for (size_t i = 0; i < op->n_results; i++)
            fprintf(out, "%sr[%zu].v.%s", i > 0 ? ", " : "", i, result_member(op->results[i].type));
        fputs(op->n_results > 1 ? "};\n}\n\n" : ";\n}\n\n", out);
    }
}

int gen_write_bodies(const gen_set *set, const char *path, size_t shard, size_t shards)
{
    FILE *out = begin(path);
    if (out == NULL) return -1;
    fputs("/* Generated from the operator schemas; do not edit. */\n#include \"bridge/bridge.h\"\n#include <cfabric/ops.h>\n\n", out);
    for (size_t i = shard; i < set->n_ops; i += shards) write_body(out, &set->ops[i]);
    return finish(out, path);
}

int gen_write_report(const gen_set *set, const char *path)
{
    FILE *out = begin(path);
    if (out == NULL) return -1;
    fprintf(out, "generated %zu\nleft_out %zu\nother_namespaces %zu\n", set->n_ops, set->n_skips, set->foreign);
    for (size_t i = 0; i < set->n_skips; i++) fprintf(out, "%s: %s\n", set->skips[i].text, set->skips[i].reason);
    return finish(out, path);
}
