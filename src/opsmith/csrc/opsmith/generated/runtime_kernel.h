// The interface of a kernel that is known only at run time, such as a Python function.
#pragma once

#include <opsmith/generated/unboxed_derivation.h>

#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#define OPSMITH_EXPORT __attribute__((visibility("default")))

namespace opsmith {

// A kernel of one operator.
class OPSMITH_EXPORT RuntimeKernel {
 public:
  virtual ~RuntimeKernel() = default;

  // Runs the kernel with its operator's arguments and appends what it returns to `results`: the operator's
  // returns, less those that are arguments it writes to (`out`, an in-place `self`).
  virtual void operator()(c10::ArrayRef<c10::IValue> arguments, torch::jit::Stack& results) const = 0;

  // The same without boxes, for operators of Tensors and numbers that return one Tensor, which is undefined
  // where that is an argument.
  virtual at::Tensor run(c10::ArrayRef<UnboxedArgument> arguments) const = 0;

  // "the Python kernel `relu` (kernels.py:3)", for error messages.
  virtual std::string description() const = 0;
};

}  // namespace opsmith
