/* words.c: see words.h. Everything works with lengths, so that a NUL in the text is a character like any other. */
#include "words.h"

#include <stdlib.h>
#include <string.h>

static const char eos[] = "<eos>";

static uint64_t hash_of(const char *text, size_t length)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < length; i++) h = (h ^ (unsigned char)text[i]) * 1099511628211u;
    return h;
}

static size_t *slot_of(struct words *w, const char *text, size_t length)
{
    size_t i = (size_t)hash_of(text, length) & (w->n_slots - 1);
    for (; w->slots[i] != 0; i = (i + 1) & (w->n_slots - 1)) {
        const struct word *word = &w->known[w->slots[i] - 1];
        if (word->length == length && memcmp(word->text, text, length) == 0) break;
    }
    return &w->slots[i];
}

static int grow_table(struct words *w)
{
    size_t *old = w->slots;
    w->n_slots = w->n_slots != 0 ? 2 * w->n_slots : 1 << 12;
    w->slots = calloc(w->n_slots, sizeof *w->slots);
    free(old);
    if (w->slots == NULL) return -1;
    for (size_t k = 0; k < w->known_size; k++) *slot_of(w, w->known[k].text, w->known[k].length) = k + 1;
    return 0;
}

static int grow(void **items, size_t size, size_t *capacity, size_t item)
{
    if (size < *capacity) return 0;
    size_t next = *capacity != 0 ? 2 * *capacity : 1024;
    void *bigger = realloc(*items, next * item);
    if (bigger == NULL) return -1;
    *items = bigger;
    *capacity = next;
    return 0;
}

static int add(struct words *w, const char *text, size_t length)
{
    if (2 * w->known_size >= w->n_slots && grow_table(w) != 0) return -1;
    if (grow((void **)&w->ids, w->size, &w->capacity, sizeof *w->ids) != 0) return -1;
    size_t *slot = slot_of(w, text, length);
    if (*slot == 0) {
        if (grow((void **)&w->known, w->known_size, &w->known_capacity, sizeof *w->known) != 0) return -1;
        w->known[w->known_size++] = (struct word){text, length};
        *slot = w->known_size;
    }
    w->ids[w->size++] = (int64_t)*slot - 1;
    return 0;
}

/* CRLF and CR become LF. Returns the new size. */
static size_t normalise_line_ends(char *text, size_t size)
{
    size_t out = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] != '\r') text[out++] = text[i];
        else if (i + 1 >= size || text[i + 1] != '\n') text[out++] = '\n';
    }
    return out;
}

/* The length of the white space character at `p`, 0 if there is none: what Python's str.isspace() accepts, in UTF-8. */
static size_t space_at(const char *p, const char *end)
{
    const unsigned char *u = (const unsigned char *)p;
    size_t left = (size_t)(end - p);
    if (u[0] == ' ' || (u[0] >= 0x09 && u[0] <= 0x0d) || (u[0] >= 0x1c && u[0] <= 0x1f)) return 1;
    if (left >= 2 && u[0] == 0xc2 && (u[1] == 0x85 || u[1] == 0xa0)) return 2;
    if (left < 3) return 0;
    if (u[0] == 0xe1 && u[1] == 0x9a && u[2] == 0x80) return 3;                                            /* U+1680 */
    if (u[0] == 0xe2 && u[1] == 0x80 && ((u[2] >= 0x80 && u[2] <= 0x8a) || u[2] == 0xa8 || u[2] == 0xa9 || u[2] == 0xaf)) return 3;
    if (u[0] == 0xe2 && u[1] == 0x81 && u[2] == 0x9f) return 3;                                            /* U+205F */
    if (u[0] == 0xe3 && u[1] == 0x80 && u[2] == 0x80) return 3;                                            /* U+3000 */
    return 0;
}

static int number_line(struct words *w, const char *p, const char *end)
{
    while (p < end) {
        size_t space = space_at(p, end);
        if (space != 0) {
            p += space;
            continue;
        }
        const char *start = p;
        while (p < end && space_at(p, end) == 0) p++;
        if (add(w, start, (size_t)(p - start)) != 0) return -1;
    }
    return add(w, eos, sizeof eos - 1);
}

int words_number(struct words *words, char *text, size_t size)
{
    size = normalise_line_ends(text, size);
    for (const char *p = text, *end = text + size; p < end;) {
        const char *line_end = memchr(p, '\n', (size_t)(end - p));
        if (line_end == NULL) line_end = end;
        if (number_line(words, p, line_end) != 0) return -1;
        p = line_end + 1;
    }
    return 0;
}

void words_free(struct words *words)
{
    free(words->ids);
    free(words->known);
    free(words->slots);
    *words = (struct words){0};
}
