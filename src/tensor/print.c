/* tensor/print.c: the text Python's print(tensor) shows: precision 4, 80 columns, summaries above 1000 elements. */
#include "base/memory.h"
#include "bridge/bridge.h"
#include "tensor/internal.h"
#include <cfabric/autograd.h>
#include <cfabric/ops.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_WIDTH = 80, EDGE_ITEMS = 3, SUMMARY_ABOVE = 1000, INDENT = 7 /* strlen("tensor(") */, MAX_DIMS = 64 };

/* How all numbers of a tensor are written: one choice, so that columns line up. */
typedef struct style { bool integers, whole, scientific; int width; } style;

typedef struct printer {
    FILE *out;
    const double *real, *imag; /* imag NULL unless complex; bools and floats too */
    const int64_t *ints;       /* not NULL: integer or bool dtype */
    bool is_bool, summarize;
    style main, imaginary;
    int64_t sizes[MAX_DIMS];   /* of the data shown: at most 2 * EDGE_ITEMS where a dimension is cut */
    bool cut[MAX_DIMS];
    size_t dims;
} printer;

static int format_number(char *text, size_t size, double value, const style *s)
{
    if (s->scientific) return snprintf(text, size, "%.4e", value);
    if (!s->whole) return snprintf(text, size, "%.4f", value);
    return isfinite(value) ? snprintf(text, size, "%.0f.", value) : snprintf(text, size, "%.0f", value);
}

static style choose_style(const double *values, size_t n)
{
    style s = {.whole = true, .width = 1};
    double largest = 0.0, smallest = INFINITY;
    for (size_t i = 0; i < n; i++) {
        double v = fabs(values[i]);
        if (v == 0.0 || !isfinite(v)) continue;
        if (v > largest) largest = v;
        if (v < smallest) smallest = v;
        if (v != ceil(v)) s.whole = false;
    }
    if (largest == 0.0) return s;
    s.scientific = largest / smallest > 1000.0 || largest > 1.0e8 || (!s.whole && smallest < 1.0e-4);
    for (size_t i = 0; i < n; i++) {
        char text[400];
        if (values[i] == 0.0 || !isfinite(values[i])) continue;
        int width = format_number(text, sizeof text, values[i], &s);
        if (width > s.width) s.width = width;
    }
    return s;
}

/* ---------------------------------------------------------------- elements and brackets */

static int element_text(const printer *p, size_t i, char *text, size_t size)
{
    if (p->is_bool) return snprintf(text, size, "%s", p->ints[i] != 0 ? "True" : "False");
    if (p->ints != NULL) return snprintf(text, size, "%" PRId64, p->ints[i]);
    int length = format_number(text, size, p->real[i], &p->main);
    return length;
}

static void write_element(const printer *p, size_t i)
{
    char text[400];
    int length = element_text(p, i, text, sizeof text);
    fprintf(p->out, "%*s%s", p->main.width > length ? p->main.width - length : 0, "", text);
    if (p->imag == NULL) return;
    format_number(text, sizeof text, p->imag[i], &p->imaginary);
    fprintf(p->out, "%s%sj", text[0] == '-' ? "" : "+", text);
}

static void write_vector(const printer *p, size_t dim, size_t offset, int indent)
{
    int element = p->main.width + 2 + (p->imag != NULL ? p->imaginary.width + 1 : 0);
    int per_line = (LINE_WIDTH - indent) / element;
    int64_t n = p->sizes[dim], position = 0;
    if (per_line < 1) per_line = 1;
    fputc('[', p->out);
    for (int64_t i = 0; i < n; i++) {
        if (p->cut[dim] && i == EDGE_ITEMS) {
            fprintf(p->out, position > 0 && position % per_line == 0 ? ",\n%*s ..." : ", %*s ...",
                    position > 0 && position % per_line == 0 ? indent + 1 : 0, "");
            position++;
        }
        if (position > 0 && position % per_line == 0) fprintf(p->out, ",\n%*s", indent + 1, "");
        else if (position > 0) fputs(", ", p->out);
        write_element(p, offset + (size_t)i);
        position++;
    }
    fputc(']', p->out);
}

static void write_block(const printer *p, size_t dim, size_t offset, int indent)
{
    if (p->dims == 0) {
        write_element(p, 0);
        return;
    }
    if (dim + 1 == p->dims) {
        write_vector(p, dim, offset, indent);
        return;
    }
    size_t stride = 1;
    for (size_t d = dim + 1; d < p->dims; d++) stride *= (size_t)p->sizes[d];
    fputc('[', p->out);
    for (int64_t i = 0; i < p->sizes[dim]; i++) {
        for (int again = 0; again < (p->cut[dim] && i == EDGE_ITEMS ? 2 : 1); again++) {
            if (i > 0) {
                fputc(',', p->out);
                for (size_t d = dim + 1; d < p->dims; d++) fputc('\n', p->out);
                fprintf(p->out, "%*s", indent + 1, "");
            }
            if (p->cut[dim] && i == EDGE_ITEMS && again == 0) fputs("...", p->out);
        }
        write_block(p, dim + 1, offset + (size_t)i * stride, indent + 1);
    }
    fputc(']', p->out);
}

/* ---------------------------------------------------------------- collecting the numbers */

/* The part that is shown: the edges of every dimension that is cut. */
static th_tensor *shown_part(printer *p, th_tensor *t)
{
    th_ints sizes = th_sizes(t);
    p->dims = sizes.size;
    for (size_t d = 0; d < p->dims; d++) {
        p->sizes[d] = sizes.data[d];
        p->cut[d] = p->summarize && sizes.data[d] > 2 * EDGE_ITEMS;
    }
    for (size_t d = 0; d < p->dims; d++) {
        if (!p->cut[d]) continue;
        int64_t n = p->sizes[d];
        t = th_index_select(t, (int64_t)d, th_tensor_from((int64_t[]){0, 1, 2, n - 3, n - 2, n - 1}, TH_INTS(6), TH_INT64));
        p->sizes[d] = 2 * EDGE_ITEMS;
    }
    return t;
}

