// bridge/function.cpp: torch.autograd.Function written in C.
#include "bridge/compat.hpp"
#include "bridge/guard.hpp"

#include <memory>
#include <torch/csrc/autograd/custom_function.h>

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Valid only while a callback runs; `needs` is worked out in forward, where the engine's own answer does not exist yet.
struct th_function_ctx {
    AutogradContext *context;
    const std::vector<bool> *needs;
    bool in_forward;
};

namespace {

// What travels with a graph node: the callbacks, the user's pointer, which inputs were given.
struct Call : torch::CustomClassHolder {
    const th_function *function = nullptr;
    void *user = nullptr;
    std::vector<bool> present; // NULL inputs take part as dummies
    std::vector<bool> needs;
    size_t n_outputs = 0;
    ~Call() override
    {
        if (function != nullptr && function->free_user != nullptr) function->free_user(user);
    }
};

th_tensors to_handles(const variable_list &list, const std::vector<bool> *present)
{
    std::vector<at::Tensor> tensors(list.begin(), list.end());
    if (present != nullptr)
        for (size_t i = 0; i < tensors.size(); i++)
            if (!(*present)[i]) tensors[i] = at::Tensor();
    return bridge::scoped_list(std::move(tensors), "autograd function");
}

struct CFunction : torch::autograd::Function<CFunction> {
    static variable_list forward(AutogradContext *ctx, at::TensorList inputs, const c10::intrusive_ptr<Call> &call)
    {
        ctx->saved_data["call"] = c10::IValue::make_capsule(call);
        bridge::CallbackScope scope;
        th_function_ctx c{ctx, &call->needs, true};
        auto given = to_handles(variable_list(inputs.begin(), inputs.end()), &call->present);
        auto results = call->function->forward(&c, given, call->user);
        bridge::rethrow_pending();
        auto outputs = bridge::tensor_vector(results, call->function->name);
        call->n_outputs = outputs.size();
        return outputs;
    }

    static variable_list backward(AutogradContext *ctx, const variable_list &grads)
    {
        auto call = c10::static_intrusive_pointer_cast<Call>(ctx->saved_data["call"].toCapsule());
        bridge::CallbackScope scope;
        th_function_ctx c{ctx, &call->needs, false};
        auto results = call->function->backward(&c, to_handles(grads, nullptr), call->user);
        bridge::rethrow_pending();
        if (results.size > call->present.size()) {
            th__fail(TH_ERR_VALUE, call->function->name, "backward returned %zu gradients for %zu inputs", results.size,
                     call->present.size());
            throw bridge::PendingError();
        }
        auto out = bridge::tensor_vector(results, call->function->name, true);
        out.resize(call->present.size());
        out.emplace_back(); // the Call argument has no gradient
        return out;
    }
};

} // namespace

extern "C" {

th_tensors th_function_apply(const th_function *function, th_tensors inputs, void *user)
{
    auto call = c10::intrusive_ptr<Call>();
    try {
        call = c10::make_intrusive<Call>();
        call->function = function;
        call->user = user;
        if (th__pending() != TH_OK) return th_tensors{};
        auto tensors = bridge::tensor_vector(inputs, function->name, true);
        for (auto &tensor : tensors) {
            call->present.push_back(tensor.defined());
            call->needs.push_back(tensor.defined() && tensor.requires_grad());
            if (!tensor.defined()) tensor = at::empty({0}); // the engine cannot carry undefined inputs
        }
        auto outputs = CFunction::apply(at::TensorList(tensors), call);
        return bridge::scoped_list(std::move(outputs), function->name);
    } catch (...) {
        bridge::translate(function->name);
        return th_tensors{};
    }
}

th_status th_save_for_backward(th_function_ctx *ctx, th_tensors tensors)
{
    BRIDGE_STATUS({
        if (!ctx->in_forward) return TH__FAIL(TH_ERR_RUNTIME, "only in forward");
        ctx->context->save_for_backward(bridge::tensor_vector(tensors, __func__, true));
    });
}

th_tensors th_saved_tensors(th_function_ctx *ctx)
{
    BRIDGE_TRY(th_tensors{}, {
        if (ctx->in_forward) {
            TH__FAIL(TH_ERR_RUNTIME, "only in backward");
            return th_tensors{};
        }
        return bridge::scoped_list(ctx->context->get_saved_variables(), "saved tensor");
    });
}

bool th_needs_input_grad(th_function_ctx *ctx, size_t i) { return ctx->needs != nullptr && i < ctx->needs->size() && (*ctx->needs)[i]; }

th_status th_mark_dirty(th_function_ctx *ctx, th_tensors tensors)
{
    BRIDGE_STATUS({
        if (!ctx->in_forward) return TH__FAIL(TH_ERR_RUNTIME, "only in forward");
        ctx->context->mark_dirty(bridge::tensor_vector(tensors, __func__));
    });
}

th_status th_mark_non_differentiable(th_function_ctx *ctx, th_tensors tensors)
{
    BRIDGE_STATUS({
        if (!ctx->in_forward) return TH__FAIL(TH_ERR_RUNTIME, "only in forward");
        ctx->context->mark_non_differentiable(bridge::tensor_vector(tensors, __func__));
    });
}

} // extern "C"
