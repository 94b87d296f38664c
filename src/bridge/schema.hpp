// bridge/schema.hpp: what a call needs to know about an operator, worked out once from its schema.
#pragma once

#include "bridge/guard.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <memory>
#include <string>

namespace bridge {

struct ArgPlan {
    std::string name;
    std::string type_text;
    th__type type = TH__TYPE_UNSUPPORTED;
    bool optional = false;
    bool optional_elements = false;
    bool has_default = false;
    int64_t fixed_size = 0; // int[2]: one given number is repeated
    c10::IValue default_value;
};

struct OpPlan {
    explicit OpPlan(c10::OperatorHandle h) : handle(h) {}
    c10::OperatorHandle handle;
    std::string name; // "aten::add.Tensor"
    std::vector<ArgPlan> args;
    std::vector<ArgPlan> results;
    std::vector<int> alias_of; // per result: the argument whose handle is returned, or -1
};

std::unique_ptr<OpPlan> make_plan(const c10::OperatorHandle &handle);
// Plans live as long as the process. Raises TH_ERR_KEY and returns nullptr for an unknown operator.
OpPlan *find_plan(const std::string &name, const std::string &overload);
// "aten::add.Tensor" into name and overload.
std::pair<std::string, std::string> split_name(const char *op);

} // namespace bridge
