// Conjugated, negated and zero tensors, which PyTorch passes as they are to the kernels of a few operators.
#pragma once

#include <opsmith/generated/each_tensor.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

namespace opsmith {

// Whether `tensor` stands for other elements than its memory has: their conjugates or negatives, or
// zeros without memory.
inline bool is_lazy(const at::TensorBase& tensor) {
  return C10_UNLIKELY(tensor.key_set().has_any(c10::DispatchKeySet(
      {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor})));
}

template <class... Arguments>
bool has_lazy_operands(const Arguments&... arguments) {
  bool any = false;
  const auto look = [&any](const at::TensorBase& tensor) { any = any || is_lazy(tensor); };
  (each_tensor(arguments, look), ...);
  return any;
}

// The same of a boxed call, whose operator takes no lists of Tensors.
bool has_lazy_operands(c10::ArrayRef<c10::IValue> arguments);

// Calls the operator's kernel for this device again with ordinary Tensors in their place. What it writes to
// one of these is copied there. A boxed kernel, as fallback() is.
void with_resolved_operands(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                            torch::jit::Stack* stack);

}  // namespace opsmith
