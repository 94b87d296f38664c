// bridge/autograd.cpp: gradients, grad modes, backward, hooks.
#include "bridge/compat.hpp"
#include "bridge/guard.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <cstring>
#include <memory>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

using torch::autograd::variable_list;

namespace {

struct PostAccumulate final : torch::autograd::FunctionPostHook {
    PostAccumulate(at::Tensor leaf, th_post_accumulate_hook hook, void *user, std::shared_ptr<bool> alive)
        : leaf_(std::move(leaf)), hook_(hook), user_(user), alive_(std::move(alive))
    {
    }
    variable_list operator()(const variable_list &outputs, const variable_list &) override
    {
        if (!*alive_) return outputs;
        bridge::CallbackScope scope;
        th_tensor *handle = bridge::scoped(at::Tensor(leaf_), "post_accumulate_hook");
        if (hook_(handle, user_) != TH_OK && th__pending() == TH_OK) th__fail(TH_ERR_CALLBACK, "hook", "a hook said stop");
        bridge::rethrow_pending();
        return outputs;
    }

    at::Tensor leaf_; // no cycle: the leaf holds its accumulator, and with it this hook, only weakly
    th_post_accumulate_hook hook_;
    void *user_;
    std::shared_ptr<bool> alive_;
};

} // namespace

// A registered hook. The accumulator is kept: the tensor itself holds only a weak reference to it.
struct th_hook {
    at::Tensor tensor;
    std::shared_ptr<bool> alive = std::make_shared<bool>(true);
    std::shared_ptr<void> accumulator;
    bool has_index = false;
    unsigned index = 0;
};

