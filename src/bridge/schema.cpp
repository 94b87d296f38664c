// bridge/schema.cpp: reads operator schemas of the running libtorch: for calls, and for the operator generator.
#include "bridge/schema.hpp"

#include <algorithm>
#include <mutex>
#include <sstream>
#include <unordered_map>

namespace bridge {

static bool strip_suffix(std::string &text, const std::string &tail)
{
    if (text.size() < tail.size() || text.compare(text.size() - tail.size(), tail.size(), tail) != 0) return false;
    text.resize(text.size() - tail.size());
    return true;
}

// "SymInt[2]?" is an optional list of ints. The text is the schema's own, so the same code serves every version.
static void classify(std::string text, ArgPlan &plan)
{
    static const struct { const char *name; th__type one, many; } table[] = {
        {"Tensor", TH__TYPE_TENSOR, TH__TYPE_TENSORS}, {"Scalar", TH__TYPE_SCALAR, TH__TYPE_SCALARS},
        {"number", TH__TYPE_SCALAR, TH__TYPE_SCALARS}, {"int", TH__TYPE_INT, TH__TYPE_INTS},
        {"SymInt", TH__TYPE_INT, TH__TYPE_INTS}, {"float", TH__TYPE_DOUBLE, TH__TYPE_DOUBLES},
        {"bool", TH__TYPE_BOOL, TH__TYPE_BOOLS}, {"str", TH__TYPE_STRING, TH__TYPE_UNSUPPORTED},
        {"ScalarType", TH__TYPE_DTYPE, TH__TYPE_UNSUPPORTED}, {"Layout", TH__TYPE_LAYOUT, TH__TYPE_UNSUPPORTED},
        {"MemoryFormat", TH__TYPE_MEMORY_FORMAT, TH__TYPE_UNSUPPORTED}, {"Device", TH__TYPE_DEVICE, TH__TYPE_UNSUPPORTED},
        {"Generator", TH__TYPE_GENERATOR, TH__TYPE_UNSUPPORTED},
    };
    plan.type_text = text;
    plan.optional = strip_suffix(text, "?");
    bool list = strip_suffix(text, "]");
    if (list) {
        text.resize(text.rfind('['));
        plan.optional_elements = strip_suffix(text, "?");
    }
    for (const auto &row : table)
        if (text == row.name) plan.type = list ? row.many : row.one;
    if (plan.optional_elements && plan.type != TH__TYPE_TENSORS) plan.type = TH__TYPE_UNSUPPORTED;
    if (plan.optional && plan.type == TH__TYPE_TENSORS) plan.type = TH__TYPE_UNSUPPORTED; // Tensor[]?
}

static ArgPlan plan_argument(const c10::Argument &argument)
{
    ArgPlan plan;
    plan.name = argument.name();
    classify(argument.real_type()->str(), plan);
    if (argument.N()) plan.fixed_size = *argument.N();
    if (argument.default_value()) {
        plan.has_default = true;
        plan.default_value = *argument.default_value();
    }
    return plan;
}

// The argument that a result aliases for writing (self of add_, out of add.out), or -1.
static int written_argument(const c10::FunctionSchema &schema, const c10::Argument &result)
{
    const auto *alias = result.alias_info();
    if (alias == nullptr || !alias->isWrite()) return -1;
    for (size_t i = 0; i < schema.arguments().size(); i++) {
        const auto *other = schema.arguments()[i].alias_info();
        if (other != nullptr && other->isWrite() && other->beforeSets() == alias->beforeSets()) return static_cast<int>(i);
    }
    return -1;
}

std::unique_ptr<OpPlan> make_plan(const c10::OperatorHandle &handle)
{
    const auto &schema = handle.schema();
    auto plan = std::make_unique<OpPlan>(handle);
    plan->name = schema.name();
    if (!schema.overload_name().empty()) plan->name += "." + schema.overload_name();
    for (const auto &argument : schema.arguments()) plan->args.push_back(plan_argument(argument));
    for (const auto &result : schema.returns()) {
        plan->results.push_back(plan_argument(result));
        plan->alias_of.push_back(plan->results.back().type == TH__TYPE_TENSOR ? written_argument(schema, result) : -1);
    }
    return plan;
}

OpPlan *find_plan(const std::string &name, const std::string &overload)
{
    static std::mutex lock;
    // Never destroyed: call sites of other threads may still hold plans while the process exits.
    static auto &plans = *new std::unordered_map<std::string, std::unique_ptr<OpPlan>>();
    std::lock_guard<std::mutex> guard(lock);
    auto key = name + "." + overload;
    auto found = plans.find(key);
    if (found != plans.end()) return found->second.get();
    auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
    if (!handle) {
        th__fail(TH_ERR_KEY, name.c_str(), "operator '%s%s%s' is not in this libtorch (%s)", name.c_str(),
                 overload.empty() ? "" : ".", overload.c_str(), th_torch_version());
        return nullptr;
    }
    return (plans[key] = make_plan(*handle)).get();
}

std::pair<std::string, std::string> split_name(const char *op)
{
    std::string name(op), overload;
    auto dot = name.find('.');
    if (dot != std::string::npos) {
        overload = name.substr(dot + 1);
        name.resize(dot);
    }
    return {name, overload};
}

namespace {

// One schema as plain C structs; owns the texts they point at.
struct SchemaView {
    std::vector<std::string> texts;
    std::vector<th__schema_arg> args, results;

