/* base/strings.h: text helpers that do not depend on the locale: trimming, splitting, strict numbers, "did you mean". */
#ifndef FABRIC_BASE_STRINGS_H
#define FABRIC_BASE_STRINGS_H

#include <cfabric/base.h>

/* A list of strings of its own. {0} is the empty list. */
typedef struct th__strings {
    char **items;
    size_t count, capacity;
} th__strings;

/* Appends a copy. -1 with TH_ERR_MEMORY. */
int th__strings_add(th__strings *list, const char *text);
/* As th__strings_add, of printf-formatted text. */
int th__strings_addf(th__strings *list, const char *format, ...) FABRIC_PRINTF(2, 3);
void th__strings_free(th__strings *list);
/* The parts of `text` between separators, each trimmed; empty parts are kept ("a,,b," has four). An empty text gives one empty
 * part. -1 with TH_ERR_MEMORY. */
int th__split(th__strings *list, const char *text, char separator);
/* "a, b, c" in new memory; free() it. */
char *th__join(const char *const *items, size_t count, const char *separator);

/* A growing text. {0} is empty; `text` is NULL until something was added. free() the text. */
typedef struct th__text {
    char *text;
    size_t length, capacity;
} th__text;
int th__text_add(th__text *text, const char *format, ...) FABRIC_PRINTF(2, 3);

bool th__is_space(char c);
/* Cuts white space at both ends in place; returns the new start. */
char *th__trim(char *text);
/* ASCII only, in place; returns `text`. */
char *th__lower(char *text);
bool th__equal_ignore_case(const char *a, const char *b);
bool th__starts_with(const char *text, const char *prefix);
bool th__ends_with(const char *text, const char *suffix);

/* Strict: optional white space around, optional sign, decimal digits, nothing else; false when it does not fit. */
bool th__parse_int(const char *text, int64_t *out);
/* Strict: what Python's float() takes (inf, nan, exponents), always with a decimal point; no hexadecimal. */
bool th__parse_double(const char *text, double *out);
/* The shortest text that reads back as the same double, as Python's repr: "0.1", "1.0", "1e-05", "inf", "nan". */
enum { TH__DOUBLE_TEXT = 32 };
char *th__format_double(char buffer[TH__DOUBLE_TEXT], double value);

/* Levenshtein distance with swaps of neighbours, ignoring case. */
size_t th__edit_distance(const char *a, const char *b);
/* The name nearest to `word`, NULL if none is near enough to be a typing error. */
const char *th__closest(const char *word, const char *const *names, size_t count);

/* Runs with the "C" locale in this thread until th__locale_leave. For libraries that use printf or strtod. */
void *th__locale_enter(void);
void th__locale_leave(void *token);

#endif
