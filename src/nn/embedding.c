/* nn/embedding.c: Embedding. */
#include <cfabric/nn_modules.h>

#include "nn/module_impl.h"
#include <cfabric/ops.h>

typedef struct embedding {
    int64_t padding_idx; /* -1: none */
    th_opt_double max_norm;
    double norm_type;
    bool scale_grad_by_freq, sparse;
} embedding;

static th_tensor *embedding_forward(th_module *self, th_tensor *input)
{
    const embedding *e = self->args.data;
    th_tensor *weight = th__parameter_at(self, 0);
    if (e->max_norm.has) {
        TH_NO_GRAD();
        input = th_contiguous(input);
        th_embedding_renorm_(th_detach(weight), input, e->max_norm.value, e->norm_type);
    }
    return th_embedding(weight, input, e->padding_idx, e->scale_grad_by_freq, e->sparse);
}

static th_status embedding_reset(th_module *self)
{
    const embedding *e = self->args.data;
    th_tensor *weight = th__parameter_at(self, 0);
    th_nn_init_normal_(weight);
    if (e->padding_idx < 0) return th__pending();
    TH_NO_GRAD();
    th_fill_scalar_(th_select_int(weight, 0, e->padding_idx), TH_S((int64_t)0));
    return th__pending();
}

/* The index counted from the front, -1 for none. */
static bool read_padding(const struct th_nn_embedding_args *args, int64_t *index)
{
    *index = -1;
    if (!args->padding_idx.has) return true;
    *index = args->padding_idx.value < 0 ? args->padding_idx.value + args->num_embeddings : args->padding_idx.value;
    if (*index >= 0 && *index < args->num_embeddings) return true;
    th__fail(TH_ERR_VALUE, "th_nn_embedding", "padding_idx %lld, expected a row of %lld embeddings",
             (long long)args->padding_idx.value, (long long)args->num_embeddings);
    return false;
}

static void describe(const struct th_nn_embedding_args *args, int64_t padding_idx, char repr[TH__REPR_MAX])
{
    char number[40];
    th__repr_add(repr, "%lld, %lld", (long long)args->num_embeddings, (long long)args->embedding_dim);
    if (args->padding_idx.has) th__repr_add(repr, ", padding_idx=%lld", (long long)padding_idx);
    if (args->max_norm.has) th__repr_add(repr, ", max_norm=%s", th__repr_double(args->max_norm.value, number));
    if (args->norm_type != 2) th__repr_add(repr, ", norm_type=%s", th__repr_double(args->norm_type, number));
    if (args->scale_grad_by_freq) th__repr_add(repr, ", scale_grad_by_freq=True");
    if (args->sparse) th__repr_add(repr, ", sparse=True");
}

/* Registers the caller's weight instead of a new one. */
static void adopt_weight(th_module *module, const struct th_nn_embedding_args *args)
{
    TH_SCOPE();
    if (th_dim(args->weight) != 2 || th_size(args->weight, 0) != args->num_embeddings ||
        th_size(args->weight, 1) != args->embedding_dim) {
        if (th__pending() == TH_OK)
            th__fail(TH_ERR_VALUE, "th_nn_embedding",
                     "the shape of weight does not match num_embeddings %lld and embedding_dim %lld",
                     (long long)args->num_embeddings, (long long)args->embedding_dim);
        return;
    }
    th_register_parameter(module, "weight", args->weight);
}

th_module *th_nn_embedding_call(struct th_nn_embedding_args args)
{
    TH__CHECK_PENDING_NULL();
    embedding e = {0, args.max_norm, args.norm_type, args.scale_grad_by_freq, args.sparse};
    if (!read_padding(&args, &e.padding_idx)) return NULL;
    char repr[TH__REPR_MAX] = "";
    describe(&args, e.padding_idx, repr);
    th_module *module = TH__BUILTIN(&e, sizeof e, "Embedding", .forward = embedding_forward, .reset_parameters = embedding_reset,
                                    .extra_repr = repr);
    if (module == NULL) return NULL;
    if (args.weight != NULL) {
        adopt_weight(module, &args);
    } else {
        th__parameter_new(module, "weight", TH_INTS(args.num_embeddings, args.embedding_dim),
                          th__factory_resolve(args.device, args.dtype));
        module = th__builtin_finish(module);
    }
    if (args.freeze && module != NULL && th__pending() == TH_OK) th_requires_grad_(th__parameter_at(module, 0), false);
    if (th__pending() == TH_OK) return module;
    th_module_free(module);
    return NULL;
}
