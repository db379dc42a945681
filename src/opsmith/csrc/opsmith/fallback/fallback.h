// Running an operator of the device on the CPU, and refusing one with the reason.
//
// fallback(), denied() and missing() are boxed kernels for any operator; call_boxed() is for typed code that
// hands a call over to one of them.
#pragma once

#include <opsmith/fallback/refusal.h>

#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DeviceGuard.h>

namespace opsmith {

// Runs the operator's CPU kernel on the device's tensors: in place on the same bytes with a host window, on
// copies without; sparse and nested tensors are those of their parts. Raises RuntimeError when the tensors
// are on different devices and NotImplementedError when there is no CPU kernel or when a tensor is an mkldnn
// one.
void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// Raise NotImplementedError with the operator, the tensors, the reason and the lines that would serve the
// operator. denied(): the description forbids the fallback for it. missing(): nothing serves it.
void denied(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
void missing(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// The device that a boxed call names, or else that of its first Tensor on this type of device, for a guard:
// PyTorch's constructors of sparse tensors, which are one for all devices, make them on the current one.
std::optional<c10::Device> device_of_call(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

// Runs the kernel that PyTorch has for `key`, which must be one for all devices.
template <c10::DispatchKey key>
void kernel_of(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const c10::OptionalDeviceGuard guard(device_of_call(op, *stack));
  if constexpr (key == c10::DispatchKey::CPU) {
    check_nested_sizes(op, *stack);
  }
  op.redispatchBoxed(c10::DispatchKeySet(key), stack);
}

namespace detail {

using BoxedFunction = c10::KernelFunction::BoxedKernelFunction_withDispatchKeys;

// Generated code has hundreds of calls of some fifty signatures: what an argument of a common type becomes on
// the stack is compiled once, in fallback.cpp.
void push(torch::jit::Stack& stack, const at::Tensor& tensor);
void push(torch::jit::Stack& stack, const std::optional<at::Tensor>& tensor);
void push(torch::jit::Stack& stack, at::TensorList tensors);
void push(torch::jit::Stack& stack, const at::ITensorListRef& tensors);
void push(torch::jit::Stack& stack, const c10::List<std::optional<at::Tensor>>& tensors);
void push(torch::jit::Stack& stack, const at::Scalar& scalar);
void push(torch::jit::Stack& stack, const std::optional<at::Scalar>& scalar);
void push(torch::jit::Stack& stack, at::IntArrayRef numbers);
void push(torch::jit::Stack& stack, at::OptionalIntArrayRef numbers);
void push(torch::jit::Stack& stack, c10::SymIntArrayRef numbers);
void push(torch::jit::Stack& stack, int64_t number);
void push(torch::jit::Stack& stack, double number);
void push(torch::jit::Stack& stack, bool truth);
void push(torch::jit::Stack& stack, std::optional<int64_t> number);
void push(torch::jit::Stack& stack, std::optional<at::ScalarType> dtype);

template <class Argument>
void push(torch::jit::Stack& stack, const Argument& argument) {
  torch::jit::push(stack, argument);
}

template <class Result>
inline constexpr bool kReturnsReferences = std::is_lvalue_reference_v<Result>;
template <class... Results>
inline constexpr bool kReturnsReferences<std::tuple<Results...>> =
    sizeof...(Results) > 0 && (std::is_lvalue_reference_v<Results> && ...);

template <class Schema>
inline constexpr bool kGivesFirst = false;
template <class Result, class... Rest>
inline constexpr bool kGivesFirst<Result(Result, Rest...)> = true;

template <class Schema>
struct BoxedCall;

template <class Result, class... Parameters>
struct BoxedCall<Result(Parameters...)> {
  // Schemas whose C++ signature has SymInt may be called with int64_t: both are integers on the stack.
  template <class... Arguments>
  C10_NOINLINE static Result call(const c10::OperatorHandle& op, BoxedFunction* kernel,
                                  Arguments&... arguments) {
    static_assert(sizeof...(Parameters) == sizeof...(Arguments));
    torch::jit::Stack stack;
    stack.reserve(sizeof...(Arguments));
    (push(stack, arguments), ...);
    kernel(op, c10::DispatchKeySet(), &stack);
    if constexpr (kReturnsReferences<Result>) {
      const void* const addresses[] = {std::addressof(arguments)...};
      return written(addresses);
    } else if constexpr (!std::is_void_v<Result>) {
      return c10::impl::PopResult<Result>::call(stack);
    }
  }

 private:
  // The result of an operator that writes to its arguments, which are Tensors: `self` in place, the last ones
  // of an out variant.
  static Result written(const void* const* arguments) {
    constexpr size_t kArguments = sizeof...(Parameters);
    if constexpr (!std::is_lvalue_reference_v<Result>) {
      constexpr size_t kResults = std::tuple_size_v<Result>;
      return [&]<size_t... I>(std::index_sequence<I...>) {
        return Result(tensor_at(arguments[kArguments - kResults + I])...);
      }(std::make_index_sequence<kResults>());
    } else {
      return tensor_at(arguments[kGivesFirst<Result(Parameters...)> ? 0 : kArguments - 1]);
    }
  }
  static at::Tensor& tensor_at(const void* address) {
    return *const_cast<at::Tensor*>(static_cast<const at::Tensor*>(address));
  }
};

c10::OperatorHandle find_operator(const char* name, const char* overload);

template <class Op>
const c10::OperatorHandle& handle_of() {
  static const c10::OperatorHandle op = find_operator(Op::name, Op::overload_name);
  return op;
}

}  // namespace detail

// One of the boxed kernels above as a typed call: call_boxed<at::_ops::add_Tensor, &fallback>(self, other,
// alpha).
template <class Op, detail::BoxedFunction* kKernel, class... Arguments>
typename c10::guts::infer_function_traits_t<typename Op::schema>::return_type call_boxed(
    Arguments&&... arguments) {
  return detail::BoxedCall<typename Op::schema>::call(detail::handle_of<Op>(), kKernel, arguments...);
}

}  // namespace opsmith
