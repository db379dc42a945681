// Running an operator of the device on the CPU, and refusing one with the reason.
//
// fallback(), denied() and missing() are boxed kernels for any operator; call_boxed() is for typed code that
// hands a call over to one of them.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace opsmith {

// Runs the operator's CPU kernel on the device's tensors: in place on the same bytes with a host window, on
// copies without. Raises RuntimeError when the tensors are on different devices and NotImplementedError when
// there is no CPU kernel or when a tensor is sparse, mkldnn, quantized or nested.
void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// Raise NotImplementedError with the operator, the tensors, the reason and the lines that would serve the
// operator. denied(): the description forbids the fallback for it. missing(): nothing serves it.
void denied(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
void missing(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// For the keys of sparse, quantized and nested tensors: raises NotImplementedError, since the device has only
// strided ones. To be registered as their backend fallback.
void unsupported_layout(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// Why the plan denies `operator_name` ("add.out", or with its namespace) or has nothing for it; for denied()
// and missing(). Called by generated code when the library is loaded.
void set_policy_reason(const char* operator_name, const char* reason);

namespace detail {

// An argument as the schema's C++ signature has it: generated code has int64_t where the schema has SymInt.
template <class Parameter, class Argument>
decltype(auto) schema_argument(Argument&& argument) {
  using From = std::remove_cvref_t<Argument>;
  using To = std::remove_cvref_t<Parameter>;
  if constexpr (std::is_same_v<To, c10::SymIntArrayRef> && !std::is_same_v<From, c10::SymIntArrayRef>) {
    return c10::fromIntArrayRefSlow(argument);
  } else if constexpr (std::is_same_v<To, at::OptionalSymIntArrayRef> &&
                       std::is_same_v<From, at::OptionalIntArrayRef>) {
    return argument.has_value() ? at::OptionalSymIntArrayRef(c10::fromIntArrayRefSlow(*argument))
                                : at::OptionalSymIntArrayRef();
  } else {
    return std::forward<Argument>(argument);
  }
}

template <class Op, c10::KernelFunction::BoxedKernelFunction_withDispatchKeys* kKernel,
          class Schema = typename Op::schema>
struct BoxedCall;

template <class Op, c10::KernelFunction::BoxedKernelFunction_withDispatchKeys* kKernel, class Result,
          class... Parameters>
struct BoxedCall<Op, kKernel, Result(Parameters...)> {
  template <class... Arguments>
  static Result call(Arguments&&... arguments) {
    static const c10::OperatorHandle op =
        c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
    return c10::impl::BoxedKernelWrapper<Result(Parameters...)>::call(
        c10::BoxedKernel::makeFromFunction<kKernel>(), op, c10::DispatchKeySet(),
        schema_argument<Parameters>(std::forward<Arguments>(arguments))...);
  }
};

}  // namespace detail

// One of the boxed kernels above as a typed call: call_boxed<at::_ops::add_Tensor, &fallback>(self, other,
// alpha).
template <class Op, c10::KernelFunction::BoxedKernelFunction_withDispatchKeys* kKernel, class... Arguments>
decltype(auto) call_boxed(Arguments&&... arguments) {
  return detail::BoxedCall<Op, kKernel>::call(std::forward<Arguments>(arguments)...);
}

}  // namespace opsmith
