/* Text helpers: trimming, splitting, strict numbers in every locale, nearest names. */
#include "base/error.h"
#include "base/strings.h"
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void trims_and_splits(void **state)
{
    (void)state;
    char text[] = " \t a b \n";
    assert_string_equal(th__trim(text), "a b");
    th__strings parts = {0};
    assert_int_equal(th__split(&parts, " 1, 3 ,,b", ','), 0);
    assert_int_equal(parts.count, 4);
    assert_string_equal(parts.items[0], "1");
    assert_string_equal(parts.items[1], "3");
    assert_string_equal(parts.items[2], "");
    assert_string_equal(parts.items[3], "b");
    char *joined = th__join((const char *const *)parts.items, parts.count, "|");
    assert_string_equal(joined, "1|3||b");
    free(joined);
    th__strings_free(&parts);
    assert_int_equal(th__split(&parts, "", ','), 0);
    assert_int_equal(parts.count, 1);
    th__strings_free(&parts);
    joined = th__join(NULL, 0, ",");
    assert_string_equal(joined, "");
    free(joined);
}

static void reads_integers_strictly(void **state)
{
    (void)state;
    int64_t value = 77;
    assert_true(th__parse_int("12", &value) && value == 12);
    assert_true(th__parse_int(" -3 ", &value) && value == -3);
    assert_true(th__parse_int("+0", &value) && value == 0);
    assert_true(th__parse_int("9223372036854775807", &value) && value == INT64_MAX);
    assert_true(th__parse_int("-9223372036854775808", &value) && value == INT64_MIN);
    static const char *const bad[] = {
        "", " ", "-", "1.0", "1e3", "0x10", "1 2", "12a", "9223372036854775808", "-9223372036854775809", "1,000", "--1"};
    value = 77;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(th__parse_int(bad[i], &value));
        assert_int_equal(value, 77);
    }
}

static void reads_doubles_strictly(void **state)
{
    (void)state;
    double value = 0;
    assert_true(th__parse_double("0.1", &value) && value == 0.1);
    assert_true(th__parse_double(" -1e-3 ", &value) && value == -1e-3);
    assert_true(th__parse_double(".5", &value) && value == 0.5);
    assert_true(th__parse_double("inf", &value) && isinf(value));
    assert_true(th__parse_double("-Infinity", &value) && isinf(value) && value < 0);
    assert_true(th__parse_double("nan", &value) && isnan(value));
    static const char *const bad[] = {"", ".", "0x1p3", "1,5", "1.5x", "infx", "nan(1)", "e5", "1e", "- 1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(th__parse_double(bad[i], &value));
}

static const char *repr(double value)
{
    static char buffer[TH__DOUBLE_TEXT];
    return th__format_double(buffer, value);
}

static void writes_doubles_as_python(void **state)
{
    (void)state;
    assert_string_equal(repr(0.1), "0.1");
    assert_string_equal(repr(1), "1.0");
    assert_string_equal(repr(-0.0), "-0.0");
    assert_string_equal(repr(100), "100.0");
    assert_string_equal(repr(0.0001), "0.0001");
    assert_string_equal(repr(1e-5), "1e-05");
    assert_string_equal(repr(1e16), "1e+16");
    assert_string_equal(repr(123456789012345680.0), "1.2345678901234568e+17");
    assert_string_equal(repr(1234567890123456.0), "1234567890123456.0");
    assert_string_equal(repr(1.0 / 3), "0.3333333333333333");
    assert_string_equal(repr(5e-324), "5e-324");
    assert_string_equal(repr(INFINITY), "inf");
}

static void ignores_the_locale(void **state)
{
    (void)state;
    /* Any locale with a decimal comma; where none is installed the test has nothing to show beyond the "C" checks above. */
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "nl_NL.UTF-8"};
    const char *found = NULL;
    for (size_t i = 0; found == NULL && i < 4; i++) found = setlocale(LC_NUMERIC, names[i]);
    double value = 0;
    assert_true(th__parse_double("2.5", &value) && value == 2.5);
    assert_false(th__parse_double("2,5", &value));
    assert_string_equal(repr(2.5), "2.5");
    setlocale(LC_NUMERIC, "C");
    if (found == NULL) print_message("no locale with a decimal comma is installed\n");
}

static void finds_the_nearest_name(void **state)
{
    (void)state;
    static const char *const names[] = {"auto", "dp", "ddp", "ddp_spawn", "fsdp", "deepspeed_stage_2"};
    assert_int_equal(th__edit_distance("kitten", "sitting"), 3);
    assert_int_equal(th__edit_distance("", "abc"), 3);
    assert_int_equal(th__edit_distance("DDP", "ddp"), 0);
    assert_int_equal(th__edit_distance("fdsp", "fsdp"), 1);
    assert_string_equal(th__closest("dpp", names, 6), "ddp");
    assert_string_equal(th__closest("fdsp", names, 6), "fsdp");
    assert_string_equal(th__closest("deepspeed_stage2", names, 6), "deepspeed_stage_2");
    assert_null(th__closest("cocofruit", names, 6));
    assert_null(th__closest("", names, 6));
    assert_null(th__closest("x", names, 0));
}

static void compares(void **state)
{
    (void)state;
    assert_true(th__equal_ignore_case("DdP", "ddp"));
    assert_false(th__equal_ignore_case("ddp", "ddp_"));
    assert_true(th__starts_with("--devices=2", "--devices"));
    assert_true(th__ends_with("a.pt", ".pt"));
    assert_false(th__ends_with("t", ".pt"));
    char text[] = "Bf16-MIXED";
    assert_string_equal(th__lower(text), "bf16-mixed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trims_and_splits),
        cmocka_unit_test(reads_integers_strictly),
        cmocka_unit_test(reads_doubles_strictly),
        cmocka_unit_test(writes_doubles_as_python),
        cmocka_unit_test(ignores_the_locale),
        cmocka_unit_test(finds_the_nearest_name),
        cmocka_unit_test(compares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
