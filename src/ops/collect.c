/* ops/collect.c: from schemas to C names and types. */
#include "ops/generate.h"

#include "base/error.h"
#include "base/memory.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- names the hand-written headers take */

static bool is_reserved(const gen_set *set, const char *name)
{
    for (size_t i = 0; i < set->n_reserved; i++)
        if (strcmp(set->reserved[i], name) == 0) return true;
    return false;
}

int gen_reserve(gen_set *set, const char *header_path)
{
    FILE *file = fopen(header_path, "r");
    char line[1024];
    if (file == NULL) {
        fprintf(stderr, "cannot read %s\n", header_path);
        return -1;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        for (char *p = line; (p = strstr(p, "th_")) != NULL;) {
            char *end = p;
            while (isalnum((unsigned char)*end) || *end == '_') end++;
            bool whole = p == line || !(isalnum((unsigned char)p[-1]) || p[-1] == '_');
            if (whole && *end == '(') {
                char *name = th__strfmt("%.*s", (int)(end - p), p);
                if (name == NULL || TH__PUSH(set->reserved, set->n_reserved, set->reserved_capacity, name) != 0) {
                    fclose(file);
                    return -1;
                }
            }
            p = end > p ? end : p + 1;
        }
    }
    fclose(file);
    return 0;
}

/* ---------------------------------------------------------------- names */

static const char *const keywords[] = {
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float", "for", "goto",
    "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch",
    "typedef", "union", "unsigned", "void", "volatile", "while", "bool", "true", "false", "class", "new", "delete", "this", "template",
    "typename", "operator", "private", "public", "protected", "virtual", "friend", "namespace", "using", "try", "catch", "throw",
    "explicit", "export", "and", "or", "not", "xor", "concept", "requires", "complex", "I"};

static char *field_name(const char *name, size_t i)
{
    if (*name == '\0') return th__strfmt("result%zu", i);
    for (size_t k = 0; k < sizeof keywords / sizeof *keywords; k++)
        if (strcmp(name, keywords[k]) == 0) return th__strfmt("%s_", name);
    return th__strdup(name);
}

/* "aten::add_" + "Scalar" is th_add_scalar_: the underscore that says "in place" stays last. */
static char *c_name(const char *name, const char *overload, bool bare)
{
    const char *base = name + strlen("aten::");
    if (bare) return th__strfmt("th_%s", base);
    size_t length = strlen(base);
    bool in_place = length > 1 && base[length - 1] == '_' && base[length - 2] != '_';
    char *result = th__strfmt("th_%.*s_%s%s", (int)(in_place ? length - 1 : length), base, overload, in_place ? "_" : "");
    for (char *p = result != NULL ? result + strlen("th_") + (in_place ? length - 1 : length) : NULL; p != NULL && *p != '\0'; p++)
        *p = (char)tolower((unsigned char)*p);
    return result;
}

/* ---------------------------------------------------------------- collecting */

static int copy_args(gen_arg **out, const th__schema_arg *from, size_t n)
{
    *out = th__calloc(n, sizeof **out);
    if (*out == NULL) return -1;
    for (size_t i = 0; i < n; i++) {
        gen_arg *to = &(*out)[i];
        to->name = field_name(from[i].name, i);
        to->type_text = th__strdup(from[i].type_text);
        to->default_text = from[i].has_default ? th__strdup(from[i].default_text) : NULL;
        to->type = from[i].type;
        to->optional = from[i].optional;
        to->default_int = from[i].default_int;
        to->default_double = from[i].default_double;
        bool plain = !from[i].optional && from[i].has_default;
        to->default_in_macro = plain && (((from[i].type == TH__TYPE_INT || from[i].type == TH__TYPE_BOOL) && from[i].default_int != 0) ||
                                         (from[i].type == TH__TYPE_DOUBLE && from[i].default_double != 0.0));
        if (to->name == NULL || to->type_text == NULL) return -1;
    }
    return 0;
}

