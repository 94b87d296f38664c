// bridge/c10d.cpp: c10d::Store, the communication backends and their works behind c10d.h.
//
// The method names are those of 1.13; newer versions keep them. Version differences: the base class of a backend (Group
// below) and the options of TCPStore.
#include "bridge/c10d.h"
#include "bridge/compat.hpp"
#include "bridge/guard.hpp"

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#ifdef USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif
#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif
#ifdef USE_C10D_MPI
#include <torch/csrc/distributed/c10d/ProcessGroupMPI.hpp>
#endif

#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#if BRIDGE_TORCH_AT_LEAST(2, 0)
#include <torch/csrc/distributed/c10d/Backend.hpp>
using Group = c10d::Backend;
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
using Group = c10d::ProcessGroup;
#endif

struct th__store {
    c10::intrusive_ptr<c10d::Store> store;
    c10d::TCPStore *tcp = nullptr;
};

struct th__comm {
    c10::intrusive_ptr<Group> group;
};

struct th__work {
    c10::intrusive_ptr<c10d::Work> work;
    std::vector<at::Tensor> tensors; // what the operation reads and writes, alive until the work is freed
};

namespace
{

using std::chrono::milliseconds;

void report(th__comm_error *error, th_status status, const char *text) noexcept
{
    error->status = status;
    size_t n = 0;
    for (; text[n] && n + 1 < sizeof error->text; n++) {
        // The C++ backtrace, and the stack that TCPStore adds after a blank, are of no use to the caller.
        if (text[n] == '\n' || std::strncmp(text + n, "Exception raised from", 21) == 0) {
            break;
        }
        error->text[n] = text[n];
    }
    error->text[n] = '\0';
}

th_status classify(const char *text) noexcept
{
    for (const char *word : {"imed out", "imeout", "IMEOUT"}) {
        if (std::strstr(text, word)) {
            return TH_ERR_TIMEOUT;
        }
    }
    return TH_ERR_DISTRIBUTED;
}

// Runs `f` and returns its result; an exception becomes *error and the default value of the result.
template <class F>
auto guarded(th__comm_error *error, F &&f) noexcept -> decltype(f())
{
    error->status = TH_OK;
    error->text[0] = '\0';
    try {
        return f();
    } catch (const c10::Error &e) {
        report(error, classify(e.what_without_backtrace()), e.what_without_backtrace());
    } catch (const std::exception &e) {
        report(error, classify(e.what()), e.what());
    } catch (...) {
        report(error, TH_ERR_DISTRIBUTED, "an exception of unknown type");
    }
    return decltype(f())();
}

template <class F>
th__work *started(th__comm_error *error, std::vector<at::Tensor> tensors, F &&f) noexcept
{
    return guarded(error, [&]() -> th__work * {
        auto work = f();
        return new th__work{std::move(work), std::move(tensors)};
    });
}

std::vector<at::Tensor> list(th_tensors tensors)
{
    std::vector<at::Tensor> result;
    result.reserve(tensors.size);
    for (size_t i = 0; i < tensors.size; i++) {
        result.push_back(bridge::unwrap(tensors.data[i]));
    }
    return result;
}

c10d::ReduceOp reduce_op(th__comm_op op) { return c10d::ReduceOp(static_cast<c10d::ReduceOp::RedOpType>(op)); }

// Runs `f` on a thread of its own and waits for it up to a deadline; past it, throws and leaves the thread to itself.
// For calls that have no timeout of their own or one that cannot be chosen freely.
template <class T>
T with_deadline(int64_t deadline_ms, std::function<T()> f)
{
    auto task = std::make_shared<std::packaged_task<T()>>(std::move(f));
    auto result = task->get_future();
    std::thread([task] { (*task)(); }).detach();
    if (result.wait_for(milliseconds(deadline_ms)) != std::future_status::ready) {
        throw std::runtime_error("timed out");
    }
    return result.get();
}

// c10d prints C++ stacks as warnings when a peer has gone. We say what happened ourselves; TORCH_CPP_LOG_LEVEL brings them back.
void quiet_log()
{
    if (!std::getenv("TORCH_CPP_LOG_LEVEL")) {
        FLAGS_caffe2_log_level = 2;
    }
}

th__store *new_store(c10::intrusive_ptr<c10d::Store> store, c10d::TCPStore *tcp = nullptr)
{
    return new th__store{std::move(store), tcp};
}

#if defined(USE_C10D_GLOO)
std::vector<std::string> split(const char *text)
{
    std::vector<std::string> parts;
    const std::string all = text;
    for (size_t at = 0; at <= all.size();) {
        size_t end = std::min(all.find(',', at), all.size());
        if (end > at) {
            parts.push_back(all.substr(at, end - at));
        }
        at = end + 1;
    }
    return parts;
}
#endif

} // namespace

