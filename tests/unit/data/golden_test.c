/* The orders of samplers and loaders, and the bits of normalised pixels, against PyTorch itself: the Python script runs beside
 * this program. Skipped where there is no Python with the same torch. */
#include "helpers.h"

#include "data/pixels.h"

#include <sys/stat.h>
#include <unistd.h>

static char **lines; /* "name: values", without the newline */
static size_t count, capacity;
static bool have_python;

static void read_script(const char *python)
{
    char command[4096];
    static char line[1 << 18];
    snprintf(command, sizeof command, "timeout 100 '%s' '%s/tests/golden/data.py' 2>/dev/null", python, TEST_SOURCE_DIR);
    FILE *pipe = popen(command, "r");
    while (pipe != NULL && fgets(line, sizeof line, pipe) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (count == capacity) lines = realloc(lines, (capacity = capacity * 2 + 64) * sizeof *lines);
        lines[count++] = strdup(line);
    }
    if (pipe != NULL) pclose(pipe);
}

static int start(void **state)
{
    (void)state;
    char version[64], venv[2048];
    snprintf(venv, sizeof venv, "%s/.venv/bin/python3", TEST_SOURCE_DIR);
    const char *chosen = getenv("CFABRIC_TEST_PYTHON");
    const char *const pythons[] = {chosen != NULL ? chosen : venv, "/usr/bin/python3"};
    snprintf(version, sizeof version, "torch %s", th_torch_version());
    version[6 + strspn(version + 6, "0123456789.")] = '\0'; /* Debian's says 1.13.0a0 */
    for (size_t i = 0; i < 2 && !have_python; i++) {
        if (access(pythons[i], X_OK) != 0) continue;
        count = 0;
        read_script(pythons[i]);
        have_python = count > 1 && strcmp(lines[0], version) == 0;
    }
    if (!have_python) print_message("skipped: no Python with %s\n", version);
    return 0;
}

/* Compares with the script's line, and frees the text. */
static void say(const char *name, text t)
{
    size_t length = strlen(name);
    for (size_t i = 1; i < count; i++) {
        if (strncmp(lines[i], name, length) != 0 || lines[i][length] != ':') continue;
        const char *expected = lines[i][length + 1] == ' ' ? lines[i] + length + 2 : "";
        if (strcmp(expected, t.data != NULL ? t.data : "") != 0)
            print_error("%s\n  PyTorch: %.300s\n  cfabric: %.300s\n", name, expected, t.data);
        assert_string_equal(t.data != NULL ? t.data : "", expected);
        free(t.data);
        return;
    }
    fail_msg("the script has no line '%s'", name);
}

static text one(long long value)
{
    text t = {0};
    text_add(&t, value);
    return t;
}

static long long next_random(th_generator *generator) { return (long long)(th_generator_random64(generator) & INT64_MAX); }

static void say_after(const char *name, th_generator *generator)
{
    char full[96];
    snprintf(full, sizeof full, "%s.after", name);
    say(full, one(next_random(th_default_generator())));
    if (generator == NULL) return;
    snprintf(full, sizeof full, "%s.generator", name);
    say(full, one(next_random(generator)));
}

static th_generator *gen(uint64_t seed)
{
    th_generator *generator = th_generator_new(TH_CPU);
    assert_int_equal(th_generator_manual_seed(generator, seed), TH_OK);
    return generator;
}

static void passes_with(const char *name, th_sampler *sampler, int n, th_generator *generator)
{
    char full[96];
    assert_non_null(sampler);
    for (int k = 0; k < n; k++) {
        snprintf(full, sizeof full, "%s.%d", name, k);
        say(full, text_of_sampler(sampler));
    }
    say_after(name, generator);
    th_sampler_free(sampler);
    th_generator_free(generator);
}
#define passes(name, n, generator, sampler) (assert_int_equal(th_manual_seed(5), TH_OK), passes_with(name, sampler, n, generator))

static void test_samplers(void **state)
{
    (void)state;
    if (!have_python) skip();
    const th_ints subset = TH_INTS(5, 3, 9, 1, 7);
    const th_doubles weights = TH_DOUBLES(0.1, 0.9, 0.4, 0.7, 3.0, 0.6);
    passes("sequential", 1, NULL, th_sampler_sequential(5));
    passes("random", 3, NULL, th_sampler_random(10));
    passes("random_large", 1, NULL, th_sampler_random(3000));
    th_generator *g = gen(3);
    passes("random_generator", 3, g, th_sampler_random(10, .generator = g));
    g = gen(4);
    passes("random_more", 2, g, th_sampler_random(10, .num_samples = 25, .generator = g));
    passes("random_fewer", 2, NULL, th_sampler_random(10, .num_samples = 4));
    g = gen(6);
    passes("replacement", 2, g, th_sampler_random(10, .replacement = true, .num_samples = 70, .generator = g));
    passes("replacement_64", 2, NULL, th_sampler_random(9, .replacement = true, .num_samples = 64));
    passes("subset", 2, NULL, th_sampler_subset_random(subset));
    g = gen(8);
    passes("subset_generator", 2, g, th_sampler_subset_random(subset, .generator = g));
    passes("weighted", 2, NULL, th_sampler_weighted_random(weights, 12));
    passes("weighted_without", 2, NULL, th_sampler_weighted_random(weights, 5, .replacement = false));
}

