// bridge/op.cpp: boxed operator calls: C arguments to IValues, the call, IValues to C results.
#include "bridge/schema.hpp"

#include <ATen/ScalarOps.h>
#include <ATen/core/stack.h>
#include <dlfcn.h>

namespace {

using bridge::ArgPlan;
using bridge::OpPlan;
using c10::IValue;

[[noreturn]] void wrong_kind(const OpPlan &plan, const ArgPlan &arg, const char *got)
{
    th__fail(TH_ERR_TYPE, plan.name.c_str(), "argument '%s' is %s, expected %s", arg.name.c_str(), got, arg.type_text.c_str());
    throw bridge::PendingError();
}

void expect(const OpPlan &plan, const ArgPlan &arg, th__type type, const char *got)
{
    if (TH__UNLIKELY(arg.type != type)) wrong_kind(plan, arg, got);
}

// None, the schema's default, or an error that names the argument.
IValue missing_value(const OpPlan &plan, const ArgPlan &arg)
{
    if (arg.has_default) return arg.default_value;
    if (arg.optional) return IValue();
    if (arg.type == TH__TYPE_TENSORS && !arg.optional_elements) return IValue(c10::List<at::Tensor>());
    if (arg.type == TH__TYPE_INTS) return IValue(c10::List<int64_t>());
    if (arg.type == TH__TYPE_DOUBLES) return IValue(c10::List<double>());
    wrong_kind(plan, arg, "missing");
}

at::Scalar scalar_of(const th_scalar &s)
{
    switch (s.kind) {
    case TH_SCALAR_INT: return at::Scalar(s.i);
    case TH_SCALAR_BOOL: return at::Scalar(s.i != 0);
    case TH_SCALAR_COMPLEX: return at::Scalar(c10::complex<double>(s.d, s.imag));
    default: return at::Scalar(s.d);
    }
}

IValue number_value(const OpPlan &plan, const ArgPlan &arg, const th_scalar &s)
{
    if (s.kind == TH_SCALAR_NONE) return missing_value(plan, arg);
    switch (arg.type) {
    case TH__TYPE_SCALAR: return IValue(scalar_of(s));
    case TH__TYPE_TENSOR: return IValue(at::native::wrapped_scalar_tensor(scalar_of(s))); // as Python passes numbers
    case TH__TYPE_DOUBLE:
        if (s.kind == TH_SCALAR_COMPLEX) break;
        return IValue(s.kind == TH_SCALAR_DOUBLE ? s.d : static_cast<double>(s.i));
    case TH__TYPE_INT:
        if (s.kind != TH_SCALAR_INT && s.kind != TH_SCALAR_BOOL) break;
        return IValue(s.i);
    case TH__TYPE_BOOL:
        if (s.kind != TH_SCALAR_INT && s.kind != TH_SCALAR_BOOL) break;
        return IValue(s.i != 0);
    default: break;
    }
    static const char *const names[] = {"None", "an int", "a float", "a bool", "a complex number"};
    wrong_kind(plan, arg, names[s.kind]);
}

const at::Tensor &checked(const OpPlan &plan, const ArgPlan &arg, const th_tensor *tensor)
{
    if (!bridge::check(tensor, plan.name.c_str(), arg.name.c_str())) throw bridge::PendingError();
    return bridge::unwrap(tensor);
}

IValue tensors_value(const OpPlan &plan, const ArgPlan &arg, th_tensors list)
{
    if (arg.optional_elements) {
        c10::List<c10::optional<at::Tensor>> result;
        result.reserve(list.size);
        for (size_t i = 0; i < list.size; i++) {
            if (list.data[i] == nullptr) result.push_back(c10::optional<at::Tensor>());
            else result.push_back(c10::optional<at::Tensor>(checked(plan, arg, list.data[i])));
        }
        return IValue(std::move(result));
    }
    c10::List<at::Tensor> result;
    result.reserve(list.size);
    for (size_t i = 0; i < list.size; i++) result.push_back(checked(plan, arg, list.data[i]));
    return IValue(std::move(result));
}

IValue ints_value(const ArgPlan &arg, th_ints list)
{
    size_t size = list.size == 1 && arg.fixed_size > 1 ? static_cast<size_t>(arg.fixed_size) : list.size;
    c10::List<int64_t> result;
    result.reserve(size);
    for (size_t i = 0; i < size; i++) result.push_back(list.data[list.size == 1 ? 0 : i]);
    return IValue(std::move(result));
}

template <typename T, typename C, typename F>
IValue list_value(C list, F convert)
{
    c10::List<T> result;
    result.reserve(list.size);
    for (size_t i = 0; i < list.size; i++) result.push_back(convert(list.data[i]));
    return IValue(std::move(result));
}

IValue scalars_value(th_scalars list)
{
    c10::List<at::Scalar> result;
    result.reserve(list.size);
    for (size_t i = 0; i < list.size; i++) result.push_back(scalar_of(list.data[i]));
    return IValue(std::move(result));
}

IValue to_ivalue(const OpPlan &plan, const ArgPlan &arg, const th_arg &given)
{
    switch (given.kind) {
    case TH_ARG_NONE: return missing_value(plan, arg);
    case TH_ARG_TENSOR:
        if (given.v.tensor == nullptr) return missing_value(plan, arg);
        expect(plan, arg, TH__TYPE_TENSOR, "a tensor");
        return IValue(checked(plan, arg, given.v.tensor));
    case TH_ARG_SCALAR: return number_value(plan, arg, given.v.scalar);
    case TH_ARG_INT: return number_value(plan, arg, th_scalar_int(given.v.i));
    case TH_ARG_DOUBLE: return number_value(plan, arg, th_scalar_double(given.v.d));
    case TH_ARG_BOOL: return number_value(plan, arg, th_scalar_bool(given.v.b));
    case TH_ARG_STRING:
        if (given.v.s == nullptr) return missing_value(plan, arg);
        expect(plan, arg, TH__TYPE_STRING, "a string");
        return IValue(std::string(given.v.s));
    case TH_ARG_INTS:
        if (given.v.ints.data == nullptr) return missing_value(plan, arg);
        expect(plan, arg, TH__TYPE_INTS, "a list of ints");
        return ints_value(arg, given.v.ints);
    case TH_ARG_DOUBLES:
        if (given.v.doubles.data == nullptr) return missing_value(plan, arg);
        expect(plan, arg, TH__TYPE_DOUBLES, "a list of floats");
        return list_value<double>(given.v.doubles, [](double d) { return d; });
    case TH_ARG_BOOLS:
        if (given.v.bools.data == nullptr) return missing_value(plan, arg);
        expect(plan, arg, TH__TYPE_BOOLS, "a list of bools");
        return list_value<bool>(given.v.bools, [](bool b) { return b; });
    case TH_ARG_SCALARS:
        if (given.v.scalars.data == nullptr) return missing_value(plan, arg);
        expect(plan, arg, TH__TYPE_SCALARS, "a list of numbers");
        return scalars_value(given.v.scalars);
    case TH_ARG_TENSORS:
        expect(plan, arg, TH__TYPE_TENSORS, "a list of tensors");
        return tensors_value(plan, arg, given.v.tensors);
    case TH_ARG_DTYPE:
        if (given.v.dtype == TH_DTYPE_NONE) return missing_value(plan, arg);
        return IValue(static_cast<int64_t>(bridge::scalar_type(given.v.dtype)));
    case TH_ARG_LAYOUT:
        if (given.v.layout == TH_LAYOUT_NONE) return missing_value(plan, arg);
        return IValue(static_cast<int64_t>(given.v.layout - 1));
    case TH_ARG_MEMORY_FORMAT:
        if (given.v.memory_format == TH_MEMORY_FORMAT_NONE) return missing_value(plan, arg);
        return IValue(static_cast<int64_t>(given.v.memory_format - 1));
    case TH_ARG_DEVICE:
        if (given.v.device.type == TH_DEVICE_NONE) return missing_value(plan, arg);
        return IValue(bridge::device_from(given.v.device));
    case TH_ARG_GENERATOR:
        if (given.v.generator == nullptr) return missing_value(plan, arg);
        return IValue(*reinterpret_cast<at::Generator *>(given.v.generator));
    }
    wrong_kind(plan, arg, "of an unknown kind");
}

th_arg number_result(th__type type, th_scalar s)
{
    th_arg out{};
    if (type == TH__TYPE_SCALAR) {
        out.kind = TH_ARG_SCALAR;
        out.v.scalar = s;
    } else if (type == TH__TYPE_DTYPE) {
        out.kind = TH_ARG_DTYPE;
        out.v.dtype = bridge::dtype_from(static_cast<at::ScalarType>(s.i));
    } else if (s.kind == TH_SCALAR_INT) {
        out.kind = TH_ARG_INT;
        out.v.i = s.i;
    } else if (s.kind == TH_SCALAR_BOOL) {
        out.kind = TH_ARG_BOOL;
        out.v.b = s.i != 0;
    } else {
        out.kind = TH_ARG_DOUBLE;
        out.v.d = s.d;
    }
    return out;
}

th_arg from_ivalue(const OpPlan &plan, size_t i, IValue &&value, const th_arg *args, size_t n_args)
{
    th_arg out{};
    auto type = i < plan.results.size() ? plan.results[i].type : TH__TYPE_UNSUPPORTED;
    if (value.isTensor()) {
        int alias = i < plan.alias_of.size() ? plan.alias_of[i] : -1;
        out.kind = TH_ARG_TENSOR;
        if (alias >= 0 && static_cast<size_t>(alias) < n_args && args[alias].kind == TH_ARG_TENSOR) {
            out.v.tensor = args[alias].v.tensor;
        } else {
            auto tensor = std::move(value).toTensor();
            out.v.tensor = tensor.defined() ? bridge::scoped(std::move(tensor), plan.name.c_str()) : nullptr;
        }
        return out;
    }
    if (value.isTensorList()) {
        out.kind = TH_ARG_TENSORS;
        out.v.tensors = bridge::scoped_list(value.toTensorVector(), plan.name.c_str());
        return out;
    }
    if (value.isInt()) return number_result(type, th_scalar_int(value.toInt()));
    if (value.isDouble()) return number_result(type, th_scalar_double(value.toDouble()));
    if (value.isBool()) return number_result(type, th_scalar_bool(value.toBool()));
    if (value.isComplexDouble()) {
        auto c = value.toComplexDouble();
        return number_result(TH__TYPE_SCALAR, th_scalar_complex(c.real(), c.imag()));
    }
    if (!value.isNone()) {
        th__fail(TH_ERR_NOT_IMPLEMENTED, plan.name.c_str(), "result %zu is of a type that C cannot hold (%s)", i,
                 value.tagKind().c_str());
        throw bridge::PendingError();
    }
    return out;
}

// This thread's interpreter stack, kept so that calls do not allocate. A hook may call operators while one is running: the inner
// call then uses a stack of its own.
class StackLease {
  public:
    StackLease() : leased_(!busy)
    {
        if (leased_) busy = true;
    }
    ~StackLease()
    {
        if (!leased_) return;
        shared.clear();
        busy = false;
    }
    torch::jit::Stack &get() { return leased_ ? shared : own_; }

