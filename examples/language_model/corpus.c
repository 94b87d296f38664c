/* corpus.c: see corpus.h. */
#include "corpus.h"
#include "words.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct corpus {
    char *text;
    struct words words;
    int64_t block;
};

static void corpus_free(void *self)
{
    struct corpus *c = self;
    words_free(&c->words);
    free(c->text);
    free(c);
}

static int64_t corpus_len(void *self)
{
    const struct corpus *c = self;
    int64_t n = (int64_t)c->words.size / c->block - 1;
    return n > 0 ? n : 0;
}

static th_status corpus_item(void *self, int64_t index, th_sample *sample)
{
    const struct corpus *c = self;
    const int64_t *start = c->words.ids + index * c->block;
    sample->data[0] = th_tensor_from(start, TH_INTS(c->block), TH_INT64);
    sample->data[1] = th_tensor_from(start + 1, TH_INTS(c->block), TH_INT64);
    sample->size = 2;
    return th_error();
}

/* A whole batch with one copy instead of two tensors per sample. */
static th_status corpus_batch(void *self, const int64_t *indices, size_t n, th_sample *batch)
{
    const struct corpus *c = self;
    size_t block = (size_t)c->block;
    int64_t *ids = malloc(2 * n * block * sizeof *ids), *shifted = ids + n * block;
    if (ids == NULL) return th_error_set(TH_ERR_MEMORY, "no memory for a batch of %zu samples", n);
    for (size_t i = 0; i < n; i++) {
        const int64_t *start = c->words.ids + indices[i] * c->block;
        memcpy(ids + i * block, start, block * sizeof *ids);
        memcpy(shifted + i * block, start + 1, block * sizeof *ids);
    }
    batch->data[0] = th_tensor_from(ids, TH_INTS((int64_t)n, c->block), TH_INT64);
    batch->data[1] = th_tensor_from(shifted, TH_INTS((int64_t)n, c->block), TH_INT64);
    batch->size = 2;
    free(ids);
    return th_error();
}

static const th_dataset_ops corpus_ops = {
    .size = sizeof corpus_ops,
    .name = "corpus",
    .len = corpus_len,
    .get_item = corpus_item,
    .get_batch = corpus_batch,
    .free = corpus_free,
};

/* The whole file, by length. NULL with an error. */
static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        th_error_set(errno == ENOENT ? TH_ERR_NOT_FOUND : TH_ERR_IO, "the text '%s' cannot be opened: %s", path, strerror(errno));
        return NULL;
    }
    char *text = NULL;
    size_t capacity = 0;
    *size = 0;
    do {
        capacity = capacity != 0 ? 2 * capacity : 1 << 20;
        char *bigger = realloc(text, capacity);
        if (bigger == NULL) break;
        text = bigger;
        *size += fread(text + *size, 1, capacity - *size, file);
    } while (*size == capacity);
    if (*size == capacity) th_error_set(TH_ERR_MEMORY, "no memory for the text '%s'", path);
    if (ferror(file)) th_error_set(TH_ERR_IO, "the text '%s' cannot be read: %s", path, strerror(errno));
    fclose(file);
    if (th_error() == TH_OK) return text;
    free(text);
    return NULL;
}

th_dataset *corpus_new(const char *path, int64_t block, int64_t *vocabulary)
{
    size_t size = 0;
    *vocabulary = 0;
    char *text = th_error() == TH_OK ? read_file(path, &size) : NULL;
    if (text == NULL) return NULL;
    struct corpus *c = calloc(1, sizeof *c);
    if (c == NULL || words_number(&c->words, text, size) != 0) {
        th_error_set(TH_ERR_MEMORY, "no memory for the words of '%s'", path);
        free(c);
        free(text);
        return NULL;
    }
    c->text = text;
    c->block = block;
    if (corpus_len(c) < 4) {
        th_error_set(TH_ERR_DATA, "the text '%s' has %zu words, expected at least %lld", path, c->words.size, (long long)(5 * block));
        corpus_free(c);
        return NULL;
    }
    *vocabulary = (int64_t)c->words.known_size;
    return th_dataset_new(&corpus_ops, c);
}

th_status corpus_split(th_dataset *corpus, th_dataset *parts[3])
{
    int64_t n = th_dataset_len(corpus), held = n > 4000 ? 2000 : n / 4;
    th_generator *generator = th_generator_new(TH_CPU);
    th_generator_manual_seed(generator, 42);
    th_status status = th_random_split(corpus, TH_INTS(n - 2 * held, held, held), .generator = generator, .parts = parts);
    th_generator_free(generator);
    return status;
}
