/* Collectives on one device, values, callbacks, logging, seeds: semantics 8.8, 8.14, 15, 21 items 51, 61, 74, 75. */
#include "fabric_support.h"

#include <math.h>

/* ---- collectives are identities */

static void tensors(void **state)
{
    (void)state;
    fabric *fab = fabric_plain();
    th_tensor *x = th_ones(TH_INTS(2, 3));
    assert_ptr_equal(fabric_all_gather(fab, x), x); /* no new dimension */
    assert_ptr_equal(fabric_all_reduce(fab, x, .reduce_op = "Sum"), x);
    assert_ptr_equal(fabric_all_reduce(fab, x), x);
    assert_ptr_equal(fabric_broadcast_tensor(fab, x, 0), x);
    assert_int_equal(fabric_barrier(fab), TH_OK);
    th_tensor *number = fabric_all_gather_number(fab, 0.5);
    assert_int_equal(th_dim(number), 0);
    assert_int_equal(th_dtype_of(number), TH_FLOAT32);
    assert_true(fabric_all_reduce_number(fab, 0.1, "mean") == 0.1);
    assert_null(fabric_all_gather(fab, NULL));
    assert_raised(TH_ERR_TYPE, "the tensor is NULL");
    th_error_set(TH_ERR_VALUE, "earlier");
    assert_int_equal(fabric_barrier(fab), TH_ERR_VALUE); /* a failed rank enters nothing */
    assert_true(isnan(fabric_all_reduce_number(fab, 1.0, "sum")));
    assert_raised(TH_ERR_VALUE, "earlier");
    assert_int_equal(fabric_finish(fab), 0);
}

static th_value *nested(void)
{
    th_value *list = th_value_list();
    th_value_append(list, th_value_string("text"));
    th_value_append(list, th_value_int(3));
    th_value_append(list, th_value_bool(true));
    th_value *dict = TH_STATE({"loss", th_state(0.5)}, {"x", th_state(th_ones(TH_INTS(2)))}, {"list", list});
    th_value_set_int(dict, 7, th_value_none());
    return dict;
}

static void values(void **state)
{
    (void)state;
    fabric *fab = fabric_plain();
    for (int reduce = 0; reduce <= 1; reduce++) {
        th_value *result = reduce ? fabric_all_reduce_value(fab, nested()) : fabric_all_gather_value(fab, nested());
        assert_ok();
        assert_int_equal(th_value_size(result), 4);
        assert_int_equal(th_dtype_of(th_value_as_tensor(th_value_get(result, "loss"))), TH_FLOAT32);
        assert_int_equal(th_size(th_value_as_tensor(th_value_get(result, "x")), 0), 2);
        th_value *list = th_value_get(result, "list");
        assert_string_equal(th_value_as_string(th_value_at(list, 0), ""), "text");
        assert_int_equal(th_dtype_of(th_value_as_tensor(th_value_at(list, 1))), TH_INT32);
        assert_int_equal(th_dtype_of(th_value_as_tensor(th_value_at(list, 2))), TH_UINT8);
        assert_int_equal(th_value_kind_of(th_value_get_int(result, 7)), TH_VALUE_NONE);
        th_value_free(result);
    }
    th_value *single = fabric_all_gather_value(fab, th_value_double(2.0));
    assert_true(th_item(th_value_as_tensor(single)) == 2.0);
    th_value_free(single);
    th_value *same = fabric_broadcast(fab, th_value_string("hello"), 0);
    assert_string_equal(th_value_as_string(same, ""), "hello");
    th_value_free(same);
    assert_int_equal(fabric_value_to_device(fab, NULL), TH_OK);
    assert_int_equal(fabric_finish(fab), 0);
}

/* ---- callbacks (item 75) */

static th_status add_loss(fabric *fab, fabric_args args, void *user)
{
    (void)fab;
    *(double *)user += fabric_args_double(args, "loss", 100.0) + (double)fabric_args_int(args, "absent", 0);
    return TH_OK;
}

static th_status refuse(fabric *fab, fabric_args args, void *user)
{
    (void)fab, (void)args, (void)user;
    return TH_ERR_CALLBACK;
}