/* Why an operator cannot be a C function, NULL if it can. */
static const char *obstacle(const th__schema *schema)
{
    static char reason[128];
    for (size_t i = 0; i < schema->n_args; i++) {
        if (schema->args[i].type != TH__TYPE_UNSUPPORTED) continue;
        snprintf(reason, sizeof reason, "argument of type %s", schema->args[i].type_text);
        return reason;
    }
    for (size_t i = 0; i < schema->n_results; i++) {
        th__type type = schema->results[i].type;
        bool fine = type == TH__TYPE_TENSOR || type == TH__TYPE_TENSORS || type == TH__TYPE_SCALAR || type == TH__TYPE_INT ||
                    type == TH__TYPE_DOUBLE || type == TH__TYPE_BOOL || type == TH__TYPE_DTYPE;
        if (fine && !schema->results[i].optional_elements && !schema->results[i].optional) continue;
        snprintf(reason, sizeof reason, "result of type %s", schema->results[i].type_text);
        return reason;
    }
    return NULL;
}

static int skip(gen_set *set, const th__schema *schema, const char *why)
{
    gen_skip entry = {th__strfmt("%s%s%s", schema->name, *schema->overload != '\0' ? "." : "", schema->overload), th__strdup(why)};
    return TH__PUSH(set->skips, set->n_skips, set->skips_capacity, entry);
}

/* Schemas come sorted by name and overload, so "" precedes "Tensor" of the same name. */
static int add(const th__schema *schema, void *user)
{
    gen_set *set = user;
    if (strncmp(schema->name, "aten::", 6) != 0) {
        set->foreign++;
        return 0;
    }
    const char *why = obstacle(schema);
    if (why != NULL) return skip(set, schema, why);
    bool has_plain = set->n_ops > 0 && strcmp(set->ops[set->n_ops - 1].name, schema->name) == 0;
    for (size_t i = set->n_ops; i-- > 0 && strcmp(set->ops[i].name, schema->name) == 0;)
        has_plain = *set->ops[i].overload == '\0';
    bool bare = *schema->overload == '\0' || (strcmp(schema->overload, "Tensor") == 0 && !has_plain);

    gen_op op = {.name = th__strdup(schema->name), .overload = th__strdup(schema->overload), .text = th__strdup(schema->text)};
    op.c_name = c_name(schema->name, schema->overload, bare);
    op.n_args = schema->n_args;
    op.n_results = schema->n_results;
    if (op.name == NULL || op.overload == NULL || op.text == NULL || op.c_name == NULL) return -1;
    if (is_reserved(set, op.c_name)) return skip(set, schema, "hand-written in a public header");
    if (copy_args(&op.args, schema->args, schema->n_args) != 0 || copy_args(&op.results, schema->results, schema->n_results) != 0)
        return -1;
    return TH__PUSH(set->ops, set->n_ops, set->ops_capacity, op);
}

static int by_c_name(const void *a, const void *b)
{
    return strcmp(((const gen_op *)a)->c_name, ((const gen_op *)b)->c_name);
}

int gen_collect(gen_set *set)
{
    if (th__schema_each(add, set) != 0) {
        fprintf(stderr, "cannot collect operators: %s\n", th_error_message());
        return -1;
    }
    qsort(set->ops, set->n_ops, sizeof *set->ops, by_c_name);
    int collisions = 0;
    for (size_t i = 1; i < set->n_ops; i++) {
        if (strcmp(set->ops[i - 1].c_name, set->ops[i].c_name) != 0) continue;
        fprintf(stderr, "%s would stand for both %s.%s and %s.%s\n", set->ops[i].c_name, set->ops[i - 1].name,
                set->ops[i - 1].overload, set->ops[i].name, set->ops[i].overload);
        collisions++;
    }
    return collisions == 0 ? 0 : -1;
}
