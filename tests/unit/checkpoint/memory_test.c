/* memory_test.c: every allocation of saving and loading fails once: an error each time, nothing leaks, and files stay whole. */
#include "checkpoint_support.h"

#include "base/memory.h"
#include "base/object.h"
#include "checkpoint/format/consolidate.h"
#include "checkpoint/internal.h"
#include "checkpoint/sharded.h"

typedef th_status (*action)(const char *folder);

static th_value *some_state(void)
{
    TH_SCOPE();
    th_value *v = th_value_dict(), *list = th_value_list();
    th_tensor *t = th_call("aten::ones", TH_A_INTS(TH_INTS(3, 4)));
    th_value_append(list, th_value_tensor(t));
    th_value_append(list, th_value_bytes("\xff", 1));
    th_value_set(v, "t", th_value_tensor(t));
    th_value_set(v, "list", list);
    th_value_set(v, "n", th_value_int(5));
    return v;
}

static th_status save(const char *folder)
{
    th_value *v = some_state();
    if (v != NULL) th_save(v, scratch(folder, "x.pt"));
    th_value_free(v);
    return th_error();
}

static th_status load(const char *folder)
{
    th_value_free(th_load(scratch(folder, "x.pt")));
    return th_error();
}

static th_status background(const char *folder)
{
    th_value *v = some_state();
    if (v != NULL) th__checkpoint_write_async(scratch(folder, "async.pt"), v);
    th_value_free(v);
    if (th_error() == TH_OK) th__checkpoint_wait();
    return th_error();
}

static th_status safetensors(const char *folder)
{
    TH_SCOPE();
    char *path = scratch(folder, "x.safetensors");
    th_value *v = th_value_dict(), *metadata = th_value_dict();
    if (metadata != NULL) th_value_set(v, "t", th_value_tensor(th_call("aten::ones", TH_A_INTS(TH_INTS(3)))));
    if (metadata != NULL) th_value_set(metadata, "a", th_value_string("b"));
    if (th_error() == TH_OK) th_safetensors_save(v, path, metadata);
    th_value_free(v);
    th_value_free(metadata);
    if (th_error() == TH_OK) th_value_free(th_safetensors_load(path));
    return th_error();
}

static th_status sharded(const char *folder)
{
    TH_SCOPE();
    char *path = scratch(folder, "shards");
    th_value *steps = th_value_tuple(), *parts = th_value_list(), *meta = some_state();
    if (th_error() == TH_OK) th_value_append(steps, th_value_string("w"));
    th_tensor *t = th_error() == TH_OK ? th_call("aten::ones", TH_A_INTS(TH_INTS(3, 2))) : NULL;
    int number = th__shards_next(path);
    th__shard *shard = number >= 0 ? th__shard_begin(path, 0, number) : NULL;
    if (shard != NULL) {
        th__shard_add(shard, steps, t, TH_INTS(3, 2), TH_INTS(0, 0));
        if (th_error() == TH_OK)
            th_value_append(parts, th__shard_end(shard));
        else
            th__shard_abort(shard);
    }
    if (th_error() == TH_OK) th__shards_commit(path, parts, meta);
    th_value_free(steps);
    th_value_free(parts);
    th_value_free(meta);
    th__shards *shards = th_error() == TH_OK ? th__shards_open(path) : NULL;
    if (shards != NULL) th__shards_read(shards, "w", TH_INTS(1, 0), TH_INTS(2, 2));
    th__shards_close(shards);
    return th_error();
}

static th_status consolidate(const char *folder)
{
    char *output = scratch(folder, "one.pt");
    unlink(output);
    return th__consolidate(scratch(folder, "shards"), output);
}

static void fail_each(const char *folder, action act, const char *name)
{
    assert_int_equal(act(folder), TH_OK); /* warm: what is kept for the process is there */
    size_t objects = th__objects_live(NULL), tensors = th_scope_live();
    long n = 1, failures = 0;
    for (; n < 1000; n++) {
        th__fail_allocation(n);
        th_status status = act(folder);
        th__fail_allocation(0);
        th_error_clear();
        if (th__objects_live(NULL) != objects || th_scope_live() != tensors)
            fail_msg("%s: allocation %ld left %zu objects and %zu tensors behind", name, n, th__objects_live(NULL) - objects,
                     th_scope_live() - tensors);
        if (status == TH_OK) break; /* fewer allocations than that: all were tried */
        if (status != TH_ERR_MEMORY) fail_msg("%s: allocation %ld: %s", name, n, th_status_name(status));
        failures++;
        assert_int_equal(act(folder), TH_OK); /* the next one works, and cleans up */
    }
    assert_true(failures > 0 && n < 1000);
    assert_int_equal(act(folder), TH_OK);
    print_message("%s: %ld allocations failed one by one\n", name, failures);
}

static void test_every_allocation(void **state)
{
    fail_each(*state, save, "save");
    fail_each(*state, load, "load");
    fail_each(*state, background, "background save");
    fail_each(*state, safetensors, "safetensors");
    fail_each(*state, sharded, "sharded");
    fail_each(*state, consolidate, "consolidate");
}

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(test_every_allocation)};
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
