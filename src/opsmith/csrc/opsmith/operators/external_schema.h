// Operators that this library implements, and that another one may have defined.
#pragma once

#include <vector>

#include <torch/library.h>

namespace opsmith {

// Defines the operator of `schema`, a whole one with its namespace, unless it is defined already. Throws
// RuntimeError where it is with another schema.
void define_unless_defined(torch::Library& library, const char* schema, const std::vector<at::Tag>& tags);

template <auto* kFunction>
void call_on_stack(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  using Functor = c10::CompileTimeFunctionPointer<std::remove_pointer_t<decltype(kFunction)>, kFunction>;
  c10::KernelFunction::makeFromUnboxedFunction(Functor{}).callBoxed(handle, c10::DispatchKeySet(), stack);
}

// A kernel of such an operator, called by a stack of values: PyTorch wants the C++ types of all kernels of an
// operator to be the same, and those of others are whatever their author wrote.
template <auto* kFunction>
torch::CppFunction on_stack() {
  return torch::CppFunction::makeFromBoxedFunction<&call_on_stack<kFunction>>();
}

}  // namespace opsmith
