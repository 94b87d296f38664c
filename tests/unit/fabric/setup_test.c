/* fabric_new, set-up, wrappers, the end: semantics 2, 8.1-8.5, 9, 21 items 2, 38-44, 48, 49. */
#include "fabric_support.h"

#include "base/memory.h"
#include "base/object.h"

/* ---- the object itself */

static void defaults(void **state)
{
    (void)state;
    fabric *fab = fabric_new();
    assert_ok();
    assert_string_equal(fabric_strategy_name(fabric_strategy_of(fab)), "SingleDeviceStrategy");
    assert_string_equal(fabric_accelerator_name(fabric_accelerator_of(fab)), "cpu");
    assert_string_equal(fabric_precision_name(fabric_precision_of(fab)), "32-true");
    assert_int_equal(fabric_device(fab).type, TH_DEVICE_CPU);
    assert_int_equal(fabric_global_rank(fab), 0);
    assert_int_equal(fabric_local_rank(fab), 0);
    assert_int_equal(fabric_node_rank(fab), 0);
    assert_int_equal(fabric_world_size(fab), 1);
    assert_true(fabric_is_global_zero(fab));
    assert_int_equal(fabric_n_loggers(fab), 0);
    assert_false(fabric_is_launched(fab));
    assert_int_equal(fabric_launch(fab), TH_OK);
    assert_int_equal(fabric_launch(fab), TH_OK); /* harmless on one device */
    assert_true(fabric_is_launched(fab));
    assert_null(fabric_logger_at(fab, 0));
    assert_raised(TH_ERR_VALUE, "there are 0");
    assert_int_equal(fabric_finish(fab), 0);
}

static void the_end(void **state)
{
    (void)state;
    fabric *fab = fabric_plain();
    assert_int_equal(fabric_finish(fab), 0);
    assert_int_equal(fabric_finish(fab), 0);
    assert_int_equal(fabric_launch(fab), TH_ERR_RUNTIME);
    assert_int_equal(fabric_finish(fab), 1); /* an error is pending now */
    assert_raised(TH_ERR_RUNTIME, "fabric_finish has ended this Fabric");
    assert_int_equal(fabric_finish(NULL), 0);
    th_error_set(TH_ERR_VALUE, "mine");
    assert_int_equal(fabric_finish(NULL), 1);
    assert_raised(TH_ERR_VALUE, "mine");
    assert_int_equal(fabric_barrier(NULL), TH_ERR_TYPE);
    assert_raised(TH_ERR_TYPE, "the Fabric is NULL");
}

static void pending_error_survives_the_end(void **state)
{
    (void)state;
    fabric *fab = fabric_plain();
    th_module *model = th_nn_linear(2, 2);
    fabric_setup(fab, model);
    th_error_set(TH_ERR_DATA, "the cause");
    assert_int_equal(fabric_finish(fab), 1);
    assert_raised(TH_ERR_DATA, "the cause");
    assert_false(fabric_is_wrapped(model)); /* everything was released all the same */
    th_module_free(model);
}

static void errors_come_from_new(void **state)
{
    (void)state;
    th_error_set(TH_ERR_VALUE, "earlier");
    fabric *fab = fabric_new(.plugins = FABRIC_PLUGINS(fabric_plugin(fabric_precision_new(&watch_ops, NULL))));
    assert_null(fab);
    assert_raised(TH_ERR_VALUE, "earlier");
    assert_null(fabric_new(.strategy = "cocofruit"));
    assert_raised(TH_ERR_VALUE, "cocofruit");
}

static void nothing_is_left(void **state)
{
    (void)state;
    size_t before = th__objects_live(NULL);
    struct watch watch = {0};
    fabric *fab = fabric_watched(&watch);
    th_module *model = th_nn_linear(2, 2);
    th_optimizer *optimizer = th_optim_sgd(th_parameters(model), .lr = 0.1);
    fabric_setup(fab, model, optimizer);
    assert_ok();
    th_optimizer_free(optimizer);
    th_module_free(model);
    assert_int_equal(fabric_finish(fab), 0);
    assert_int_equal(th__objects_live(NULL), before);
}

/* ---- modules and optimizers */