static void *copy_out(th_tensor *t, th_dtype dtype, size_t n)
{
    void *data = th__scope_alloc(n * 8 + 8);
    return data != NULL && th_copy_to(t, data, n * 8, dtype) == TH_OK ? data : NULL;
}

static void write_numbers(printer *p, th_tensor *t)
{
    th_dtype dtype = th_dtype_of(t);
    t = shown_part(p, th_to_device(th_detach(t), .device = TH_CPU, .dtype = dtype));
    size_t n = (size_t)th_numel(t);
    if (th_dtype_is_complex(dtype)) {
        p->real = copy_out(th_real(t), TH_FLOAT64, n);
        p->imag = copy_out(th_imag(t), TH_FLOAT64, n);
        if (p->real == NULL || p->imag == NULL) return;
        p->main = choose_style(p->real, n);
        p->imaginary = choose_style(p->imag, n);
    } else if (th_dtype_is_floating_point(dtype)) {
        p->real = copy_out(t, TH_FLOAT64, n);
        if (p->real == NULL) return;
        p->main = choose_style(p->real, n);
    } else {
        p->ints = copy_out(t, TH_INT64, n);
        p->is_bool = dtype == TH_BOOL;
        if (p->ints == NULL) return;
        for (size_t i = 0; i < n; i++) {
            char text[32];
            int width = element_text(p, i, text, sizeof text);
            if (width > p->main.width) p->main.width = width;
        }
    }
    write_block(p, 0, 0, INDENT);
}

/* ---------------------------------------------------------------- suffixes */

static void add_suffix(FILE *out, long *column, const char *suffix)
{
    long length = (long)strlen(suffix);
    if (*column + length + 2 > LINE_WIDTH) {
        fprintf(out, ",\n%*s%s", INDENT, "", suffix);
        *column = INDENT + length;
    } else {
        fprintf(out, ", %s", suffix);
        *column += length + 2;
    }
}

static void write_suffixes(FILE *out, long column, th_tensor *t)
{
    char text[256], device[64];
    th_ints sizes = th_sizes(t);
    th_dtype dtype = th_dtype_of(t);
    th_device where = th_device_of(t);
    if (where.type != TH_DEVICE_CPU) {
        snprintf(text, sizeof text, "device='%s'", th_device_format(where, device, sizeof device));
        add_suffix(out, &column, text);
    }
    if ((th_numel(t) == 0 && sizes.size != 1) || where.type == TH_DEVICE_META) {
        size_t used = (size_t)snprintf(text, sizeof text, "size=(");
        for (size_t i = 0; i < sizes.size && used < sizeof text - 32; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRId64, i > 0 ? ", " : "", sizes.data[i]);
        snprintf(text + used, sizeof text - used, sizes.size == 1 ? ",)" : ")");
        add_suffix(out, &column, text);
    }
    bool implied = dtype == th_get_default_dtype() || dtype == TH_INT64 || dtype == TH_BOOL ||
                   (dtype == TH_COMPLEX64 && th_get_default_dtype() == TH_FLOAT32);
    if (!implied || (th_numel(t) == 0 && dtype != th_get_default_dtype())) {
        snprintf(text, sizeof text, "dtype=torch.%s", th_dtype_name(dtype));
        add_suffix(out, &column, text);
    }
    char *function = th__grad_fn_name(t);
    if (function != NULL) {
        snprintf(text, sizeof text, "grad_fn=<%s>", function);
        add_suffix(out, &column, text);
        free(function);
    } else if (th_requires_grad(t)) {
        add_suffix(out, &column, "requires_grad=True");
    }
}

/* The column in which the last line of `text` ends. */
static long last_column(const char *text)
{
    const char *line = strrchr(text, '\n');
    return (long)strlen(line != NULL ? line + 1 : text);
}

char *th_to_string(th_tensor *tensor)
{
    TH__CHECK_PENDING_NULL();
    if (!th__tensor_check(tensor, __func__, "tensor")) return NULL;
    TH_SCOPE();
    TH_NO_GRAD();
    char *text = NULL;
    size_t size = 0;
    if (th_dim(tensor) > MAX_DIMS) {
        TH__FAIL(TH_ERR_VALUE, "a tensor of %" PRId64 " dimensions cannot be printed", th_dim(tensor));
        return NULL;
    }
    printer p = {.out = open_memstream(&text, &size), .summarize = th_numel(tensor) > SUMMARY_ABOVE, .main = {.width = 1}};
    if (p.out == NULL) {
        TH__FAIL(TH_ERR_MEMORY, "out of memory");
        return NULL;
    }
    fputs("tensor(", p.out);
    if (th_device_of(tensor).type == TH_DEVICE_META) fputs("...", p.out);
    else if (th_numel(tensor) == 0) fputs("[]", p.out);
    else write_numbers(&p, tensor);
    fflush(p.out);
    write_suffixes(p.out, last_column(text) + 1, tensor); /* + 1: the closing bracket needs room too */
    fputc(')', p.out);
    if (fclose(p.out) != 0 || th__pending() != TH_OK) {
        free(text);
        return NULL;
    }
    return text;
}

void th_print(th_tensor *tensor)
{
    char *text = th_to_string(tensor);
    if (text != NULL) puts(text);
    free(text);
}