static void callbacks(void **state)
{
    (void)state;
    static const fabric_hook adding[] = {{"on_end", add_loss}, {"broken", NULL}, {NULL, NULL}};
    static const fabric_hook refusing[] = {{"refuse", refuse}, {NULL, NULL}};
    double sum = 0;
    fabric *fab = fabric_new(.accelerator = "cpu", .callbacks = FABRIC_CALLBACKS({"a", adding, &sum, NULL}, {"b", adding, &sum, NULL}));
    assert_int_equal(fabric_add_callback(fab, (fabric_callback){"c", refusing, NULL, NULL}), TH_OK);
    assert_int_equal(fabric_call(fab, "on_end", FABRIC_ARGS(FABRIC_ARG("loss", 0.5), FABRIC_ARG("unread", 3))), TH_OK);
    assert_true(sum == 1.0);
    assert_int_equal(fabric_call(fab, "nobody_has_this", FABRIC_NO_ARGS), TH_OK);
    assert_int_equal(support_message_count, 0);
    assert_int_equal(fabric_call(fab, "broken", FABRIC_NO_ARGS), TH_OK);
    assert_int_equal(support_message_count, 2);
    assert_non_null(strstr(support_messages, "'broken'"));
    assert_int_equal(fabric_call(fab, "refuse", FABRIC_NO_ARGS), TH_ERR_CALLBACK);
    assert_raised(TH_ERR_CALLBACK, "'refuse' of callback 'c'");
    assert_int_equal(fabric_finish(fab), 0);
}

static void argument_kinds(void **state)
{
    (void)state;
    th_tensor *x = th_ones(TH_INTS(1));
    fabric_args args = FABRIC_ARGS(FABRIC_ARG("x", x), FABRIC_ARG("i", 3), FABRIC_ARG("d", 0.5), FABRIC_ARG("s", "text"));
    assert_ptr_equal(fabric_args_tensor(args, "x"), x);
    assert_null(fabric_args_tensor(args, "i")); /* another kind */
    assert_null(fabric_args_module(args, "x"));
    assert_int_equal(fabric_args_int(args, "i", 0), 3);
    assert_true(fabric_args_double(args, "i", 0) == 3.0);
    assert_true(fabric_args_double(args, "d", 0) == 0.5);
    assert_string_equal(fabric_args_find(args, "s")->p, "text");
    assert_null(fabric_args_find(args, "none"));
}

/* ---- logging (item 74) */

struct log { int calls, finalized; double loss; int64_t step; bool has_step; char status[16]; };

static th_status log_metrics(fabric_logger *logger, const th_value *metrics, th_opt_int step)
{
    struct log *log = fabric_logger_self(logger);
    log->calls++;
    log->loss = th_value_as_double(th_value_get(metrics, "loss"), -1);
    log->step = step.value;
    log->has_step = step.has;
    return TH_OK;
}

static th_status log_finalize(fabric_logger *logger, const char *status)
{
    struct log *log = fabric_logger_self(logger);
    log->finalized++;
    snprintf(log->status, sizeof log->status, "%s", status);
    return TH_OK;
}

static const fabric_logger_ops log_ops = {.size = sizeof log_ops, .class_name = "Log", .log_metrics = log_metrics,
                                          .finalize = log_finalize};

static void logging(void **state)
{
    (void)state;
    struct log a = {0}, b = {0};
    fabric *fab = fabric_new(.accelerator = "cpu", .loggers = FABRIC_LOGGERS(fabric_logger_new(&log_ops, &a),
                                                                             fabric_logger_new(&log_ops, &b)));
    assert_int_equal(fabric_n_loggers(fab), 2);
    assert_int_equal(fabric_log(fab, "loss", th_state(th_full(TH_INTS(1), TH_S(0.5))), .step = TH_INT(3)), TH_OK);
    assert_true(a.loss == 0.5 && b.loss == 0.5);
    assert_true(a.has_step && a.step == 3 && b.step == 3);
    assert_int_equal(fabric_log(fab, "loss", th_state(2)), TH_OK);
    assert_true(a.loss == 2.0 && !a.has_step);
    fabric_log(fab, "loss", th_state(th_ones(TH_INTS(2))));
    assert_raised(TH_ERR_VALUE, "metric 'loss' is a tensor of 2 elements");
    assert_int_equal(a.calls, 2);
    assert_int_equal(fabric_log_dict(fab, TH_STATE({"loss", th_state(0.25)}, {"x", th_state(true)})), TH_OK);
    assert_true(b.loss == 0.25);
    fabric_log_dict(fab, th_value_int(3));
    assert_raised(TH_ERR_TYPE, "expected a dict");
    th_error_set(TH_ERR_VALUE, "failed");
    assert_int_equal(fabric_finish(fab), 1);
    assert_raised(TH_ERR_VALUE, "failed");
    assert_int_equal(a.finalized, 1);
    assert_string_equal(b.status, "failed");
}

