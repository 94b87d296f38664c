/* Typed environment variables and the registry. */
#include "base/env.h"
#include "base/error.h"
#include "base/registry.h"
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void expect_error(th_status status, const char *part1, const char *part2)
{
    assert_int_equal(th_error(), status);
    assert_non_null(strstr(th_error_message(), part1));
    assert_non_null(strstr(th_error_message(), part2));
    th_error_clear();
}

static void reads_typed_values(void **state)
{
    (void)state;
    int64_t number = 0;
    double real = 0;
    bool flag = false;
    th__env_unset("CFT_X");
    assert_null(th__env("CFT_X"));
    assert_false(th__env_is_set("CFT_X"));
    assert_int_equal(th__env_int("CFT_X", 5, 0, 10, &number), TH_OK);
    assert_int_equal(number, 5);
    assert_int_equal(th__env_int_required("CFT_X", 0, 10, &number), TH_ERR_KEY);
    expect_error(TH_ERR_KEY, "CFT_X", "not set");

    th__env_set("CFT_X", "");
    assert_null(th__env("CFT_X"));
    assert_true(th__env_is_set("CFT_X"));
    assert_string_equal(th__env_or("CFT_X", "else"), "else");
    assert_int_equal(th__env_int("CFT_X", 6, 0, 10, &number), TH_OK);
    assert_int_equal(number, 6);

    th__env_set("CFT_X", "11");
    assert_int_equal(th__env_int("CFT_X", 5, 0, 10, &number), TH_ERR_VALUE);
    expect_error(TH_ERR_VALUE, "CFT_X is '11'", "from 0 to 10");
    assert_int_equal(th__env_int("CFT_X", 5, 0, INT64_MAX, &number), TH_OK);
    assert_int_equal(number, 11);
    th__env_set("CFT_X", "two");
    assert_int_equal(th__env_int("CFT_X", 5, 0, INT64_MAX, &number), TH_ERR_VALUE);
    expect_error(TH_ERR_VALUE, "CFT_X is 'two'", "at least 0");
    assert_int_equal(th__env_double("CFT_X", 1, &real), TH_ERR_VALUE);
    expect_error(TH_ERR_VALUE, "CFT_X is 'two'", "number");
    assert_int_equal(th__env_bool("CFT_X", true, &flag), TH_ERR_VALUE);
    expect_error(TH_ERR_VALUE, "CFT_X is 'two'", "1 or 0");
    th__env_set("CFT_X", "1.5");
    assert_int_equal(th__env_double("CFT_X", 1, &real), TH_OK);
    assert_true(real == 1.5);
    th__env_set("CFT_X", "On");
    assert_int_equal(th__env_bool("CFT_X", false, &flag), TH_OK);
    assert_true(flag);
    th__env_set_int("CFT_X", 0);
    assert_int_equal(th__env_bool("CFT_X", true, &flag), TH_OK);
    assert_false(flag);
    th__env_unset("CFT_X");
}

static const int cpu = 1, cuda = 2, mine = 3;
static const th__registry_item builtins[] = {{"cpu", &cpu, "the processor"}, {"cuda", &cuda, NULL}};

static void finds_and_lists(void **state)
{
    (void)state;
    th__registry registry = TH__REGISTRY("accelerator", builtins);
    const char *names[4] = {0};
    assert_int_equal(th__registry_names(&registry, names, 1), 2);
    assert_string_equal(names[0], "cpu");
    assert_null(names[1]);
    assert_ptr_equal(th__registry_get(&registry, "cuda"), &cuda);
    assert_null(th__registry_find(&registry, "tpu"));
    assert_int_equal(th_error(), TH_OK);
    assert_null(th__registry_get(&registry, "cudaa"));
    expect_error(TH_ERR_KEY, "accelerator 'cudaa' is not known; did you mean 'cuda'?", "known: cpu, cuda");
    assert_null(th__registry_get(&registry, "cocofruit"));
    expect_error(TH_ERR_KEY, "accelerator 'cocofruit' is not known; known:", "cpu, cuda");

    assert_int_equal(th__registry_add(&registry, "mine", &mine, "x", false), TH_OK);
    assert_int_equal(th__registry_add(&registry, "cpu", &mine, NULL, false), TH_ERR_VALUE);
    expect_error(TH_ERR_VALUE, "'cpu' is already registered", "override");
    assert_ptr_equal(th__registry_get(&registry, "cpu"), &cpu);
    assert_int_equal(th__registry_add(&registry, "cpu", &mine, NULL, true), TH_OK);
    assert_ptr_equal(th__registry_get(&registry, "cpu"), &mine);
    char *text = th__registry_names_text(&registry);
    assert_string_equal(text, "cpu, cuda, mine");
    free(text);
    assert_int_equal(th__registry_remove(&registry, "cuda"), TH_OK);
    assert_int_equal(th__registry_remove(&registry, "cuda"), TH_ERR_KEY);
    expect_error(TH_ERR_KEY, "accelerator 'cuda'", "cpu, mine");
    assert_int_equal(th__registry_add(&registry, "", &mine, NULL, false), TH_ERR_VALUE);
    th_error_clear();
    assert_int_equal(th__registry_add(&registry, "x", NULL, NULL, false), TH_ERR_VALUE);
    th_error_clear();
    th__registry_remove(&registry, "cpu");
    th__registry_remove(&registry, "mine");
    assert_int_equal(th__registry_names(&registry, NULL, 0), 0); /* removed built-ins do not come back */
    free(registry.items);
}

static void starts_empty(void **state)
{
    (void)state;
    th__registry registry = TH__REGISTRY_EMPTY("launcher");
    assert_null(th__registry_get(&registry, "x"));
    expect_error(TH_ERR_KEY, "launcher 'x' is not known", "known: none");
    free(registry.items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_typed_values), cmocka_unit_test(finds_and_lists),
                                       cmocka_unit_test(starts_empty)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