  private:
    bool leased_;
    torch::jit::Stack own_;
    static thread_local torch::jit::Stack shared;
    static thread_local bool busy;
};
thread_local torch::jit::Stack StackLease::shared;
thread_local bool StackLease::busy = false;

int call_plan(OpPlan &plan, const th_arg *args, size_t n_args, th_arg *results, size_t n_results)
{
    try {
        if (n_args > plan.args.size())
            return th__fail(TH_ERR_TYPE, plan.name.c_str(), "%zu arguments given, the schema has %zu", n_args, plan.args.size());
        StackLease lease;
        auto &stack = lease.get();
        stack.reserve(plan.args.size());
        for (size_t i = 0; i < plan.args.size(); i++)
            stack.push_back(i < n_args ? to_ivalue(plan, plan.args[i], args[i]) : missing_value(plan, plan.args[i]));
        plan.handle.callBoxed(&stack);
        size_t produced = stack.size();
        for (size_t i = 0; i < produced && i < n_results; i++) {
            results[i] = from_ivalue(plan, i, std::move(stack[i]), args, n_args);
            if (TH__UNLIKELY(th__pending() != TH_OK)) return th__pending();
        }
        return static_cast<int>(produced);
    } catch (...) {
        return bridge::translate(plan.name.c_str());
    }
}

} // namespace

