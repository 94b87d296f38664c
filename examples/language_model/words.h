/* words.h: numbers for words. No torch here. */
#ifndef LANGUAGE_MODEL_WORDS_H
#define LANGUAGE_MODEL_WORDS_H

#include <stddef.h>
#include <stdint.h>

struct words {
    int64_t *ids;              /* the text as word numbers */
    size_t size, capacity;
    struct word { const char *text; size_t length; } *known;    /* by number; they point into the text and to "<eos>" */
    size_t known_size, known_capacity;
    size_t *slots;             /* hash table: number + 1, 0 is free */
    size_t n_slots;
};

/* Splits and numbers `text`, which must stay as long as the words and is changed (line ends). -1 when memory runs out. */
int words_number(struct words *words, char *text, size_t size);
void words_free(struct words *words);

#endif
