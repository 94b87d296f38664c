/* bridge/c10d.h: stores, communicators and works of libtorch's c10d, as C.
 *
 * Nothing here raises an error: what went wrong is written to a th__comm_error, because the callers (src/dist) first find out which
 * ranks are late and then say it in one line. Every function is safe to call with an error pending. */
#ifndef FABRIC_BRIDGE_C10D_H
#define FABRIC_BRIDGE_C10D_H

#include <cfabric/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct th__comm_error {
    th_status status;   /* TH_OK, TH_ERR_TIMEOUT, TH_ERR_DISTRIBUTED or TH_ERR_UNAVAILABLE */
    char text[512];     /* one line */
} th__comm_error;

typedef struct th__store th__store;   /* c10d::Store */
typedef struct th__comm th__comm;     /* one backend's communicator: c10d::Backend, c10d::ProcessGroup before 2.0 */
typedef struct th__work th__work;     /* c10d::Work */

/* The numbers are c10d's. */
typedef enum th__comm_op {
    TH__COMM_SUM = 0, TH__COMM_AVG = 1, TH__COMM_PRODUCT = 2, TH__COMM_MIN = 3, TH__COMM_MAX = 4, TH__COMM_BAND = 5,
    TH__COMM_BOR = 6, TH__COMM_BXOR = 7
} th__comm_op;

/* True when this build has the backend ("gloo", "nccl", "mpi"). */
bool th__comm_has_backend(const char *backend);

/* ---- stores. All return NULL / false with *error filled. */
th__store *th__store_tcp(const char *host, int port, bool server, bool multi_tenant, int64_t timeout_ms, th__comm_error *error);
th__store *th__store_file(const char *path, int world_size, int64_t timeout_ms, th__comm_error *error);
th__store *th__store_hash(int64_t timeout_ms, th__comm_error *error);
/* A view of `store` in which every key starts with `prefix`; it keeps `store` alive. */
th__store *th__store_prefix(th__store *store, const char *prefix, th__comm_error *error);
void th__store_free(th__store *store);
/* The port a TCP store listens on or connected to; 0 for others. */
int th__store_port(th__store *store);
bool th__store_set_timeout(th__store *store, int64_t timeout_ms, th__comm_error *error);
bool th__store_set(th__store *store, const char *key, const void *data, size_t size, th__comm_error *error);
/* Waits for the key up to the store's timeout. *data is malloc'ed and has a terminating zero. */
bool th__store_get(th__store *store, const char *key, void **data, size_t *size, th__comm_error *error);
/* Whether the key is there, without waiting. False with error->status TH_OK: it is not. */
bool th__store_check(th__store *store, const char *key, th__comm_error *error);
bool th__store_add(th__store *store, const char *key, int64_t delta, int64_t *result, th__comm_error *error);
/* Reads the keys that are there into `values` (n texts of value_size bytes; "" for a missing one). Gives up after the deadline even if
 * the store's server hangs. */
bool th__store_peek(th__store *store, const char *const *keys, size_t n, char *values, size_t value_size, int64_t deadline_ms,
                    th__comm_error *error);
bool th__store_wait(th__store *store, const char *key, int64_t timeout_ms, th__comm_error *error);

/* ---- communicators. Every rank of the group must construct it; returns when the connections are up. */
/* `interfaces` is a comma-separated list, `host` an address to bind; both NULL: what the host name resolves to.
 * `timeout_ms` is for the operations, `deadline_ms` for the start. */
th__comm *th__comm_gloo(th__store *store, int rank, int size, int64_t timeout_ms, const char *interfaces, const char *host,
                        int64_t deadline_ms, th__comm_error *error);
th__comm *th__comm_nccl(th__store *store, int rank, int size, int64_t timeout_ms, th__comm_error *error);
/* MPI brings its own rank and size. `ranks` NULL: all. */
th__comm *th__comm_mpi(const int *ranks, size_t n_ranks, int *rank, int *size, th__comm_error *error);
/* Waits for the communicator's threads, so call it only when every rank is done with it. */
void th__comm_free(th__comm *comm);

/* ---- operations. They start and return; tensors must be contiguous and stay unchanged until th__work_wait. NULL on failure. */
th__work *th__comm_all_reduce(th__comm *comm, th_tensor *tensor, th__comm_op op, th__comm_error *error);
th__work *th__comm_broadcast(th__comm *comm, th_tensor *tensor, int root, th__comm_error *error);
th__work *th__comm_reduce(th__comm *comm, th_tensor *tensor, th__comm_op op, int root, th__comm_error *error);
/* outputs: one tensor of the input's sizes per rank. */
th__work *th__comm_all_gather(th__comm *comm, th_tensors outputs, th_tensor *input, th__comm_error *error);
/* outputs: empty except on the root. */
th__work *th__comm_gather(th__comm *comm, th_tensors outputs, th_tensor *input, int root, th__comm_error *error);
/* inputs: empty except on the root. */
th__work *th__comm_scatter(th__comm *comm, th_tensor *output, th_tensors inputs, int root, th__comm_error *error);
/* output: dimension 0 is 1/size of the input's. Gloo before 2.8 cannot. */
th__work *th__comm_reduce_scatter(th__comm *comm, th_tensor *output, th_tensor *input, th__comm_op op, th__comm_error *error);
/* Splits along dimension 0; empty lists: equal parts. */
th__work *th__comm_all_to_all(th__comm *comm, th_tensor *output, th_tensor *input, th_ints output_splits, th_ints input_splits,
                              th__comm_error *error);
th__work *th__comm_send(th__comm *comm, th_tensor *tensor, int to, int tag, th__comm_error *error);
/* from -1: any rank. */
th__work *th__comm_recv(th__comm *comm, th_tensor *tensor, int from, int tag, th__comm_error *error);

/* Waits up to `timeout_ms`. False: the operation failed, or, while th__work_is_completed says no, it goes on and may be waited for
 * again. Sends and receives must be waited for only once, with the full timeout: theirs closes the connection. */
bool th__work_wait(th__work *work, int64_t timeout_ms, th__comm_error *error);
bool th__work_is_completed(th__work *work);
/* Rank a recv from any rank came from; only after the wait. */
int th__work_source(th__work *work);
/* Also while the operation goes on: c10d keeps what it needs. */
void th__work_free(th__work *work);

#ifdef __cplusplus
}
#endif
#endif