extern "C" bool th__comm_has_backend(const char *backend)
{
#ifdef USE_C10D_GLOO
    if (std::strcmp(backend, "gloo") == 0) {
        return true;
    }
#endif
#ifdef USE_C10D_NCCL
    if (std::strcmp(backend, "nccl") == 0) {
        return true;
    }
#endif
#ifdef USE_C10D_MPI
    if (std::strcmp(backend, "mpi") == 0) {
        return true;
    }
#endif
    return false;
}

// ---------------------------------------------------------------- stores

extern "C" th__store *th__store_tcp(const char *host, int port, bool server, bool multi_tenant, int64_t timeout_ms,
                                    th__comm_error *error)
{
    return guarded(error, [&]() -> th__store * {
        quiet_log();
        c10d::TCPStoreOptions options;
        options.port = static_cast<uint16_t>(port);
        options.isServer = server;
        options.waitWorkers = false; // src/dist counts arrivals itself, so that it can name who is missing
        options.timeout = milliseconds(timeout_ms);
        options.multiTenant = multi_tenant;
#if BRIDGE_TORCH_AT_LEAST(2, 0)
        options.useLibUV =
            false; // distributions build without libuv, and the plain server speaks with both kinds of client
#endif
        auto store = c10::make_intrusive<c10d::TCPStore>(host, options);
        auto *tcp = store.get();
        return new_store(std::move(store), tcp);
    });
}

extern "C" th__store *th__store_file(const char *path, int world_size, int64_t timeout_ms, th__comm_error *error)
{
    return guarded(error, [&]() -> th__store * {
        auto store = c10::make_intrusive<c10d::FileStore>(path, world_size);
        store->setTimeout(milliseconds(timeout_ms));
        return new_store(std::move(store));
    });
}

extern "C" th__store *th__store_hash(int64_t timeout_ms, th__comm_error *error)
{
    return guarded(error, [&]() -> th__store * {
        auto store = c10::make_intrusive<c10d::HashStore>();
        store->setTimeout(milliseconds(timeout_ms));
        return new_store(std::move(store));
    });
}

extern "C" th__store *th__store_prefix(th__store *store, const char *prefix, th__comm_error *error)
{
    return guarded(error, [&]() -> th__store * {
        return new_store(c10::make_intrusive<c10d::PrefixStore>(prefix, store->store));
    });
}

extern "C" void th__store_free(th__store *store)
{
    th__comm_error ignored;
    guarded(&ignored, [&] { return delete store, true; });
}

extern "C" int th__store_port(th__store *store) { return store->tcp ? store->tcp->getPort() : 0; }

extern "C" bool th__store_set_timeout(th__store *store, int64_t timeout_ms, th__comm_error *error)
{
    return guarded(error, [&] { return store->store->setTimeout(milliseconds(timeout_ms)), true; });
}

extern "C" bool th__store_set(th__store *store, const char *key, const void *data, size_t size, th__comm_error *error)
{
    return guarded(error, [&] {
        auto *bytes = static_cast<const uint8_t *>(data);
        store->store->set(key, std::vector<uint8_t>(bytes, bytes + size));
        return true;
    });
}

extern "C" bool th__store_get(th__store *store, const char *key, void **data, size_t *size, th__comm_error *error)
{
    return guarded(error, [&] {
        std::vector<uint8_t> value = store->store->get(key);
        char *copy = static_cast<char *>(std::malloc(value.size() + 1));
        if (!copy) {
            throw std::bad_alloc();
        }
        std::memcpy(copy, value.data(), value.size());
        copy[value.size()] = '\0';
        *data = copy;
        *size = value.size();
        return true;
    });
}

extern "C" bool th__store_check(th__store *store, const char *key, th__comm_error *error)
{
    return guarded(error, [&] { return store->store->check({key}); });
}

extern "C" bool th__store_add(th__store *store, const char *key, int64_t delta, int64_t *result, th__comm_error *error)
{
    return guarded(error, [&] { return *result = store->store->add(key, delta), true; });
}

extern "C" bool th__store_wait(th__store *store, const char *key, int64_t timeout_ms, th__comm_error *error)
{
    return guarded(error, [&] { return store->store->wait({key}, milliseconds(timeout_ms)), true; });
}

