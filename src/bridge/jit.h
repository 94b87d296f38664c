/* bridge/jit.h: TorchScript modules: load, run, save, and the tensors inside. */
#ifndef FABRIC_BRIDGE_JIT_H
#define FABRIC_BRIDGE_JIT_H

#include <cfabric/scope.h>

TH_BEGIN_DECLS

typedef struct th__script th__script;

/* torch.jit.load(path, map_location="cpu"). [owned] */
th__script *th__script_load(const char *path);
void th__script_free(th__script *script);
/* The bytes torch.jit.save would write. [owned] free(); NULL with an error. */
char *th__script_serialize(th__script *script, size_t *size);
/* module(inputs...): a tensor, or a tuple or list of them. [scoped] */
th_tensors th__script_forward(th__script *script, th_tensors inputs);
void th__script_train(th__script *script, bool mode);
bool th__script_is_training(th__script *script);
/* "Net": [owned] free() */
char *th__script_class(th__script *script);
/* Visits parameters (is_buffer false), then buffers, by dotted path, until fn returns non-zero. The tensors are [scoped]. */
int th__script_each(th__script *script, int (*fn)(const char *path, bool is_buffer, th_tensor *tensor, void *user), void *user);

TH_END_DECLS
#endif
