/* fuzz_pickle.c: the unpickler's machine; what it accepts is written again and must be accepted again. */
#include "fuzz.h"

#include "checkpoint/format/pickle_read.h"
#include "checkpoint/format/repickle.h"
#include "checkpoint/format/tensor_layout.h"

static th_status put_id(th__repickler *r, th__node *node)
{
    (void)node;
    return th__buffer_add(&r->pickler->out, ")Q", 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    size_t used;
    th__arena *arena = th__arena_new();
    th__node *root = th__pickle_read(arena, data, size, &used, "input");
    if (root != NULL) {
        th__tensor_layout layout;
        th__read_tensor_layout(root, &layout, "input");
        th_error_clear();
        th__pickler pickler;
        th__pickle_begin(&pickler);
        th__repickler r = {.pickler = &pickler, .path = "input", .special = put_id};
        if (size < 4096 && th__repickle(&r, root) == TH_OK) {
            th__pickle_end(&pickler);
            th__arena *again = th__arena_new();
            if (th__pickle_read(again, pickler.out.data, pickler.out.size, &used, "again") == NULL) abort();
            th__arena_free(again);
        }
        th__pickle_free(&pickler);
    }
    th__arena_free(arena);
    return 0;
}
