/* Processors, ports and JSON. */
#include "base/cpu.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/net.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void divides_cores(void **state)
{
    (void)state;
    static const int processes[] = {1, 2, 3, 4, 8}, expected[] = {4, 2, 1, 1, 1};
    int threads = 0;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(th__threads_per_rank(4, processes[i], &threads), TH_OK);
        assert_int_equal(threads, expected[i]);
    }
    assert_int_equal(th__threads_per_rank(4, 0, &threads), TH_ERR_VALUE);
    th_error_clear();
    assert_int_equal(th__threads_per_rank(4, -1, &threads), TH_ERR_VALUE);
    th_error_clear();
}

static void respects_the_affinity_mask(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &before)) {
            CPU_SET(i, &one);
            break;
        }
    assert_true(th__usable_cores() >= 1 && th__usable_cores() <= CPU_COUNT(&before));
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(th__usable_cores(), 1);
    sched_setaffinity(0, sizeof before, &before);
}

static void respects_the_quota(void **state)
{
    (void)state;
    char root[] = "/tmp/cfabric-cg-XXXXXX", path[128], membership[128];
    assert_non_null(mkdtemp(root));
    snprintf(membership, sizeof membership, "%s/self", root);
    th__write_file(membership, "0::/job/step\n", 13);
    assert_int_equal(th__limit_cores(8, root, membership), 8);
    snprintf(path, sizeof path, "%s/job/step/cpu.max", root);
    th__write_file(path, "max 100000\n", 11);
    assert_int_equal(th__limit_cores(8, root, membership), 8);
    snprintf(path, sizeof path, "%s/job/cpu.max", root); /* the parent's limit counts */
    th__write_file(path, "250000 100000\n", 14);
    assert_int_equal(th__limit_cores(8, root, membership), 3);
    assert_int_equal(th__limit_cores(2, root, membership), 2);
    snprintf(path, sizeof path, "%s/cpu.max", root);
    th__write_file(path, "20000 100000\n", 13);
    assert_int_equal(th__limit_cores(8, root, membership), 1);
    th__write_file(membership, "3:cpuset:/\n4:cpuacct,cpu:/box\n", 30);
    assert_int_equal(th__limit_cores(8, root, membership), 8);
    snprintf(path, sizeof path, "%s/cpu/box/cpu.cfs_quota_us", root);
    th__write_file(path, "200000\n", 7);
    snprintf(path, sizeof path, "%s/cpu/box/cpu.cfs_period_us", root);
    th__write_file(path, "50000\n", 6);
    assert_int_equal(th__limit_cores(8, root, membership), 4);
    snprintf(path, sizeof path, "%s/cpu/box/cpu.cfs_quota_us", root);
    th__write_file(path, "-1\n", 3);
    assert_int_equal(th__limit_cores(8, root, membership), 8);
    assert_int_equal(th__limit_cores(8, root, "/nonexistent"), 8);
    assert_int_equal(th__remove_tree(root), TH_OK);
}

static int listen_on(int port)
{
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 4) == 0) return fd;
    close(fd);
    return -1;
}

static void finds_and_holds_ports(void **state)
{
    (void)state;
    int port = th__net_free_port();
    assert_true(port > 0 && port < 65536);
    assert_false(th__net_port_in_use(port));
    int fd = listen_on(port);
    assert_true(fd >= 0);
    assert_true(th__net_port_in_use(port));
    th__port_hold first, second;
    assert_false(th__net_hold_port(port, &first));
    close(fd);
    assert_true(th__net_hold_port(port, &first));
    assert_false(th__net_hold_port(port, &second)); /* held: another launcher keeps off */
    fd = listen_on(port);                           /* ... but a rank can listen */
    assert_true(fd >= 0);
    close(fd);
    th__net_release_port(&first);
    th__net_release_port(&first);
    assert_true(th__net_hold_port(port, &second));
    th__net_release_port(&second);

    int a = th__net_hold_free_port(&first), b = th__net_hold_free_port(&second);
    assert_true(a > 0 && b > 0 && a != b);
    fd = listen_on(a);
    assert_true(fd >= 0);
    close(fd);
    th__net_release_port(&first);
    th__net_release_port(&second);
}

static void knows_own_addresses(void **state)
{
    (void)state;
    assert_true(th__net_is_local("127.0.0.1"));
    assert_true(th__net_is_local("localhost"));
    assert_false(th__net_is_local("192.0.2.1"));
    assert_false(th__net_is_local("name.invalid"));
}

static void parses_json_with_positions(void **state)
{
    (void)state;
    const char *text = "{\"a\": 1.5, \"n\": 3, \"s\": \"x\", \"b\": true}";
    cJSON *json = th__json_parse(text, strlen(text), "conf");
    assert_non_null(json);
    double real = 0;
    int64_t whole = 0;
    bool flag = false;
    const char *word = NULL;
    assert_true(th__json_double(json, "a", &real, "conf") && real == 1.5);
    assert_true(th__json_int(json, "n", &whole, "conf") && whole == 3);
    assert_true(th__json_bool(json, "b", &flag, "conf") && flag);
    assert_true(th__json_string(json, "s", &word, "conf") && strcmp(word, "x") == 0);
    assert_false(th__json_int(json, "missing", &whole, "conf"));
    assert_int_equal(th_error(), TH_OK);
    assert_false(th__json_int(json, "a", &whole, "conf"));
    assert_int_equal(th_error_clear(), TH_ERR_DATA);
    assert_false(th__json_int(json, "s", &whole, "conf"));
    assert_int_equal(th_error_clear(), TH_ERR_DATA);
    char *printed = th__json_print(json, false);
    assert_string_equal(printed, "{\"a\":1.5,\"n\":3,\"s\":\"x\",\"b\":true}");
    free(printed);
    cJSON_Delete(json);

    static const struct {
        const char *text, *where;
    } bad[] = {{"{\"a\": 1,\n  \"b\": ?}", "line 2, column 8"},
               {"{} x", "line 1, column 4"},
               {"", "ends too early"},
               {"[1, 2", "conf: line 1"},
               {"{\"a\": 0x10}", "conf: line 1"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_null(th__json_parse(bad[i].text, strlen(bad[i].text), "conf"));
        if (strstr(th_error_message(), bad[i].where) == NULL) fail_msg("%s: %s", bad[i].text, th_error_message());
        assert_int_equal(th_error_clear(), TH_ERR_DATA);
    }
    assert_null(th__json_parse_file("/nonexistent.json"));
    assert_int_equal(th_error_clear(), TH_ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divides_cores),       cmocka_unit_test(respects_the_affinity_mask),
        cmocka_unit_test(respects_the_quota),  cmocka_unit_test(finds_and_holds_ports),
        cmocka_unit_test(knows_own_addresses), cmocka_unit_test(parses_json_with_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
