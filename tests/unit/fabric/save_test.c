/* fabric_save, fabric_load, fabric_load_raw on one device: semantics 8.10, 21 items 64-67. */
#include "checkpoint_support.h"
#include "fabric_support.h"

static char *folder_of(void **state) { return *state; }

static th_module *model_new(double value)
{
    th_module *model = th_nn_linear(2, 2);
    TH_NO_GRAD();
    th_fill_scalar_(th_module_parameter(model, "weight"), TH_S(value));
    return model;
}

static double first_weight(th_module *model)
{
    return th_item(th_select_int(th_view(th_module_parameter(model, "weight"), TH_INTS(-1)), 0, 0));
}

static void round_trip(void **state)
{
    char *path = scratch(folder_of(state), "deep/er/a.pt");
    fabric *fab = fabric_plain();
    th_module *model = model_new(1.0), *other = model_new(2.0);
    th_optimizer *optimizer = th_optim_sgd(th_parameters(model), .lr = 0.25, .momentum = 0.9);
    th_optimizer *fresh = th_optim_sgd(th_parameters(other), .lr = 0.5, .momentum = 0.9);
    fabric_setup(fab, model, optimizer), fabric_setup(fab, other, fresh);
    fabric_backward(fab, th_sum(th_forward(model, th_ones(TH_INTS(1, 2)))));
    th_optimizer_step(optimizer);
    double trained = first_weight(model);
    assert_int_equal(fabric_save(fab, path, TH_STATE({"model", th_state(model)}, {"optimizer", th_state(optimizer)},
                                                     {"epoch", th_state(3)}, {"note", th_state("hello")})), TH_OK);

    th_value *want = TH_STATE({"model", th_state(other)}, {"optimizer", th_state(fresh)}, {"epoch", th_state(0)});
    th_value *rest = fabric_load(fab, path, want);
    assert_ok();
    assert_true(first_weight(other) == trained);
    assert_true(th_optimizer_lr(fresh) == 0.25);
    assert_int_equal(th_value_as_int(th_value_get(want, "epoch"), -1), 3);
    assert_int_equal(th_value_size(rest), 1); /* what nobody asked for */
    assert_string_equal(th_value_as_string(th_value_get(rest, "note"), ""), "hello");
    th_value_free(rest), th_value_free(want);

    th_value *all = fabric_load(fab, path, NULL);
    assert_int_equal(th_value_size(all), 4);
    th_value_free(all);

    want = TH_STATE({"model", th_state(other)}, {"missing", th_state(5)});
    assert_null(fabric_load(fab, path, want));
    assert_raised(TH_ERR_KEY, "missing");
    rest = fabric_load(fab, path, want, .strict = false);
    assert_non_null(rest);
    assert_int_equal(th_value_as_int(th_value_get(want, "missing"), 0), 5); /* keeps its value */
    th_value_free(rest), th_value_free(want);

    th_optimizer_free(optimizer), th_optimizer_free(fresh);
    th_module_free(model), th_module_free(other);
    assert_int_equal(fabric_finish(fab), 0);
}

static void raw(void **state)
{
    char *path = scratch(folder_of(state), "raw.pt");
    fabric *fab = fabric_plain();
    th_module *model = model_new(1.5), *other = model_new(0.0);
    assert_int_equal(fabric_save(fab, path, th_module_state_dict(model)), TH_OK);
    assert_int_equal(fabric_load_raw(fab, path, th_state(other)), TH_OK);
    assert_true(first_weight(other) == 1.5);
    assert_int_not_equal(fabric_load_raw(fab, scratch(folder_of(state), "none.pt"), th_state(other)), TH_OK);
    assert_raised(TH_ERR_NOT_FOUND, "none.pt");
    th_value *single = th_state(other);
    assert_null(fabric_load(fab, path, single)); /* not silently the whole checkpoint */
    assert_raised(TH_ERR_TYPE, "fabric_load_raw");
    th_value_free(single);
    th_module_free(model), th_module_free(other);
    assert_int_equal(fabric_finish(fab), 0);
}

