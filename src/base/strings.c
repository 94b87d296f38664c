/* base/strings.c: lists, trimming, numbers without locale, nearest names. */
#include "base/strings.h"

#include "base/error.h"
#include "base/memory.h"
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- lists and growing text */

static int add_owned(th__strings *list, char *copy)
{
    if (copy == NULL) return -1;
    if (TH__PUSH(list->items, list->count, list->capacity, copy) != 0) {
        free(copy);
        return -1;
    }
    return 0;
}

int th__strings_add(th__strings *list, const char *text) { return add_owned(list, th__strdup(text)); }

int th__strings_addf(th__strings *list, const char *format, ...)
{
    char *copy = NULL;
    va_list args;
    va_start(args, format);
    int length = vasprintf(&copy, format, args);
    va_end(args);
    if (length < 0) {
        th__fail(TH_ERR_MEMORY, "allocate", "out of memory");
        return -1;
    }
    return add_owned(list, copy);
}

void th__strings_free(th__strings *list)
{
    for (size_t i = 0; i < list->count; i++) free(list->items[i]);
    free(list->items);
    *list = (th__strings){0};
}

int th__split(th__strings *list, const char *text, char separator)
{
    for (;;) {
        const char *end = strchr(text, separator);
        size_t length = end != NULL ? (size_t)(end - text) : strlen(text);
        while (length > 0 && th__is_space(*text)) text++, length--;
        while (length > 0 && th__is_space(text[length - 1])) length--;
        if (th__strings_addf(list, "%.*s", (int)length, text) != 0) return -1;
        if (end == NULL) return 0;
        text = end + 1;
    }
}

char *th__join(const char *const *items, size_t count, const char *separator)
{
    th__text text = {0};
    if (th__text_add(&text, "%s", "") != 0) return NULL;
    for (size_t i = 0; i < count; i++)
        if (th__text_add(&text, "%s%s", i > 0 ? separator : "", items[i]) != 0) {
            free(text.text);
            return NULL;
        }
    return text.text;
}

int th__text_add(th__text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) return -1;
    while (text->length + (size_t)length + 1 > text->capacity) {
        size_t wanted = text->capacity == 0 ? 64 : text->capacity * 2;
        char *bigger = th__realloc(text->text, wanted, 1);
        if (bigger == NULL) return -1;
        text->text = bigger;
        text->capacity = wanted;
    }
    va_start(args, format);
    vsnprintf(text->text + text->length, (size_t)length + 1, format, args);
    va_end(args);
    text->length += (size_t)length;
    return 0;
}

/* ---------------------------------------------------------------- characters */

bool th__is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

char *th__trim(char *text)
{
    while (th__is_space(*text)) text++;
    size_t length = strlen(text);
    while (length > 0 && th__is_space(text[length - 1])) text[--length] = '\0';
    return text;
}

char *th__lower(char *text)
{
    for (char *p = text; *p != '\0'; p++) *p = lower(*p);
    return text;
}

bool th__equal_ignore_case(const char *a, const char *b)
{
    while (*a != '\0' && lower(*a) == lower(*b)) a++, b++;
    return *a == '\0' && *b == '\0';
}

