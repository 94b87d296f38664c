// bridge/c10d.hpp: what the two files behind c10d.h share: exceptions as th__comm_error, calls with a deadline.
#pragma once

#include "bridge/c10d.h"
#include "bridge/compat.hpp"
#include "bridge/guard.hpp"

#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace c10d
{
class TCPStore;
}

struct th__store {
    c10::intrusive_ptr<c10d::Store> store;
    c10d::TCPStore *tcp = nullptr;
};

namespace bridge
{

using std::chrono::milliseconds;

inline void report(th__comm_error *error, th_status status, const char *text) noexcept
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

inline th_status classify(const char *text) noexcept
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

} // namespace bridge
