// bridge/random.cpp: generators. A th_generator is an at::Generator on the heap.
#include "bridge/guard.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <mutex>

namespace {

at::Generator &unwrap(th_generator *g) { return *reinterpret_cast<at::Generator *>(g); }

bool check(th_generator *g, const char *function)
{
    if (TH__LIKELY(g != nullptr)) return true;
    th__fail(TH_ERR_TYPE, function, "generator is NULL");
    return false;
}

} // namespace

extern "C" {

th_status th_manual_seed(uint64_t seed) { BRIDGE_STATUS({ at::manual_seed(seed); }); }

uint64_t th_initial_seed(void)
{
    BRIDGE_TRY(0, { return at::detail::getDefaultCPUGenerator().current_seed(); });
}

th_generator *th_default_generator(void)
{
    BRIDGE_TRY(nullptr, {
        return reinterpret_cast<th_generator *>(const_cast<at::Generator *>(&at::detail::getDefaultCPUGenerator()));
    });
}

th_generator *th_generator_new(th_device device)
{
    BRIDGE_TRY(nullptr, {
        if (device.type != TH_DEVICE_NONE && device.type != TH_DEVICE_CPU) {
            TH__FAIL(TH_ERR_UNAVAILABLE, "generators for devices other than the CPU are not available here");
            return nullptr;
        }
        return reinterpret_cast<th_generator *>(new at::Generator(at::detail::createCPUGenerator()));
    });
}

void th_generator_free(th_generator *generator)
{
    if (generator == nullptr) return;
    if (generator == reinterpret_cast<th_generator *>(const_cast<at::Generator *>(&at::detail::getDefaultCPUGenerator()))) return;
    delete reinterpret_cast<at::Generator *>(generator);
}

th_status th_generator_manual_seed(th_generator *generator, uint64_t seed)
{
    BRIDGE_STATUS({
        if (!check(generator, __func__)) return th__pending();
        std::lock_guard<std::mutex> lock(unwrap(generator).mutex());
        unwrap(generator).set_current_seed(seed);
    });
}

th_tensor *th_generator_get_state(th_generator *generator)
{
    BRIDGE_TRY(nullptr, {
        if (!check(generator, __func__)) return nullptr;
        std::lock_guard<std::mutex> lock(unwrap(generator).mutex());
        return bridge::scoped(unwrap(generator).get_state(), "th_generator_get_state");
    });
}

th_status th_generator_set_state(th_generator *generator, th_tensor *state)
{
    BRIDGE_STATUS({
        if (!check(generator, __func__) || !bridge::check(state, __func__, "state")) return th__pending();
        std::lock_guard<std::mutex> lock(unwrap(generator).mutex());
        unwrap(generator).set_state(bridge::unwrap(state).contiguous());
    });
}

uint64_t th_generator_random64(th_generator *generator)
{
    BRIDGE_TRY(0, {
        if (!check(generator, __func__)) return 0;
        auto *cpu = at::get_generator_or_default<at::CPUGeneratorImpl>(unwrap(generator), at::detail::getDefaultCPUGenerator());
        std::lock_guard<std::mutex> lock(cpu->mutex_);
        return cpu->random64();
    });
}

th_tensor *th_get_rng_state(void) { return th_generator_get_state(th_default_generator()); }
th_status th_set_rng_state(th_tensor *state) { return th_generator_set_state(th_default_generator(), state); }

} // extern "C"
