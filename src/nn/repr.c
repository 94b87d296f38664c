/* nn/repr.c: print(module) as PyTorch prints it, and Python's text of floats and tuples. */
#include "nn/module_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void th__repr_add(char text[TH__REPR_MAX], const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, TH__REPR_MAX - used, format, args);
    va_end(args);
}

const char *th__repr_double(double value, char buffer[40])
{
    if (isnan(value)) return strcpy(buffer, "nan");
    if (isinf(value)) return strcpy(buffer, value > 0 ? "inf" : "-inf");
    int digits = 1;
    for (; digits < 17; digits++) {
        snprintf(buffer, 40, "%.*e", digits - 1, value);
        if (strtod(buffer, NULL) == value) break;
    }
    snprintf(buffer, 40, "%.*e", digits - 1, value);
    int exponent = atoi(strchr(buffer, 'e') + 1);
    if (exponent >= 16 || exponent < -4) return buffer; /* Python's form too: at least two exponent digits */
    int decimals = digits - 1 - exponent;
    snprintf(buffer, 40, "%.*f", decimals > 0 ? decimals : 1, value);
    return buffer;
}

const char *th__repr_tuple(const int64_t *values, size_t n, char buffer[256])
{
    size_t used = (size_t)snprintf(buffer, 256, "(");
    for (size_t i = 0; i < n && used < 256; i++)
        used += (size_t)snprintf(buffer + used, 256 - used, i > 0 ? ", %lld" : "%lld", (long long)values[i]);
    if (used < 256) snprintf(buffer + used, 256 - used, "%s", n == 1 ? ",)" : ")");
    return buffer;
}

/* ---------------------------------------------------------------- the tree */

static char *module_text(th_module *module);

/* The same text with every line but the first moved two columns to the right. */
static char *indented(const char *text)
{
    size_t lines = 0;
    for (const char *c = text; *c != '\0'; c++) lines += *c == '\n';
    char *result = th__malloc(strlen(text) + 2 * lines + 1), *to = result;
    if (result == NULL) return NULL;
    for (const char *c = text; *c != '\0'; c++) {
        *to++ = *c;
        if (*c == '\n') to = stpcpy(to, "  ");
    }
    *to = '\0';
    return result;
}

/* Appends "  (key): text\n" to *body. */
static void add_child(char **body, const char *key, const char *text)
{
    char *shifted = text != NULL && *body != NULL ? indented(text) : NULL;
    char *longer = shifted != NULL ? th__strfmt("%s  (%s): %s\n", *body, key, shifted) : NULL;
    free(shifted);
    free(*body);
    *body = longer;
}

/* PyTorch 2 folds equal neighbours of a ModuleList: "(0-5): 6 x Linear(...)". */
static bool folds(const th_module *module) { return strcmp(module->name, "ModuleList") == 0 && th__torch_at_least(2, 1); }

static char *children_text(th_module *module)
{
    char *body = th__strdup("");
    for (size_t i = 0, end; i < module->n_children && body != NULL; i = end) {
        char *text = module_text(module->children[i].module), key[64];
        end = i + 1;
        while (text != NULL && folds(module) && end < module->n_children) {
            char *next = module_text(module->children[end].module);
            bool equal = next != NULL && strcmp(text, next) == 0;
            free(next);
            if (!equal) break;
            end++;
        }
        if (folds(module)) {
            char *counted = text != NULL && end - i > 1 ? th__strfmt("%zu x %s", end - i, text) : NULL;
            int used = snprintf(key, sizeof key, "%zu", i);
            if (end - i > 1) snprintf(key + used, sizeof key - (size_t)used, "-%zu", end - 1);
            add_child(&body, key, counted != NULL ? counted : text);
            free(counted);
        } else {
            add_child(&body, module->children[i].name, text);
        }
        free(text);
    }
    return body;
}

static char *module_text(th_module *module)
{
    const char *extra = module->extra_repr != NULL ? module->extra_repr : "";
    bool one_line = module->n_children == 0 && strchr(extra, '\n') == NULL;
    if (one_line) return th__strfmt("%s(%s)", module->name, extra);
    char *body = children_text(module), *shifted = indented(extra), *text = NULL;
    if (body != NULL && shifted != NULL)
        text =
            th__strfmt("%s(\n%s%s%s%s)", module->name, extra[0] != '\0' ? "  " : "", shifted, extra[0] != '\0' ? "\n" : "", body);
    free(body);
    free(shifted);
    return text;
}

char *th_module_to_string(th_module *module)
{
    TH__CHECK_PENDING_NULL();
    return th__module_check(module, __func__) ? module_text(module) : NULL;
}

void th_module_print(th_module *module)
{
    char *text = th_module_to_string(module);
    if (text != NULL) puts(text);
    free(text);
}