extern "C" {

int th__op_call(th__op *op, const th_arg *args, size_t n_args, th_arg *results, size_t n_results)
{
    BRIDGE_TRY(th__pending(), {
        auto *plan = static_cast<OpPlan *>(__atomic_load_n(&op->plan, __ATOMIC_ACQUIRE));
        if (TH__UNLIKELY(plan == nullptr)) {
            plan = bridge::find_plan(op->name, op->overload);
            if (plan == nullptr) return th__pending();
            __atomic_store_n(&op->plan, plan, __ATOMIC_RELEASE);
        }
        return call_plan(*plan, args, n_args, results, n_results);
    });
}

th_tensor *th__op_call_tensor(th__op *op, const th_arg *args, size_t n_args)
{
    th_arg result{};
    int n = th__op_call(op, args, n_args, &result, 1);
    return n >= 1 && result.kind == TH_ARG_TENSOR ? result.v.tensor : nullptr;
}

int th_call_args(const char *op, const th_arg *args, size_t n_args, th_arg *results, size_t n_results)
{
    BRIDGE_TRY(th__pending(), {
        if (op == nullptr) return TH__FAIL(TH_ERR_TYPE, "the operator's name is NULL");
        auto [name, overload] = bridge::split_name(op);
        auto *plan = bridge::find_plan(name, overload);
        if (plan == nullptr) return th__pending();
        return call_plan(*plan, args, n_args, results, n_results);
    });
}

th_tensor *th_call_one(const char *op, const th_arg *args, size_t n_args)
{
    th_arg result{};
    int n = th_call_args(op, args, n_args, &result, 1);
    return n >= 1 && result.kind == TH_ARG_TENSOR ? result.v.tensor : nullptr;
}

th_status th_load_library(const char *path)
{
    TH__CHECK_PENDING();
    if (path == nullptr) return TH__FAIL(TH_ERR_TYPE, "the path is NULL");
    if (dlopen(path, RTLD_NOW | RTLD_GLOBAL) == nullptr) return TH__FAIL(TH_ERR_NOT_FOUND, "cannot load '%s': %s", path, dlerror());
    return TH_OK;
}

} // extern "C"
