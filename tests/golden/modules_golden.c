/* The C half of the modules' golden test. Without arguments it runs every case and prints what modules_golden.py compares, one
 * line each:
 *
 *   case NAME|INPUTS|MODE          begins a case; then, in this order (mode init, an initialiser: only out and rng; mode empty:
 * only repr and rng), state KEY DTYPE SIZES BYTES    the state dict after construction, repr TEXT print(module), newlines as \n,
 *   out I DTYPE SIZES BYTES        the I-th output ("out I none" for an absent one),
 *   after KEY ...                  the buffers after the forward,
 *   grad KEY ... / grad_input I .. gradients of sum(out * normal numbers), in train mode,
 *   rng BYTES                      one number drawn at the end: both sides must have consumed the same
 *
 * SIZES is 2x3 ("scalar" for none). BYTES is the memory of the contiguous tensor in hex, or crc32:XXXXXXXX beyond 2048 bytes. */
#include <cfabric/nn_modules.h>

#include "tensor/internal.h"
#include <cfabric/autograd.h>
#include <cfabric/ops.h>
#include <cfabric/error.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { MAX_INPUTS = 8, HEX_LIMIT = 2048 };

static void print_bytes(th_tensor *tensor)
{
    size_t size = th_nbytes(tensor);
    unsigned char *bytes = malloc(size + 1);
    if (bytes == NULL || th_copy_to(tensor, bytes, size, th_dtype_of(tensor)) != TH_OK)
        printf("error");
    else if (size > HEX_LIMIT)
        printf("crc32:%08lx", crc32(0, bytes, (uInt)size));
    else
        for (size_t i = 0; i < size; i++) printf("%02x", bytes[i]);
    free(bytes);
}

static void print_tensor(const char *kind, const char *key, th_tensor *tensor)
{
    TH_SCOPE();
    tensor = th_detach(tensor);
    printf("%s %s %s ", kind, key, th_dtype_name(th_dtype_of(tensor)));
    th_ints sizes = th_sizes(tensor);
    for (size_t i = 0; i < sizes.size; i++) printf(i > 0 ? "x%lld" : "%lld", (long long)sizes.data[i]);
    printf("%s", sizes.size == 0 ? "scalar " : " ");
    print_bytes(tensor);
    putchar('\n');
}

static void print_state(const char *kind, th_module *module)
{
    th_value *state = th_module_state_dict(module);
    for (size_t i = 0; i < th_value_size(state); i++)
        print_tensor(kind, th_value_key_at(state, i, NULL), th_value_as_tensor(th_value_at(state, i)));
    th_value_free(state);
}

static int print_buffer(const char *name, th_tensor *tensor, void *user)
{
    (void)user;
    print_tensor("after", name, tensor);
    return 0;
}

static int print_grad(const char *name, th_tensor *tensor, void *user)
{
    (void)user;
    if (th_has_grad(tensor)) print_tensor("grad", name, th_grad(tensor));
    return 0;
}

static void print_repr(th_module *module)
{
    char *text = th_module_to_string(module);
    printf("repr ");
    for (const char *c = text != NULL ? text : "error"; *c != '\0'; c++) *c == '\n' ? printf("\\n") : putchar(*c);
    putchar('\n');
    free(text);
}

/* One input from its description; see modules_cases.h. */
static th_tensor *make_input(const char *spec, th_tensor *const *earlier)
{
    if (spec[0] == '-') return NULL;
    if (spec[0] == '=') return earlier[atoi(spec + 1)];
    int64_t sizes[8];
    size_t n = 0;
    for (const char *c = strchr(spec, ':'); c != NULL && n < 8; c = strchr(c + 1, ',')) sizes[n++] = atoll(c + 1);
    th_ints shape = {sizes, n};
    if (strncmp(spec, "f64:", 4) == 0) return th_requires_grad_(th_randn(shape, .dtype = TH_FLOAT64), true);
    if (spec[0] == 'f') return th_requires_grad_(th_randn(shape), true);
    if (spec[0] == 'u') return th_requires_grad_(th_rand(shape), true);
    if (spec[0] == 'z') return th_zeros(shape);
    if (spec[0] == 'n') return th_randn(shape);
    if (spec[0] == 'i') return th_randint(atoll(spec + 1), shape);
    if (spec[0] == 'm') {
        th_tensor *mask = th_gt_scalar(th_rand(shape), TH_S(0.6));
        th_fill_scalar_(th_select_int(mask, 1, 0), TH_S(false));
        return mask;
    }
    if (spec[0] == 'r') { /* row i: true from column (columns - i) on */
        th_tensor *rows = th_unsqueeze(th_arange(TH_S(sizes[0])), 1), *columns = th_arange(TH_S(sizes[1]));
        return th_ge(th_add(rows, columns), th_tensor_scalar(TH_S(sizes[1]), TH_INT64));
    }
    th_tensor *causal = th_nn_generate_square_subsequent_mask(sizes[0], TH_CPU, TH_FLOAT32);
    return strncmp(spec, "cb:", 3) == 0 ? th_isneginf(causal) : causal;
}