static bool keep_weight(const char *name, th_value *value, void *user)
{
    (void)value, (void)user;
    return strcmp(name, "weight") == 0;
}

static void filters(void **state)
{
    char *path = scratch(folder_of(state), "filtered.pt");
    fabric *fab = fabric_plain();
    th_module *model = model_new(1.0);
    const fabric_filter_entry weight[] = {{"model", keep_weight, NULL}}, wrong[] = {{"mode", keep_weight, NULL}};
    assert_int_equal(fabric_save(fab, path, TH_STATE({"model", th_state(model)}, {"epoch", th_state(1)}), .filter = {weight, 1}), TH_OK);
    th_value *all = fabric_load(fab, path, NULL);
    assert_int_equal(th_value_size(th_value_get(all, "model")), 1);
    assert_string_equal(th_value_key_at(th_value_get(all, "model"), 0, NULL), "weight");
    th_value_free(all);
    assert_int_not_equal(fabric_save(fab, path, TH_STATE({"model", th_state(model)}), .filter = {wrong, 1}), TH_OK);
    assert_raised(TH_ERR_VALUE, "mode");
    assert_int_not_equal(fabric_save(fab, path, th_value_int(3)), TH_OK);
    assert_raised(TH_ERR_TYPE, "expected a dict");
    assert_int_not_equal(fabric_save(fab, "", th_value_dict()), TH_OK);
    assert_raised(TH_ERR_VALUE, "the path is empty");
    th_module_free(model);
    assert_int_equal(fabric_finish(fab), 0);
}

static void in_the_background(void **state)
{
    char *path = scratch(folder_of(state), "async.pt");
    fabric *fab = fabric_plain();
    assert_int_equal(fabric_save(fab, path, TH_STATE({"x", th_state(th_ones(TH_INTS(100)))}), .async = true), TH_OK);
    assert_int_equal(fabric_save_wait(fab), TH_OK);
    assert_true(exists(path));
    assert_int_equal(fabric_save(fab, scratch(folder_of(state), "second.pt"), TH_STATE({"x", th_state(1)}), .async = true), TH_OK);
    assert_int_equal(fabric_finish(fab), 0); /* waits */
    assert_true(exists(scratch(folder_of(state), "second.pt")));
}

/* ---- a checkpoint IO of the user's own */

struct io { int saves, loads; th_value *kept; };

static th_status io_save(fabric_checkpoint_io *io, const char *path, const th_value *checkpoint)
{
    (void)path;
    struct io *self = fabric_checkpoint_io_self(io);
    self->saves++;
    self->kept = th_value_copy(checkpoint, true);
    return TH_OK;
}

static th_value *io_load(fabric_checkpoint_io *io, const char *path)
{
    (void)path;
    struct io *self = fabric_checkpoint_io_self(io);
    self->loads++;
    return th_value_retain(self->kept);
}

static const fabric_checkpoint_io_ops io_ops = {.size = sizeof io_ops, .name = "kept", .save = io_save, .load = io_load};

static void own_checkpoint_io(void **state)
{
    (void)state;
    struct io io = {0};
    fabric *fab = fabric_new(.accelerator = "cpu", .plugins = FABRIC_PLUGINS(fabric_plugin(fabric_checkpoint_io_new(&io_ops, &io))));
    assert_int_equal(fabric_save(fab, "nowhere", TH_STATE({"epoch", th_state(4)})), TH_OK);
    th_value *all = fabric_load(fab, "nowhere", NULL);
    assert_int_equal(th_value_as_int(th_value_get(all, "epoch"), 0), 4);
    assert_int_equal(io.saves, 1);
    assert_int_equal(io.loads, 1);
    th_value_free(all);
    th_value_free(io.kept);
    assert_int_equal(fabric_finish(fab), 0);
}

static int begin(void **state)
{
    void *unused;
    return fabric_begin(&unused) + enter_scratch(state);
}

static int end(void **state)
{
    return leave_scratch(state) + fabric_end(state);
}

#define BOTH(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {BOTH(round_trip), BOTH(raw), BOTH(filters), BOTH(in_the_background), BOTH(own_checkpoint_io)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
