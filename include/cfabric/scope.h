/* cfabric/scope.h: who owns a tensor.
 *
 * A tensor that a function returns [scoped] belongs to the innermost scope of its thread and ends with it. [owned] means the
 * caller must th_free it. [borrowed] means somebody else keeps it alive. Every loop should have a scope inside it. */
#ifndef CFABRIC_SCOPE_H
#define CFABRIC_SCOPE_H

#include <cfabric/tensor.h>

TH_BEGIN_DECLS

/** Opens a scope on this thread. Returns its depth (the root scope is 0), to be given to th_scope_pop. */
FABRIC_API int th_scope_push(void);

/** Ends the scope of that depth and every scope opened inside it. Works with an error pending. */
FABRIC_API void th_scope_pop(int depth);

/** Internal to TH_SCOPE. */
static inline void th__scope_guard(const int *depth) { th_scope_pop(*depth); }

#define TH__CAT_(a, b) a##b
#define TH__CAT(a, b) TH__CAT_(a, b)
#if defined(__GNUC__)
/** Put at the top of a block: every tensor made in the block ends with it, whether by its end, break, continue or return. */
#define TH_SCOPE() \
    __attribute__((cleanup(th__scope_guard), unused)) const int TH__CAT(th__scope_, __COUNTER__) = th_scope_push()
#endif

/** Takes the tensor out of its scope: the caller owns it and must th_free it. [owned] NULL stays NULL. */
FABRIC_API th_tensor *th_keep(th_tensor *tensor);

/** Ends a tensor: a kept one, or a scoped one early. NULL is allowed. Works with an error pending. */
FABRIC_API void th_free(th_tensor *tensor);

/** Moves a scoped tensor to the parent scope, to return it from a function that opened a scope. [scoped] */
FABRIC_API th_tensor *th_escape(th_tensor *tensor);

/** Stores a tensor in a slot that outlives scopes (h = ... in a loop): keeps the new one and frees what the slot held. Both may
 * be NULL. Returns the tensor. [borrowed] from the slot. */
FABRIC_API th_tensor *th_assign(th_tensor **slot, th_tensor *tensor);

/** Ends a scoped tensor now; does nothing to a tensor that is [owned] or [borrowed]. */
FABRIC_API void th_drop(th_tensor *tensor);

/** A second handle to the same tensor (the same storage and gradient), to keep or to give away. [owned] */
FABRIC_API FABRIC_NODISCARD th_tensor *th_retain(th_tensor *tensor);

/** Copies a list of handles into the innermost scope. [scoped] list, the tensors keep their owners. */
FABRIC_API th_tensors th_list(th_tensors tensors);

/** Moves a list and its scoped tensors to the parent scope. [scoped] */
FABRIC_API th_tensors th_escape_list(th_tensors tensors);

/** How many scoped tensors are alive on this thread. */
FABRIC_API size_t th_scope_live(void);

/** Lists the live scoped tensors of this thread on stderr: scope depth, dtype, sizes, bytes, creator. */
FABRIC_API void th_scope_dump(void);

TH_END_DECLS
#endif
