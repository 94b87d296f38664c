// bridge/c10d.cpp: the communication backends and their works behind c10d.h. The stores are in c10d_store.cpp.
//
// The method names are those of 1.13; newer versions keep them. Version differences: the base class of a backend (Group
// below).
#include "bridge/c10d.hpp"

#ifdef USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif
#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif
#ifdef USE_C10D_MPI
#include <torch/csrc/distributed/c10d/ProcessGroupMPI.hpp>
#endif

#include <string>
#include <vector>

#if BRIDGE_TORCH_AT_LEAST(2, 0)
#include <torch/csrc/distributed/c10d/Backend.hpp>
using Group = c10d::Backend;
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
using Group = c10d::ProcessGroup;
#endif

struct th__comm {
    c10::intrusive_ptr<Group> group;
};

struct th__work {
    c10::intrusive_ptr<c10d::Work> work;
    std::vector<at::Tensor> tensors; // what the operation reads and writes, alive until the work is freed
};

using bridge::guarded;
using bridge::milliseconds;
using bridge::report;
using bridge::with_deadline;

namespace
{

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