extern "C" {

bool th_requires_grad(th_tensor *tensor)
{
    BRIDGE_TRY(false, {
        BRIDGE_CHECK(false, tensor);
        return bridge::unwrap(tensor).requires_grad();
    });
}

th_tensor *th_requires_grad_(th_tensor *tensor, bool requires_grad)
{
    BRIDGE_TRY(nullptr, {
        BRIDGE_CHECK(nullptr, tensor);
        bridge::unwrap(tensor).set_requires_grad(requires_grad);
        return tensor;
    });
}

bool th_is_leaf_of(th_tensor *tensor)
{
    BRIDGE_TRY(false, {
        BRIDGE_CHECK(false, tensor);
        return bridge::unwrap(tensor).is_leaf();
    });
}

th_tensor *th_grad(th_tensor *tensor)
{
    BRIDGE_TRY(nullptr, {
        BRIDGE_CHECK(nullptr, tensor);
        const auto &grad = bridge::unwrap(tensor).grad();
        return grad.defined() ? bridge::scoped(at::Tensor(grad), "grad") : nullptr;
    });
}

bool th_has_grad(th_tensor *tensor)
{
    BRIDGE_TRY(false, {
        BRIDGE_CHECK(false, tensor);
        return bridge::unwrap(tensor).grad().defined();
    });
}

th_status th_set_grad(th_tensor *tensor, th_tensor *grad)
{
    TH__CHECK_PENDING();
    BRIDGE_CHECK(th__pending(), tensor);
    BRIDGE_STATUS({
        auto &slot = bridge::unwrap(tensor).mutable_grad();
        if (grad == nullptr) {
            slot = at::Tensor();
        } else {
            BRIDGE_CHECK(th__pending(), grad);
            const auto &value = bridge::unwrap(grad);
            const auto &owner = bridge::unwrap(tensor);
            TORCH_CHECK(value.sizes() == owner.sizes(), "the gradient has sizes ", value.sizes(), ", the tensor ", owner.sizes());
            TORCH_CHECK(value.scalar_type() == owner.scalar_type(), "the gradient has dtype ", value.scalar_type(),
                        ", the tensor ", owner.scalar_type());
            TORCH_CHECK(value.device() == owner.device(), "the gradient is on ", value.device(), ", the tensor on ", owner.device());
            slot = value;
        }
    });
}

th_status th_set_data(th_tensor *tensor, th_tensor *value)
{
    TH__CHECK_PENDING();
    BRIDGE_CHECK(th__pending(), tensor);
    BRIDGE_CHECK(th__pending(), value);
    BRIDGE_STATUS({ bridge::unwrap(tensor).set_data(bridge::unwrap(value)); });
}

th_tensor *th_data(th_tensor *tensor)
{
    BRIDGE_TRY(nullptr, {
        BRIDGE_CHECK(nullptr, tensor);
        return bridge::scoped(bridge::unwrap(tensor).variable_data(), "data");
    });
}

th_status th__bump_version(th_tensor *tensor)
{
    TH__CHECK_PENDING();
    BRIDGE_CHECK(th__pending(), tensor);
    BRIDGE_STATUS({ torch::autograd::impl::bump_version(bridge::unwrap(tensor)); });
}

char *th__grad_fn_name(th_tensor *tensor)
{
    BRIDGE_TRY(nullptr, {
        BRIDGE_CHECK(nullptr, tensor);
        const auto &node = bridge::unwrap(tensor).grad_fn();
        return node ? strdup(node->name().c_str()) : nullptr;
    });
}

/* ---------------------------------------------------------------- backward */

th_status th_backward_call(struct th_backward_args a)
{
    TH__CHECK_PENDING();
    if (!bridge::check(a.tensor, "th_backward", "tensor")) return th__pending();
    BRIDGE_STATUS({
        variable_list gradients{a.gradient != nullptr ? bridge::unwrap(a.gradient) : at::Tensor()};
        c10::optional<bool> retain = a.retain_graph.has ? c10::optional<bool>(a.retain_graph.value) : c10::nullopt;
        auto inputs = bridge::tensor_vector(a.inputs, "th_backward");
        torch::autograd::backward({bridge::unwrap(a.tensor)}, gradients, retain, a.create_graph, inputs);
    });
}

th_tensors th_autograd_grad_call(struct th_autograd_grad_args a)
{
    BRIDGE_TRY(th_tensors{}, {
        auto outputs = bridge::tensor_vector(a.outputs, "th_autograd_grad");
        auto inputs = bridge::tensor_vector(a.inputs, "th_autograd_grad");
        auto grad_outputs = bridge::tensor_vector(a.grad_outputs, "th_autograd_grad", true);
        if (a.grad_outputs.data == nullptr) grad_outputs.assign(outputs.size(), at::Tensor());
        c10::optional<bool> retain = a.retain_graph.has ? c10::optional<bool>(a.retain_graph.value) : c10::nullopt;
        auto grads = torch::autograd::grad(outputs, inputs, grad_outputs, retain, a.create_graph, a.allow_unused);
        return bridge::scoped_list(std::move(grads), "th_autograd_grad");
    });
}

th_status th_queue_backward_callback(th_status (*callback)(void *user), void *user)
{
    BRIDGE_STATUS({
        torch::autograd::Engine::get_default_engine().queue_callback([callback, user]() {
            bridge::CallbackScope scope;
            if (callback(user) != TH_OK && th__pending() == TH_OK)
                th__fail(TH_ERR_CALLBACK, "backward callback", "a callback said stop");
            bridge::rethrow_pending();
        });
    });
}

/* ---------------------------------------------------------------- grad modes */

bool th_is_grad_enabled(void) { return c10::GradMode::is_enabled(); }

bool th_set_grad_enabled(bool enabled)
{
    bool old = c10::GradMode::is_enabled();
    c10::GradMode::set_enabled(enabled);
    return old;
}

static std::vector<std::unique_ptr<c10::InferenceMode>> &inference_stack()
{
    static thread_local std::vector<std::unique_ptr<c10::InferenceMode>> stack;
    return stack;
}

void th_inference_mode_push(void)
{
    try {
        inference_stack().push_back(std::make_unique<c10::InferenceMode>(true));
    } catch (...) {
        bridge::translate(__func__);
    }
}

void th_inference_mode_pop(void)
{
    if (!inference_stack().empty()) inference_stack().pop_back();
}

/* ---------------------------------------------------------------- hooks */

th_hook *th_register_hook(th_tensor *tensor, th_grad_hook hook, void *user)
{
    BRIDGE_TRY(nullptr, {
        BRIDGE_CHECK(nullptr, tensor);
        auto result = std::make_unique<th_hook>();
        auto alive = result->alive;
        result->tensor = bridge::unwrap(tensor);
        result->index = result->tensor.register_hook([hook, user, alive](const at::Tensor &grad) -> at::Tensor {
            if (!*alive) return at::Tensor();
            bridge::CallbackScope scope;
            th_tensor *given = bridge::scoped(at::Tensor(grad), "gradient hook");
            th_tensor *replaced = hook(given, user);
            bridge::rethrow_pending();
            return replaced != nullptr ? bridge::unwrap(replaced) : at::Tensor();
        });
        result->has_index = true;
        return result.release();
    });
}

th_hook *th_register_post_accumulate_grad_hook(th_tensor *leaf, th_post_accumulate_hook hook, void *user)
{
    BRIDGE_TRY(nullptr, {
        BRIDGE_CHECK(nullptr, leaf);
        const auto &t = bridge::unwrap(leaf);
        if (!t.requires_grad() || !t.is_leaf()) {
            TH__FAIL(TH_ERR_RUNTIME, "post accumulate grad hooks need a leaf that requires grad");
            return nullptr;
        }
        auto result = std::make_unique<th_hook>();
        result->tensor = t;
        auto accumulator = torch::autograd::impl::grad_accumulator(t); // shared_ptr or intrusive_ptr, by version
        accumulator->add_post_hook(std::make_unique<PostAccumulate>(t, hook, user, result->alive));
        result->accumulator = std::make_shared<decltype(accumulator)>(accumulator);
        return result.release();
    });
}

void th_hook_remove(th_hook *hook)
{
    if (hook == nullptr) return;
    *hook->alive = false;
    try {
        if (hook->has_index) hook->tensor.remove_hook(hook->index);
    } catch (...) { /* the graph that held the hook is gone already */
    }
    delete hook;
}

} // extern "C"
