// bridge/c10d_store.cpp: c10d's stores behind c10d.h.
#include "bridge/c10d.hpp"

#include <c10/util/Logging.h>
#include <cstdlib>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

using bridge::guarded;
using bridge::milliseconds;
using bridge::with_deadline;

namespace
{

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

} // namespace

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