static void setup_counts(void **state)
{
    (void)state;
    fabric *fab = fabric_plain();
    th_module *a = th_nn_linear(2, 2), *b = th_nn_linear(2, 2), *c = th_nn_linear(2, 2);
    th_optimizer *b1 = th_optim_sgd(th_parameters(b), .lr = 0.1);
    th_optimizer *c1 = th_optim_sgd(th_parameters(c), .lr = 0.1), *c2 = th_optim_adam(th_parameters(c));
    assert_int_equal(fabric_setup(fab, a), TH_OK);
    assert_int_equal(fabric_setup(fab, b, b1), TH_OK);
    assert_int_equal(fabric_setup(fab, c, c1, c2, .move_to_device = false), TH_OK);
    assert_true(fabric_is_wrapped(a) && fabric_is_wrapped(b) && fabric_is_wrapped(c));
    assert_true(fabric_is_wrapped(b1) && fabric_is_wrapped(c1) && fabric_is_wrapped(c2));

    assert_int_equal(fabric_setup(fab, a), TH_ERR_VALUE);
    assert_raised(TH_ERR_VALUE, "has been set up already");
    assert_int_equal(fabric_setup_module(fab, b), TH_ERR_VALUE);
    assert_raised(TH_ERR_VALUE, "has been set up already");
    assert_int_equal(fabric_setup_optimizers(fab, c1), TH_ERR_VALUE);
    assert_raised(TH_ERR_VALUE, "has been set up already");
    assert_int_equal(fabric_setup(fab, NULL), TH_ERR_TYPE);
    assert_raised(TH_ERR_TYPE, "the module is NULL");

    th_optimizer_free(b1), th_optimizer_free(c1), th_optimizer_free(c2);
    assert_int_equal(fabric_finish(fab), 0);
    assert_false(fabric_is_wrapped(a));
    th_module_free(a), th_module_free(b), th_module_free(c);
}

static void split_setup(void **state)
{
    (void)state;
    fabric *fab = fabric_plain();
    th_module *model = th_nn_linear(2, 2);
    assert_int_equal(fabric_setup_module(fab, model), TH_OK);
    th_optimizer *optimizer = th_optim_sgd(th_parameters(model), .lr = 0.1);
    assert_int_equal(fabric_setup_optimizers(fab, NULL), TH_ERR_VALUE);
    assert_raised(TH_ERR_VALUE, "no optimizer was given");
    assert_int_equal(fabric_setup_optimizers(fab, optimizer, optimizer), TH_ERR_VALUE);
    assert_raised(TH_ERR_VALUE, "are the same");
    assert_int_equal(fabric_setup_optimizers(fab, NULL, optimizer), TH_ERR_TYPE);
    assert_raised(TH_ERR_TYPE, "optimizer 0 is NULL");
    assert_int_equal(fabric_setup_optimizers(fab, optimizer), TH_OK);
    th_optimizer_free(optimizer);
    th_module_free(model);
    assert_int_equal(fabric_finish(fab), 0);
}

/* BC-016, BC-035: an optimizer made before a layer was replaced. */
static void stale_optimizer(void **state)
{
    (void)state;
    fabric *fab = fabric_plain();
    th_module *model = th_nn_sequential(th_nn_linear(2, 3), th_nn_linear(3, 1));
    th_optimizer *stale = th_optim_sgd(th_parameters(model), .lr = 0.1);
    th_module_set_tensor(model, "1.weight", th_zeros(TH_INTS(1, 3)));
    assert_int_equal(fabric_setup(fab, model, stale), TH_ERR_VALUE);
    assert_non_null(strstr(th_error_message(), "1 of the optimizer's tensors"));
    assert_non_null(strstr(th_error_message(), "parameter 2 of group 0 (float32 [1, 3])"));
    th_error_clear();
    assert_false(fabric_is_wrapped(model)); /* nothing has happened */
    assert_false(fabric_is_wrapped(stale));
    th_optimizer *fresh = th_optim_sgd(th_parameters(model), .lr = 0.1);
    assert_int_equal(fabric_setup(fab, model, fresh), TH_OK);
    assert_int_equal(fabric_setup_optimizers(fab, stale), TH_ERR_VALUE);
    assert_raised(TH_ERR_VALUE, "do not belong to the module");
    th_optimizer_free(stale), th_optimizer_free(fresh);
    th_module_free(model);
    assert_int_equal(fabric_finish(fab), 0);
}

static th_tensor *pass_on(th_module *self, th_tensor *input)
{
    (void)self;
    return th_mul_scalar(input, TH_S(2.0));
}

static void module_without_parameters(void **state)
{
    (void)state;
    fabric *fab = fabric_plain();
    th_module *module = th_module_new("Twice", .forward = pass_on);
    assert_int_equal(fabric_setup(fab, module), TH_OK);
    assert_true(th_item(th_forward(module, th_tensor_scalar(TH_S(2.0), TH_FLOAT32))) == 4.0);
    th_module_free(module);
    assert_int_equal(fabric_finish(fab), 0);
}

