// bridge/jit.cpp: TorchScript modules. The interpreter's headers stay in this one file.
#include "bridge/guard.hpp"

#include "bridge/jit.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

struct th__script {
    torch::jit::Module module;
};

using bridge::scoped;
using bridge::scoped_list;

static char *copy(const std::string &text)
{
    char *out = static_cast<char *>(std::malloc(text.size() + 1));
    if (out == nullptr) throw std::bad_alloc();
    std::memcpy(out, text.data(), text.size());
    out[text.size()] = '\0';
    return out;
}

// Tensors of a result: itself, or the items of a tuple or list of tensors.
static std::vector<at::Tensor> outputs_of(const c10::IValue &value)
{
    if (value.isTensor()) return {value.toTensor()};
    if (value.isTensorList()) return value.toTensorVector();
    if (value.isTuple()) {
        std::vector<at::Tensor> list;
        for (const c10::IValue &item : value.toTupleRef().elements()) {
            TORCH_CHECK(item.isTensor(), "the scripted module returned a tuple with a ", item.tagKind(),
                        " in it; tensors are expected");
            list.push_back(item.toTensor());
        }
        return list;
    }
    TORCH_CHECK(false, "the scripted module returned a ", value.tagKind(), "; a tensor or several are expected");
}

extern "C" {

th__script *th__script_load(const char *path)
{
    BRIDGE_TRY(nullptr, {
        auto script = std::make_unique<th__script>();
        script->module = torch::jit::load(path, c10::Device(c10::kCPU));
        return script.release();
    });
}

void th__script_free(th__script *script)
{
    try {
        delete script;
    } catch (...) {
    }
}

char *th__script_serialize(th__script *script, size_t *size)
{
    BRIDGE_TRY(nullptr, {
        std::ostringstream stream;
        script->module.save(stream);
        std::string bytes = stream.str();
        *size = bytes.size();
        return copy(bytes);
    });
}

th_tensors th__script_forward(th__script *script, th_tensors inputs)
{
    th_tensors none = {nullptr, 0};
    BRIDGE_TRY(none, {
        std::vector<c10::IValue> stack;
        for (at::Tensor &tensor : bridge::tensor_vector(inputs, __func__)) stack.emplace_back(std::move(tensor));
        if (th__pending() != TH_OK) return none;
        return scoped_list(outputs_of(script->module.forward(std::move(stack))), "script");
    });
}

void th__script_train(th__script *script, bool mode)
{
    try {
        script->module.train(mode);
    } catch (...) {
        bridge::translate(__func__);
    }
}

bool th__script_is_training(th__script *script)
{
    BRIDGE_TRY(false, { return script->module.is_training(); });
}

char *th__script_class(th__script *script)
{
    BRIDGE_TRY(nullptr, {
        return copy(script->module.type()->name() ? script->module.type()->name()->name() : std::string("ScriptModule"));
    });
}

int th__script_each(th__script *script, int (*fn)(const char *path, bool is_buffer, th_tensor *tensor, void *user), void *user)
{
    BRIDGE_TRY(-1, {
        for (const auto &item : script->module.named_parameters())
            if (int result = fn(item.name.c_str(), false, scoped(at::Tensor(item.value), "script"), user)) return result;
        for (const auto &item : script->module.named_buffers())
            if (int result = fn(item.name.c_str(), true, scoped(at::Tensor(item.value), "script"), user)) return result;
        return 0;
    });
}

} // extern "C"