    void describe(std::vector<th__schema_arg> &out, const ArgPlan &arg, const c10::Argument &argument, int alias_of)
    {
        th__schema_arg view{};
        view.name = arg.name.c_str();
        view.type_text = arg.type_text.c_str();
        view.type = arg.type;
        view.optional = arg.optional;
        view.optional_elements = arg.optional_elements;
        view.kwarg_only = argument.kwarg_only();
        view.has_default = arg.has_default;
        std::ostringstream text;
        if (arg.has_default) text << arg.default_value;
        texts.push_back(text.str());
        view.default_text = texts.back().c_str();
        if (arg.default_value.isInt()) view.default_int = arg.default_value.toInt();
        if (arg.default_value.isBool()) view.default_int = arg.default_value.toBool();
        if (arg.default_value.isDouble()) view.default_double = arg.default_value.toDouble();
        view.alias_of = alias_of;
        out.push_back(view);
    }
};

int visit(const c10::OperatorHandle &handle, int (*fn)(const th__schema *schema, void *user), void *user)
{
    auto plan = make_plan(handle);
    const auto &schema = handle.schema();
    SchemaView view;
    view.texts.reserve(plan->args.size() + plan->results.size()); // c_str() pointers must stay valid
    for (size_t i = 0; i < plan->args.size(); i++) view.describe(view.args, plan->args[i], schema.arguments()[i], -1);
    for (size_t i = 0; i < plan->results.size(); i++)
        view.describe(view.results, plan->results[i], schema.returns()[i], plan->alias_of[i]);
    std::ostringstream text;
    text << schema;
    auto schema_text = text.str();
    th__schema out{schema.name().c_str(), schema.overload_name().c_str(), schema_text.c_str(),
                   view.args.data(), view.results.data(), view.args.size(), view.results.size()};
    return fn(&out, user);
}

} // namespace
} // namespace bridge

extern "C" {

int th__schema_each(int (*fn)(const th__schema *schema, void *user), void *user)
{
    BRIDGE_TRY(th__pending(), {
        auto names = c10::Dispatcher::singleton().getAllOpNames();
        std::sort(names.begin(), names.end(), [](const auto &a, const auto &b) {
            return std::tie(a.name, a.overload_name) < std::tie(b.name, b.overload_name);
        });
        for (const auto &name : names) {
            auto handle = c10::Dispatcher::singleton().findSchema(name);
            if (!handle) continue;
            int stop = bridge::visit(*handle, fn, user);
            if (stop != 0) return stop;
        }
        return 0;
    });
}

bool th_has_op(const char *op)
{
    try {
        auto [name, overload] = bridge::split_name(op);
        return c10::Dispatcher::singleton().findSchema({name, overload}).has_value();
    } catch (...) {
        return false;
    }
}

bool th__op_has_cpu_kernel(const char *name, const char *overload)
{
    try {
        auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
        return handle && handle->hasKernelForDispatchKey(c10::DispatchKey::CPU);
    } catch (...) {
        return false;
    }
}

} // extern "C"