extern "C" bool th__store_peek(th__store *store, const char *const *keys, size_t n, char *values, size_t value_size,
                               int64_t deadline_ms, th__comm_error *error)
{
    return guarded(error, [&] {
        std::vector<std::string> names(keys, keys + n);
        auto inner = store->store;
        auto found = with_deadline<std::vector<std::string>>(deadline_ms, [names, inner] {
            std::vector<std::string> texts;
            for (const auto &name : names) {
                if (inner->check({name})) {
                    auto value = inner->get(name);
                    texts.emplace_back(value.begin(), value.end());
                } else {
                    texts.emplace_back();
                }
            }
            return texts;
        });
        for (size_t i = 0; i < n; i++) {
            std::snprintf(values + i * value_size, value_size, "%s", found[i].c_str());
        }
        return true;
    });
}

// ---------------------------------------------------------------- communicators

extern "C" th__comm *th__comm_gloo(th__store *store, int rank, int size, int64_t timeout_ms, const char *interfaces,
                                   const char *host, int64_t deadline_ms, th__comm_error *error)
{
#ifdef USE_C10D_GLOO
    return guarded(error, [&]() -> th__comm * {
        using Gloo = c10d::ProcessGroupGloo;
        auto options = Gloo::Options::create(milliseconds(timeout_ms));
        if (interfaces) {
            for (const auto &name : split(interfaces)) {
                options->devices.push_back(Gloo::createDeviceForInterface(name));
            }
        } else if (host) {
            options->devices.push_back(Gloo::createDeviceForHostname(host));
        } else {
            options->devices.push_back(Gloo::createDefaultDevice());
        }
        options->threads = static_cast<int>(options->devices.size()) * 2;
        auto inner = store->store;
        auto group = with_deadline<c10::intrusive_ptr<Group>>(deadline_ms, [=] {
            return c10::intrusive_ptr<Group>(c10::make_intrusive<Gloo>(inner, rank, size, options));
        });
        return new th__comm{std::move(group)};
    });
#else
    report(error, TH_ERR_UNAVAILABLE, "cfabric was built without Gloo");
    return nullptr;
#endif
}

extern "C" th__comm *th__comm_nccl(th__store *store, int rank, int size, int64_t timeout_ms, th__comm_error *error)
{
#ifdef USE_C10D_NCCL
    return guarded(error, [&]() -> th__comm * {
        auto options = c10d::ProcessGroupNCCL::Options::create();
        options->timeout = milliseconds(timeout_ms);
        return new th__comm{c10::make_intrusive<c10d::ProcessGroupNCCL>(store->store, rank, size, options)};
    });
#else
    report(error, TH_ERR_UNAVAILABLE, "cfabric was built without NCCL: libtorch with CUDA and nccl.h were not found");
    return nullptr;
#endif
}

extern "C" th__comm *th__comm_mpi(const int *ranks, size_t n_ranks, int *rank, int *size, th__comm_error *error)
{
#ifdef USE_C10D_MPI
    return guarded(error, [&]() -> th__comm * {
        std::vector<int> members;
        if (ranks) {
            members.assign(ranks, ranks + n_ranks);
        }
        auto group = c10d::ProcessGroupMPI::createProcessGroupMPI(members);
        if (!group) {
            *rank = -1;
            return nullptr;
        }
        *rank = group->getRank();
        *size = group->getSize();
        return new th__comm{group};
    });
#else
    report(error, TH_ERR_UNAVAILABLE,
           "cfabric was built without MPI: this libtorch has no ProcessGroupMPI or mpi.h was not found");
    return nullptr;
#endif
}

extern "C" void th__comm_free(th__comm *comm)
{
    th__comm_error ignored;
    guarded(&ignored, [&] { return delete comm, true; });
}

extern "C" void th__comm_abandon(th__comm *comm)
{
    // The destructor of a Gloo group joins worker threads that may be waiting for a peer which will never answer: keep
    // the object.
    (void)comm;
}

// ---------------------------------------------------------------- operations

extern "C" th__work *th__comm_all_reduce(th__comm *comm, th_tensor *tensor, th__comm_op op, th__comm_error *error)
{
    std::vector<at::Tensor> tensors{bridge::unwrap(tensor)};
    return started(error, tensors, [&] {
        c10d::AllreduceOptions options;
        options.reduceOp = reduce_op(op);
        return comm->group->allreduce(tensors, options);
    });
}

