// A way around boxing for the commonest calls of a kernel that is known only at run time: the operator has
// one of a few C++ signatures, and its operands are alike, so that nothing needs to be cast, shaped or
// refused.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Scalar.h>

namespace opsmith {

// One argument of such a signature: a Tensor, or a number. Borrowed.
struct UnboxedArgument {
  const at::Tensor* tensor = nullptr;
  const at::Scalar* number = nullptr;
};

// The most arguments of such a signature, and one more for the output of the kernel that serves it.
inline constexpr size_t kMostUnboxedArguments = 5;

class UnboxedServer : public c10::OperatorKernel {
 public:
  // Serves the call if that needs no more than running the kernel. `arguments` has room for
  // kMostUnboxedArguments; `result` is set where the operator is functional. False: nothing has happened.
  virtual bool serve_unboxed(UnboxedArgument* arguments, size_t count, at::Tensor& result) = 0;
};

// `boxed`, with an unboxed path through `server` where the operator's signature has one.
c10::KernelFunction with_unboxed_path(const c10::OperatorHandle& op, c10::intrusive_ptr<UnboxedServer> server,
                                      c10::BoxedKernel boxed);

}  // namespace opsmith