bool th__starts_with(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

bool th__ends_with(const char *text, const char *suffix)
{
    size_t a = strlen(text), b = strlen(suffix);
    return a >= b && strcmp(text + a - b, suffix) == 0;
}

/* ---------------------------------------------------------------- numbers */

bool th__parse_int(const char *text, int64_t *out)
{
    while (th__is_space(*text)) text++;
    bool negative = *text == '-';
    if (*text == '-' || *text == '+') text++;
    if (!is_digit(*text)) return false;
    int64_t value = 0; /* built up negative, which holds INT64_MIN */
    for (; is_digit(*text); text++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_sub_overflow(value, *text - '0', &value)) return false;
    while (th__is_space(*text)) text++;
    if (*text != '\0' || (!negative && value == INT64_MIN)) return false;
    *out = negative ? value : -value;
    return true;
}

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;
static void make_c_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

static locale_t the_c_locale(void)
{
    pthread_once(&c_locale_once, make_c_locale);
    return c_locale;
}

void *th__locale_enter(void) { return the_c_locale() != (locale_t)0 ? (void *)uselocale(c_locale) : NULL; }
void th__locale_leave(void *token)
{
    if (token != NULL) uselocale((locale_t)token);
}

static bool is_special(const char *text)
{
    static const char *const names[] = {"inf", "infinity", "nan"};
    for (size_t i = 0; i < 3; i++) {
        size_t length = strlen(names[i]), j = 0;
        while (j < length && lower(text[j]) == names[i][j]) j++;
        if (j == length && (text[j] == '\0' || th__is_space(text[j]))) return true;
    }
    return false;
}

bool th__parse_double(const char *text, double *out)
{
    while (th__is_space(*text)) text++;
    const char *start = text + (*text == '-' || *text == '+');
    if (start[0] == '0' && lower(start[1]) == 'x') return false;
    if (!is_digit(start[0]) && !(start[0] == '.' && is_digit(start[1])) && !is_special(start)) return false;
    char *end;
    double value = the_c_locale() != (locale_t)0 ? strtod_l(text, &end, c_locale) : strtod(text, &end);
    while (th__is_space(*end)) end++;
    if (*end != '\0') return false;
    *out = value;
    return true;
}

char *th__format_double(char buffer[TH__DOUBLE_TEXT], double value)
{
    if (isnan(value)) return strcpy(buffer, "nan");
    if (isinf(value)) return strcpy(buffer, value < 0 ? "-inf" : "inf");
    void *token = th__locale_enter();
    int digits = 0;
    for (digits = 1; digits < 17; digits++) {
        snprintf(buffer, TH__DOUBLE_TEXT, "%.*e", digits - 1, value);
        if (strtod(buffer, NULL) == value) break;
    }
    snprintf(buffer, TH__DOUBLE_TEXT, "%.*e", digits - 1, value);
    int exponent = atoi(strchr(buffer, 'e') + 1);
    if (exponent >= -4 && exponent < 16) { /* repr's rule for plain notation */
        int decimals = digits - 1 - exponent;
        snprintf(buffer, TH__DOUBLE_TEXT, "%.*f", decimals > 1 ? decimals : 1, value);
    }
    th__locale_leave(token);
    return buffer;
}

/* ---------------------------------------------------------------- nearest names */

/* Insertions, deletions, changes and swaps of neighbours each cost one. */
size_t th__edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 64 };
    size_t rows[3][LONGEST + 1], na = strlen(a), nb = strlen(b);
    if (na > LONGEST || nb > LONGEST) return na > nb ? na : nb;
    for (size_t j = 0; j <= nb; j++) rows[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *twice_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            char x = lower(a[i - 1]), y = lower(b[j - 1]);
            size_t best = above[j - 1] + (x != y);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && x == lower(b[j - 2]) && lower(a[i - 2]) == y && twice_above[j - 2] + 1 < best)
                best = twice_above[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[na % 3][nb];
}

static size_t length_difference(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    return na > nb ? na - nb : nb - na;
}

const char *th__closest(const char *word, const char *const *names, size_t count)
{
    const char *best = NULL;
    size_t best_distance = SIZE_MAX, length = strlen(word);
    for (size_t i = 0; i < count; i++) {
        size_t distance = th__edit_distance(word, names[i]);
        if (distance < best_distance ||
            (distance == best_distance && length_difference(word, names[i]) < length_difference(word, best)))
            best = names[i], best_distance = distance;
    }
    size_t allowed = length <= 2 ? 1 : length <= 5 ? 2 : length / 3 + 1;
    return best_distance <= allowed && best_distance < length ? best : NULL;
}