static void test_distributed(void **state)
{
    (void)state;
    if (!have_python) skip();
    const struct {
        int n, world;
        bool shuffle, drop;
    } cases[] = {{8, 2, false, false}, {8, 2, true, false}, {7, 3, false, false}, {7, 3, false, true},
                 {7, 3, true, true},   {1, 4, true, false}, {10, 2, true, false}, {3, 8, false, true}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (int rank = 0; rank < cases[c].world; rank++) {
            th_sampler *s = th_sampler_distributed(cases[c].n, cases[c].world, rank, cases[c].shuffle, 1, cases[c].drop);
            for (int epoch = 0; epoch < 2; epoch++) {
                char name[96];
                int64_t index;
                text t = one(th_sampler_len(s));
                assert_int_equal(th_sampler_set_epoch(s, epoch), TH_OK);
                assert_int_equal(th_sampler_begin(s), TH_OK);
                while (th_sampler_next(s, &index)) text_add(&t, index);
                snprintf(name, sizeof name, "distributed_%d_%d_%d_%d.%d.%d", cases[c].n, cases[c].world, cases[c].shuffle,
                         cases[c].drop, rank, epoch);
                say(name, t);
            }
            th_sampler_free(s);
        }
    }
}

static void test_wrapped(void **state)
{
    (void)state;
    bool found = false;
    for (size_t i = 0; i < count; i++) found = found || strncmp(lines[i], "wrapped", 7) == 0;
    if (!have_python || !found) skip();
    for (int rank = 0; rank < 2; rank++) {
        th_manual_seed(9);
        th_sampler *s = th_sampler_distributed_wrap(th_sampler_subset_random(TH_INTS(5, 3, 9, 1, 7)), 2, rank, false);
        for (int k = 0; k < 2; k++) {
            char name[32];
            snprintf(name, sizeof name, "wrapped.%d.%d", rank, k);
            say(name, text_of_sampler(s));
        }
        th_sampler_free(s);
    }
}

static void say_split(const char *name, int k, th_dataset *part)
{
    char full[64];
    text t = {0};
    for (int64_t i = 0; i < th_dataset_len(part); i++) {
        TH_SCOPE();
        th_sample sample;
        assert_int_equal(th_dataset_get(part, i, &sample), TH_OK);
        text_add(&t, th_item_int(sample.data[0]));
    }
    snprintf(full, sizeof full, "%s.%d", name, k);
    say(full, t);
    th_dataset_free(part);
}

static void test_splits(void **state)
{
    (void)state;
    if (!have_python) skip();
    th_dataset *parts[3];
    th_generator *g = gen(42);
    assert_int_equal(th_random_split(range_new(10), TH_INTS(3, 7), .generator = g, .parts = parts), TH_OK);
    for (int k = 0; k < 2; k++) say_split("split", k, parts[k]);
    th_generator_manual_seed(g, 42);
    assert_int_equal(th_random_split(range_new(31), .fractions = TH_DOUBLES(0.3, 0.3, 0.4), .generator = g, .parts = parts),
                     TH_OK);
    for (int k = 0; k < 3; k++) say_split("split_fractions", k, parts[k]);
    th_generator_free(g);
}

static void loader_with(const char *name, th_dataloader *loader, int n, int stop, th_generator *generator)
{
    char full[96];
    assert_non_null(loader);
    for (int k = 0; k < n; k++) {
        snprintf(full, sizeof full, "%s.%d", name, k);
        say(full, text_of_pass(loader, stop, true));
    }
    say_after(name, generator);
    th_dataloader_free(loader);
    th_generator_free(generator);
}
#define loader(name, n, stop, generator, load)                                                                                   \
    (assert_int_equal(th_manual_seed(7), TH_OK), loader_with(name, load, n, stop, generator))

static void test_loaders(void **state)
{
    (void)state;
    if (!have_python) skip();
    loader("plain", 2, 0, NULL, th_dataloader_new(range_new(10), 4));
    loader("shuffle", 3, 0, NULL, th_dataloader_new(range_new(10), 4, true));
    loader("shuffle_drop", 2, 0, NULL, th_dataloader_new(range_new(10), .batch_size = 4, .shuffle = true, .drop_last = true));
    th_generator *g = gen(11);
    loader("shuffle_generator", 3, 0, g, th_dataloader_new(range_new(10), .batch_size = 5, .shuffle = true, .generator = g));
    loader("break", 3, 2, NULL, th_dataloader_new(range_new(10), .batch_size = 3, .shuffle = true));
    loader("no_batch", 2, 0, NULL, th_dataloader_new(range_new(5), .batch_size = TH_NO_BATCH, .shuffle = true));
    loader("weighted_loader", 2, 0, NULL,
           th_dataloader_new(range_new(6), .batch_size = 4,
                             .sampler = th_sampler_weighted_random(TH_DOUBLES(1, 2, 3, 1, 1, 2), 10)));
    g = gen(12);
    loader("batch_sampler", 2, 0, g,
           th_dataloader_new(range_new(9), .batch_sampler = th_sampler_batch(th_sampler_random(9, .generator = g), 2, true)));
    loader("stream", 2, 0, NULL, th_dataloader_new(stream_new(23), .batch_size = 4));
    loader("stream_drop", 2, 0, NULL, th_dataloader_new(stream_new(23), .batch_size = 4, .drop_last = true));
}

