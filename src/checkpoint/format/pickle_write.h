/* checkpoint/format/pickle_write.h: writes pickle protocol 2, in the vocabulary that torch.load(weights_only=True) accepts. */
#ifndef FABRIC_CHECKPOINT_PICKLE_WRITE_H
#define FABRIC_CHECKPOINT_PICKLE_WRITE_H

#include "checkpoint/format/bytes.h"
#include "checkpoint/format/dtype.h"

/* Functions return the pending status, so a sequence needs one check at its end. */
typedef struct th__pickler {
    th__buffer out;
    const char *globals[64]; /* module, name, module, name: memoised in this order */
    size_t n_globals;
} th__pickler;

th_status th__pickle_begin(th__pickler *pickler);
th_status th__pickle_end(th__pickler *pickler);
void th__pickle_free(th__pickler *pickler);

th_status th__pickle_op(th__pickler *pickler, char opcode);
th_status th__pickle_none(th__pickler *pickler);
th_status th__pickle_bool(th__pickler *pickler, bool v);
th_status th__pickle_int(th__pickler *pickler, int64_t v);
th_status th__pickle_double(th__pickler *pickler, double v);
/* UTF-8, or TH_ERR_VALUE. */
th_status th__pickle_text(th__pickler *pickler, const char *text);
th_status th__pickle_text_n(th__pickler *pickler, const char *text, size_t size);
th_status th__pickle_bytes(th__pickler *pickler, const void *data, size_t size);
/* "torch._utils", "_rebuild_tensor_v2"; literals. */
th_status th__pickle_global(th__pickler *pickler, const char *module, const char *name);
/* A tuple of ints, and the same as torch.Size. */
th_status th__pickle_ints(th__pickler *pickler, const int64_t *values, size_t n);
th_status th__pickle_size(th__pickler *pickler, const int64_t *values, size_t n);

/* Containers: open, then items (a dict: key, value, ...), then close. */
th_status th__pickle_open(th__pickler *pickler, char kind /* '[' '(' '{' */);
th_status th__pickle_close(th__pickler *pickler, char kind);

typedef struct th__pickle_tensor_spec {
    const th__dtype_info *dtype;
    const char *key;        /* of the storage: "0" */
    const char *device;     /* "cpu" */
    uint64_t storage_numel; /* in elements */
    int64_t offset;
    const int64_t *sizes, *strides;
    size_t dim;
    bool requires_grad;
} th__pickle_tensor_spec;
th_status th__pickle_tensor(th__pickler *pickler, const th__pickle_tensor_spec *tensor);

#endif