static void state_dict_has_no_prefix(void **state)
{
    (void)state;
    fabric *fab = fabric_plain();
    th_module *model = th_nn_linear(2, 2), *other = th_nn_linear(2, 2);
    fabric_setup(fab, model);
    th_value *dict = th_module_state_dict(model);
    assert_string_equal(th_value_key_at(dict, 0, NULL), "weight");
    assert_string_equal(th_value_key_at(dict, 1, NULL), "bias");
    assert_int_equal(th_module_load_state_dict(other, dict, true), TH_OK);
    assert_int_equal(th_module_load_state_dict(model, dict, true), TH_OK);
    th_value_free(dict);
    th_module_free(model), th_module_free(other);
    assert_int_equal(fabric_finish(fab), 0);
}

/* ---- the precision around the forward */

static th_tensors training_step(th_module *module, th_tensors inputs, void *user)
{
    (void)user;
    th_tensor *weight = th_module_parameter(module, "weight");
    return th_list(TH_TENSORS(th_sum(th_mul(weight, inputs.data[0]))));
}

static void forward_goes_through_the_precision_once(void **state)
{
    (void)state;
    struct watch watch = {0};
    fabric *fab = fabric_watched(&watch);
    th_module *model = th_nn_linear(2, 2);
    fabric_setup(fab, model);
    assert_int_equal(watch.converted, 1);
    th_forward(model, th_ones(TH_INTS(1, 2)));
    assert_ok();
    assert_int_equal(watch.entered, 1);
    assert_int_equal(watch.left, 1);
    assert_int_equal(watch.inputs, 1);
    assert_int_equal(watch.outputs, 1);

    th_tensors outputs = fabric_forward_through(model, training_step, NULL, TH_TENSORS(th_ones(TH_INTS(2, 2))));
    assert_ok();
    assert_int_equal(outputs.size, 1);
    assert_int_equal(watch.entered, 2);
    assert_int_equal(watch.left, 2);
    fabric_forward_through(model, NULL, NULL, TH_TENSORS(th_ones(TH_INTS(2, 2))));
    assert_raised(TH_ERR_TYPE, "the forward method is NULL");

    th_forward(model, th_ones(TH_INTS(1, 7))); /* wrong size */
    assert_int_not_equal(th_error(), TH_OK);
    th_error_clear();
    assert_int_equal(watch.entered, watch.left); /* the context is left after an error too */
    th_module_free(model);
    assert_int_equal(fabric_finish(fab), 0);
}

/* ---- loaders */

struct counting { int64_t n, at, epochs[4]; int calls; };

static int64_t counting_len(void *self) { return ((struct counting *)self)->n; }

static th_status counting_begin(void *self)
{
    ((struct counting *)self)->at = 0;
    return TH_OK;
}

static th_status counting_next(void *self, int64_t *index, bool *end)
{
    struct counting *c = self;
    *end = c->at >= c->n;
    *index = c->at++;
    return TH_OK;
}

static void counting_set_epoch(void *self, int64_t epoch)
{
    struct counting *c = self;
    if (c->calls < 4) c->epochs[c->calls] = epoch;
    c->calls++;
}

static const th_sampler_ops counting_ops = {.size = sizeof counting_ops, .name = "counting", .len = counting_len,
                                            .begin = counting_begin, .next = counting_next, .set_epoch = counting_set_epoch};

static void epochs_are_set_by_themselves(void **state)
{
    (void)state;
    fabric *fab = fabric_plain();
    struct counting counting = {.n = 4};
    th_dataset *data = th_dataset_tensor(TH_TENSORS(th_arange(TH_S(4))));
    th_dataloader *loader = th_dataloader_new(data, 2, .sampler = th_sampler_new(&counting_ops, &counting));
    assert_int_equal(fabric_setup_dataloaders(fab, loader), TH_OK);
    assert_true(fabric_is_wrapped(loader));
    assert_int_equal(counting.calls, 0); /* lazily, at the first fetched batch */
    th_batch batch;
    assert_true(th_dataloader_next(loader, &batch));
    assert_int_equal(counting.calls, 1);
    assert_int_equal(counting.epochs[0], 0);
    assert_true(th_dataloader_next(loader, &batch));
    assert_false(th_dataloader_next(loader, &batch));
    assert_int_equal(counting.calls, 1);
    assert_true(th_dataloader_next(loader, &batch));
    assert_int_equal(counting.calls, 2);
    assert_int_equal(counting.epochs[1], 1);
    th_dataloader_free(loader);
    assert_int_equal(fabric_finish(fab), 0);
}