static size_t make_inputs(const char *specs, th_tensor *inputs[MAX_INPUTS])
{
    char copy[256];
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s", specs);
    for (char *save = NULL, *spec = strtok_r(copy, " ", &save); spec != NULL && n < MAX_INPUTS; spec = strtok_r(NULL, " ", &save))
        inputs[n] = make_input(spec, inputs), n++;
    return n;
}

static void backward(th_tensors outputs)
{
    th_tensor *loss = NULL;
    for (size_t i = 0; i < outputs.size; i++) {
        if (outputs.data[i] == NULL || !th_requires_grad(outputs.data[i])) continue;
        th_tensor *part = th_sum(th_mul(outputs.data[i], th_randn_like(outputs.data[i])));
        loss = loss == NULL ? part : th_add(loss, part);
    }
    if (loss != NULL) th_backward(loss);
}

static void run(th_module *module, const char *specs, bool train)
{
    th_tensor *inputs[MAX_INPUTS] = {NULL};
    size_t n = make_inputs(specs, inputs);
    int old = th_set_grad_enabled(train);
    th_train(module, train);
    th_tensors outputs = th_forward_n(module, (th_tensors){inputs, n});
    char key[32];
    for (size_t i = 0; i < outputs.size; i++) {
        snprintf(key, sizeof key, "%zu", i);
        if (outputs.data[i] == NULL)
            printf("out %zu none\n", i);
        else
            print_tensor("out", key, outputs.data[i]);
    }
    th_named_buffers(module, print_buffer, NULL);
    if (train) {
        backward(outputs);
        th_named_parameters(module, print_grad, NULL);
        for (size_t i = 0; i < n; i++) {
            snprintf(key, sizeof key, "%zu", i);
            if (inputs[i] != NULL && th_has_grad(inputs[i])) print_tensor("grad_input", key, th_grad(inputs[i]));
        }
    }
    th_set_grad_enabled(old != 0);
}

static int failures;

static void begin(const char *name, const char *specs, const char *mode)
{
    printf("case %s|%s|%s\n", name, specs, mode);
    th_manual_seed(20240601);
    th__init_context_swap((th__init_context){.skip_init = strcmp(mode, "empty") == 0});
}

static void finish(th_module *module, const char *name, const char *specs, const char *mode)
{
    bool empty = strcmp(mode, "empty") == 0;
    th__init_context_swap((th__init_context){0});
    if (module != NULL) {
        if (!empty) print_state("state", module);
        print_repr(module);
        if (!empty) run(module, specs, strcmp(mode, "train") == 0);
        printf("rng ");
        print_bytes(th_rand(TH_INTS(1), .dtype = TH_FLOAT64));
        putchar('\n');
    }
    th_module_free(module);
    if (th_error() != TH_OK) {
        printf("error %s: %s\n", name, th_error_message());
        failures++;
        th_error_clear();
    }
}

static th_tensor *begin_init(const char *name, const char *sizes)
{
    char spec[64];
    begin(name, sizes, "init");
    snprintf(spec, sizeof spec, "z:%s", sizes);
    return make_input(spec, NULL);
}

static void finish_init(th_tensor *result)
{
    print_tensor("out", "0", result);
    printf("rng ");
    print_bytes(th_rand(TH_INTS(1), .dtype = TH_FLOAT64));
    putchar('\n');
}

int main(void)
{
    th_set_error_policy(TH_ERROR_RETURN, NULL, NULL);
    th_set_num_threads(1);
#define CASE(name, specs, mode, module)                                                                                          \
    do {                                                                                                                         \
        TH_SCOPE();                                                                                                              \
        begin(name, specs, mode);                                                                                                \
        finish(module, name, specs, mode);                                                                                       \
    } while (0);
#define INIT(name, sizes, expression)                                                                                            \
    do {                                                                                                                         \
        TH_SCOPE();                                                                                                              \
        th_tensor *t = begin_init(name, sizes);                                                                                  \
        finish_init(expression);                                                                                                 \
    } while (0);
#include "modules_cases.h"
    printf("end\n");
    return failures == 0 ? 0 : 1;
}