static th_status worker_seed_item(void *self, int64_t index, th_sample *sample)
{
    (void)self;
    (void)index;
    const th_worker_info *info = th_get_worker_info();
    sample->data[0] = th_tensor_scalar(TH_S(info != NULL ? (int64_t)info->seed : -1), TH_INT64);
    sample->size = 1;
    return TH_OK;
}

static th_dataset *seeds_new(int64_t n)
{
    const th_dataset_ops ops = {
        .size = sizeof ops, .name = "seeds", .len = range_len, .get_item = worker_seed_item, .free = free};
    range *self = calloc(1, sizeof *self);
    self->n = n;
    return th_dataset_new(&ops, self);
}

static void test_workers(void **state)
{
    (void)state;
    if (!have_python) skip();
    loader("workers", 2, 0, NULL, th_dataloader_new(range_new(23), .batch_size = 4, .shuffle = true, .num_workers = 2));
    th_generator *g = gen(13);
    loader("workers_generator", 2, 0, g,
           th_dataloader_new(range_new(23), .batch_size = 4, .shuffle = true, .num_workers = 2, .generator = g));
    loader("persistent", 3, 0, NULL,
           th_dataloader_new(range_new(23), .batch_size = 4, .shuffle = true, .num_workers = 2, .persistent_workers = true));
    loader("seeds", 2, 0, NULL, th_dataloader_new(seeds_new(4), .batch_size = 1, .num_workers = 2));
    loader("stream_workers", 2, 0, NULL, th_dataloader_new(stream_new(23), .batch_size = 4, .num_workers = 2));
}

/* An IDX file with one image that has every byte. */
static void write_all_bytes(const char *path)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    const uint8_t header[] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 16, 0, 0, 0, 16};
    fwrite(header, 1, sizeof header, file);
    for (int i = 0; i < 256; i++) fputc(i, file);
    fclose(file);
}

static void say_pixels(const char *name, th_dataset *set)
{
    TH_SCOPE();
    th_sample sample;
    text t = {0};
    int32_t bits[256];
    assert_int_equal(th_dataset_get(set, 0, &sample), TH_OK);
    assert_int_equal(th_dtype_of(sample.data[0]), TH_FLOAT32);
    memcpy(bits, th_data_ptr(sample.data[0]), sizeof bits);
    for (int i = 0; i < 256; i++) text_add(&t, bits[i]);
    say(name, t);
    th_dataset_free(set);
}

static void test_pixels(void **state)
{
    (void)state;
    if (!have_python) skip();
    char path[] = "/tmp/cfabric-pixels-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    write_all_bytes(path);
    say_pixels("unit", th_dataset_idx(path));
    say_pixels("normalized.0", th_dataset_idx(path, .mean = TH_DOUBLES(0.1307), .std = TH_DOUBLES(0.3081)));
    say_pixels("normalized.1", th_dataset_idx(path, .mean = TH_DOUBLES(0.2860), .std = TH_DOUBLES(0.3530)));
    say_pixels("normalized.2", th_dataset_idx(path, .mean = TH_DOUBLES(0.5), .std = TH_DOUBLES(0.5)));
    unlink(path);
}

/* Computing and looking up give the same bits, at every length and alignment. */
static void test_both_conversions(void **state)
{
    (void)state;
    uint8_t from[320];
    float computed[320], looked_up[320];
    for (int i = 0; i < 320; i++) from[i] = (uint8_t)(i < 40 ? 0 : i * 37);
    for (size_t start = 0; start < 9; start++) {
        for (size_t n = 0; n + start <= 320; n += 7) {
            th__pixels how;
            th__pixels_init(&how, 0.1307, 0.3081);
            th__pixels_convert(&how, from + start, computed, n);
            how.compute = false;
            th__pixels_convert(&how, from + start, looked_up, n);
            assert_memory_equal(computed, looked_up, n * sizeof *computed);
        }
    }
}

static int finish(void **state)
{
    (void)state;
    for (size_t i = 0; i < count; i++) free(lines[i]);
    free(lines);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_samplers, no_leftovers), cmocka_unit_test_teardown(test_distributed, no_leftovers),
        cmocka_unit_test_teardown(test_wrapped, no_leftovers),  cmocka_unit_test_teardown(test_splits, no_leftovers),
        cmocka_unit_test_teardown(test_loaders, no_leftovers),  cmocka_unit_test_teardown(test_workers, no_leftovers),
        cmocka_unit_test_teardown(test_pixels, no_leftovers),   cmocka_unit_test_teardown(test_both_conversions, no_leftovers),
    };
    return cmocka_run_group_tests_name("data.golden", tests, start, finish);
}