static void loader_errors(void **state)
{
    (void)state;
    fabric *fab = fabric_plain();
    th_dataloader *a = th_dataloader_new(th_dataset_tensor(TH_TENSORS(th_arange(TH_S(4)))), 2);
    th_dataloader *b = th_dataloader_new(th_dataset_tensor(TH_TENSORS(th_arange(TH_S(4)))), 2, .shuffle = true);
    assert_int_equal(fabric_setup_dataloaders(fab, NULL), TH_ERR_VALUE);
    assert_raised(TH_ERR_VALUE, "no loader was given");
    assert_int_equal(fabric_setup_dataloaders(fab, a, a), TH_ERR_VALUE);
    assert_raised(TH_ERR_VALUE, "are the same");
    th_sampler *before = th_dataloader_sampler(b);
    assert_int_equal(fabric_setup_dataloaders(fab, a, b), TH_OK);
    assert_ptr_equal(th_dataloader_sampler(b), before); /* one device: the sampler stays */
    assert_int_equal(fabric_setup_dataloaders(fab, b), TH_ERR_VALUE);
    assert_raised(TH_ERR_VALUE, "has been set up already");
    th_dataloader_free(a), th_dataloader_free(b);
    assert_int_equal(fabric_finish(fab), 0);
}

/* ---- memory */

static th_status no_metrics(fabric_logger *logger, const th_value *metrics, th_opt_int step)
{
    (void)logger, (void)metrics, (void)step;
    return TH_OK;
}

static void use_everything(fabric *fab, th_module *model, th_optimizer *optimizer, th_dataloader *loader)
{
    fabric_launch(fab);
    fabric_setup(fab, model, optimizer);
    fabric_setup_dataloaders(fab, loader);
    th_batch batch;
    while (th_dataloader_next(loader, &batch)) {
        TH_SCOPE();
        th_tensor *loss = th_sum(th_forward(model, batch.data[0]));
        fabric_backward(fab, loss);
        fabric_clip_gradients(fab, model, optimizer, .max_norm = 1.0);
        th_optimizer_step(optimizer);
        fabric_log(fab, "loss", th_state(loss));
    }
    th_value_free(fabric_all_gather_value(fab, TH_STATE({"x", th_state(1.0)})));
}

/* Whichever allocation fails, the error is that, it stays, the end still releases everything and nothing leaks. */
static void memory_runs_out(void **state)
{
    (void)state;
    static const fabric_hook none[] = {{NULL, NULL}};
    static const fabric_logger_ops log_ops = {.size = sizeof log_ops, .class_name = "Log", .log_metrics = no_metrics};
    struct watch watch = {0};
    size_t before = th__objects_live(NULL);
    long n = 1;
    for (bool failed = true; failed; n++) {
        th_module *model = th_nn_linear(2, 2);
        th_optimizer *optimizer = th_optim_sgd(th_parameters(model), .lr = 0.1);
        th_dataloader *loader = th_dataloader_new(th_dataset_tensor(TH_TENSORS(th_ones(TH_INTS(4, 2)))), 2);
        assert_ok();
        th__fail_allocation(n);
        fabric *fab = fabric_new(.accelerator = "cpu", .callbacks = FABRIC_CALLBACKS({"c", none, NULL, NULL}),
                                 .loggers = FABRIC_LOGGERS(fabric_logger_new(&log_ops, NULL)),
                                 .plugins = FABRIC_PLUGINS(fabric_plugin(fabric_precision_new(&watch_ops, &watch))));
        if (fab != NULL) use_everything(fab, model, optimizer, loader);
        th__fail_allocation(0);
        failed = th_error() != TH_OK;
        if (failed) assert_int_equal(th_error(), TH_ERR_MEMORY);
        assert_int_equal(fabric_finish(fab), failed ? 1 : 0);
        assert_false(fabric_is_wrapped(model));
        th_dataloader_free(loader);
        th_optimizer_free(optimizer);
        th_module_free(model);
        th_error_clear();
        assert_int_equal(th__objects_live(NULL), before);
    }
    assert_true(n > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FABRIC_CASE(defaults),
        FABRIC_CASE(the_end),
        FABRIC_CASE(pending_error_survives_the_end),
        FABRIC_CASE(errors_come_from_new),
        FABRIC_CASE(nothing_is_left),
        FABRIC_CASE(setup_counts),
        FABRIC_CASE(split_setup),
        FABRIC_CASE(stale_optimizer),
        FABRIC_CASE(module_without_parameters),
        FABRIC_CASE(state_dict_has_no_prefix),
        FABRIC_CASE(forward_goes_through_the_precision_once),
        FABRIC_CASE(epochs_are_set_by_themselves),
        FABRIC_CASE(loader_errors),
        FABRIC_CASE(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