/* ---- seeds (item 51; BC-017) */

static void seeds(void **state)
{
    (void)state;
    assert_int_equal(fabric_seed_everything(FABRIC_SEED_FROM_ENV), 0);
    assert_int_equal(support_message_count, 2); /* a warning, and the seed */
    unsetenv("PL_GLOBAL_SEED");
    support_message_count = 0;
    assert_int_equal(fabric_seed_everything(FABRIC_SEED_FROM_ENV, .verbose = false), 0);
    assert_int_equal(support_message_count, 0);
    setenv("PL_GLOBAL_SEED", "2020", 1);
    assert_int_equal(fabric_seed_everything(FABRIC_SEED_FROM_ENV), 2020);
    static const char *const bad[] = {"invalid", "1e10", "4294967296", "-1", "", "12x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("PL_GLOBAL_SEED", bad[i], 1);
        assert_true(fabric_seed_everything(FABRIC_SEED_FROM_ENV) < 0);
        assert_non_null(strstr(th_error_message(), "PL_GLOBAL_SEED"));
        th_error_clear();
    }
    assert_true(fabric_seed_everything(4294967296) < 0);
    assert_raised(TH_ERR_VALUE, "4294967296");
    assert_true(fabric_seed_everything(-1) < 0);
    assert_raised(TH_ERR_VALUE, "-1");
    assert_int_equal(fabric_seed_everything(4294967295), 4294967295);

    assert_int_equal(fabric_seed_everything(7), 7);
    assert_string_equal(getenv("PL_GLOBAL_SEED"), "7");
    assert_string_equal(getenv("PL_SEED_WORKERS"), "1");
    double first = th_item(th_rand(TH_INTS(1)));
    support_message_count = 0;
    assert_int_equal(fabric_reset_seed(), TH_OK);
    assert_true(th_item(th_rand(TH_INTS(1))) == first);
    assert_int_equal(support_message_count, 0);
    assert_int_equal(fabric_seed_everything(7, .workers = false), 7);
    assert_string_equal(getenv("PL_SEED_WORKERS"), "0");
    unsetenv("PL_GLOBAL_SEED");
    assert_int_equal(fabric_reset_seed(), TH_OK); /* nothing to do */
}

/* ---- placement and printing */

static void placement(void **state)
{
    (void)state;
    fabric *fab = fabric_plain();
    th_tensor *x = th_ones(TH_INTS(2));
    assert_ptr_equal(fabric_to_device(fab, x), x);
    th_module *model = th_nn_linear(2, 2);
    assert_int_equal(fabric_module_to_device(fab, model), TH_OK);
    assert_null(fabric_to_device(fab, NULL));
    assert_raised(TH_ERR_TYPE, "NULL");
    assert_int_equal(fabric_print(fab, "%s", ""), TH_OK);
    th_module_free(model);
    assert_int_equal(fabric_finish(fab), 0);
}

static th_value *entry(fabric *fab, void *user)
{
    return th_value_int(fabric_is_launched(fab) ? *(int *)user : -1);
}

static void launching_a_function(void **state)
{
    (void)state;
    int seven = 7;
    fabric *fab = fabric_plain();
    th_value *result = fabric_launch_fn(fab, entry, &seven);
    assert_int_equal(th_value_as_int(result, 0), 7);
    th_value_free(result);
    assert_null(fabric_launch_fn(fab, NULL, NULL));
    assert_raised(TH_ERR_TYPE, "the function is NULL");
    assert_int_equal(fabric_finish(fab), 0);
}

static void under_the_cli(void **state)
{
    (void)state;
    setenv("LT_CLI_USED", "1", 1);
    setenv("LT_DEVICES", "1", 1);
    fabric *fab = fabric_new();
    assert_ok();
    assert_true(fabric_is_launched(fab));
    assert_int_equal(fabric_launch(fab), TH_ERR_RUNTIME);
    assert_raised(TH_ERR_RUNTIME, "fabric run");
    unsetenv("LT_CLI_USED");
    unsetenv("LT_DEVICES");
    assert_int_equal(fabric_finish(fab), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FABRIC_CASE(tensors),      FABRIC_CASE(values),    FABRIC_CASE(callbacks),
        FABRIC_CASE(argument_kinds), FABRIC_CASE(logging), FABRIC_CASE(seeds),
        FABRIC_CASE(placement),    FABRIC_CASE(launching_a_function), FABRIC_CASE(under_the_cli),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