extern "C" th__work *th__comm_broadcast(th__comm *comm, th_tensor *tensor, int root, th__comm_error *error)
{
    std::vector<at::Tensor> tensors{bridge::unwrap(tensor)};
    return started(error, tensors, [&] {
        c10d::BroadcastOptions options;
        options.rootRank = root;
        return comm->group->broadcast(tensors, options);
    });
}

extern "C" th__work *th__comm_reduce(th__comm *comm, th_tensor *tensor, th__comm_op op, int root, th__comm_error *error)
{
    std::vector<at::Tensor> tensors{bridge::unwrap(tensor)};
    return started(error, tensors, [&] {
        c10d::ReduceOptions options;
        options.reduceOp = reduce_op(op);
        options.rootRank = root;
        return comm->group->reduce(tensors, options);
    });
}

extern "C" th__work *th__comm_all_gather(th__comm *comm, th_tensors outputs, th_tensor *input, th__comm_error *error)
{
    std::vector<at::Tensor> inputs{bridge::unwrap(input)};
    std::vector<std::vector<at::Tensor>> results{list(outputs)};
    return started(error, inputs, [&] { return comm->group->allgather(results, inputs); });
}

extern "C" th__work *th__comm_gather(th__comm *comm, th_tensors outputs, th_tensor *input, int root,
                                     th__comm_error *error)
{
    std::vector<at::Tensor> inputs{bridge::unwrap(input)};
    std::vector<std::vector<at::Tensor>> results;
    if (outputs.size) {
        results.push_back(list(outputs));
    }
    return started(error, inputs, [&] {
        c10d::GatherOptions options;
        options.rootRank = root;
        return comm->group->gather(results, inputs, options);
    });
}

extern "C" th__work *th__comm_scatter(th__comm *comm, th_tensor *output, th_tensors inputs, int root,
                                      th__comm_error *error)
{
    std::vector<at::Tensor> outputs{bridge::unwrap(output)};
    std::vector<std::vector<at::Tensor>> parts;
    if (inputs.size) {
        parts.push_back(list(inputs));
    }
    return started(error, outputs, [&] {
        c10d::ScatterOptions options;
        options.rootRank = root;
        return comm->group->scatter(outputs, parts, options);
    });
}

extern "C" th__work *th__comm_reduce_scatter(th__comm *comm, th_tensor *output, th_tensor *input, th__comm_op op,
                                             th__comm_error *error)
{
    at::Tensor out = bridge::unwrap(output), in = bridge::unwrap(input);
    return started(error, {out, in}, [&] {
        c10d::ReduceScatterOptions options;
        options.reduceOp = reduce_op(op);
        return comm->group->_reduce_scatter_base(out, in, options);
    });
}

extern "C" th__work *th__comm_all_to_all(th__comm *comm, th_tensor *output, th_tensor *input, th_ints output_splits,
                                         th_ints input_splits, th__comm_error *error)
{
    at::Tensor out = bridge::unwrap(output), in = bridge::unwrap(input);
    return started(error, {out, in}, [&] {
        std::vector<int64_t> out_splits(output_splits.data, output_splits.data + output_splits.size);
        std::vector<int64_t> in_splits(input_splits.data, input_splits.data + input_splits.size);
        return comm->group->alltoall_base(out, in, out_splits, in_splits);
    });
}

extern "C" th__work *th__comm_send(th__comm *comm, th_tensor *tensor, int to, int tag, th__comm_error *error)
{
    std::vector<at::Tensor> tensors{bridge::unwrap(tensor)};
    return started(error, tensors, [&] { return comm->group->send(tensors, to, tag); });
}

extern "C" th__work *th__comm_recv(th__comm *comm, th_tensor *tensor, int from, int tag, th__comm_error *error)
{
    std::vector<at::Tensor> tensors{bridge::unwrap(tensor)};
    return started(error, tensors, [&] {
        return from < 0 ? comm->group->recvAnysource(tensors, tag) : comm->group->recv(tensors, from, tag);
    });
}

extern "C" bool th__work_wait(th__work *work, int64_t timeout_ms, th__comm_error *error)
{
    return guarded(error, [&] { return work->work->wait(milliseconds(timeout_ms)), true; });
}

extern "C" bool th__work_is_completed(th__work *work)
{
    th__comm_error ignored;
    return guarded(&ignored, [&] { return work->work->isCompleted(); });
}

extern "C" int th__work_source(th__work *work)
{
    th__comm_error ignored;
    return guarded(&ignored, [&] { return work->work->sourceRank(); });
}

extern "C" void th__work_free(th__work *work)
{
    th__comm_error ignored;
    guarded(&ignored, [&] { return delete work, true; });
}
