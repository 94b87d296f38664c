/* Reading text for the language model: line ends (BC-074), NUL, long lines, no final newline (BC-076), white space as Python sees it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../../examples/language_model/words.c"

/* Numbers a copy of the text; the copy goes to *kept. */
static struct words number(const char *text, size_t size, char **kept)
{
    struct words words = {0};
    *kept = malloc(size + 1);
    memcpy(*kept, text, size);
    assert_int_equal(words_number(&words, *kept, size), 0);
    return words;
}

static void expect(const char *text, size_t size, const int64_t *ids, size_t n)
{
    char *kept;
    struct words words = number(text, size, &kept);
    assert_int_equal(words.size, n);
    assert_memory_equal(words.ids, ids, n * sizeof *ids);
    words_free(&words);
    free(kept);
}

#define EXPECT(text, ...) \
    expect(text, sizeof text - 1, (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void line_ends(void **state)
{
    (void)state;
    EXPECT("a b\nc a\n", 0, 1, 2, 3, 0, 2);
    EXPECT("a b\r\nc a\r\n", 0, 1, 2, 3, 0, 2);
    EXPECT("a b\rc a\r", 0, 1, 2, 3, 0, 2);
    EXPECT("a b\r\nc a\r", 0, 1, 2, 3, 0, 2);
    EXPECT("a b\nc a", 0, 1, 2, 3, 0, 2);    /* no final line end */
    EXPECT("\n\r\n\r", 0, 0, 0);             /* three empty lines */
    EXPECT("a\r\r\nb", 0, 1, 1, 2, 1);
}

static void nothing(void **state)
{
    (void)state;
    char *kept;
    struct words words = number("", 0, &kept);
    assert_int_equal(words.size, 0);
    words_free(&words);
    free(kept);
}

static void nul_is_a_character(void **state)
{
    (void)state;
    EXPECT("a\0b a\0c a\0b\n", 0, 1, 0, 2);
}

static void white_space(void **state)
{
    (void)state;
    EXPECT(" a \t b\v\fc\x1c" "d ", 0, 1, 2, 3, 4);
    EXPECT("a\xc2\xa0" "b\xe2\x80\x89" "c\xe3\x80\x80" "d\xc2\x85" "e", 0, 1, 2, 3, 4, 5);
    EXPECT("\xc3\xa9t\xc3\xa9 \xe2\x80\x93 \xc3\xa9t\xc3\xa9", 0, 1, 0, 2);    /* letters and dashes are not white space */
    EXPECT("a\xe2", 0, 1);                                                     /* a cut character at the end */
}

static void a_long_line(void **state)
{
    (void)state;
    size_t size = 5 << 20;
    char *text = malloc(size), *kept;
    memset(text, 'x', size);
    for (size_t i = 5; i < size; i += 6) text[i] = ' ';
    struct words words = number(text, size, &kept);
    assert_int_equal(words.size, (size + 5) / 6 + 1);
    assert_int_equal(words.known_size, size % 6 == 0 ? 2 : 3);    /* "xxxxx", the shorter rest, <eos> */
    words_free(&words);
    free(text), free(kept);
}

/* Many different words: the table grows, equal words keep their numbers. */
static void many_words(void **state)
{
    (void)state;
    enum { N = 20000 };
    char *text = malloc(2 * N * 8), *end = text, *kept;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < N; i++) end += sprintf(end, "w%d ", i);
    struct words words = number(text, (size_t)(end - text), &kept);
    assert_int_equal(words.size, 2 * N + 1);
    for (int i = 0; i < N; i++) assert_true(words.ids[i] == i && words.ids[N + i] == i);
    words_free(&words);
    free(text), free(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line_ends),   cmocka_unit_test(nothing),     cmocka_unit_test(nul_is_a_character),
        cmocka_unit_test(white_space), cmocka_unit_test(a_long_line), cmocka_unit_test(many_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
