// The dtypes of operands that a kernel on at::Tensor reads as one dtype: PyTorch checks them on the CPU and
// on CUDA in the kernels, not before.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace opsmith {

// Refuses operands of another dtype than `dtype`, in the words of the CPU's kernels. Undefined ones pass.
template <class... Tensors>
void require_dtype(at::ScalarType dtype, const Tensors&... operands) {
  const auto require = [dtype](const at::Tensor& operand) {
    TORCH_CHECK(!operand.defined() || operand.scalar_type() == dtype, "expected scalar type ", dtype,
                " but found ", operand.scalar_type());
  };
  (require(operands), ...);
}

// The same of a convolution's weight, bias or gradient, in the words of PyTorch's convolutions.
inline void require_dtype_of_input(const at::Tensor& input, const at::Tensor& other, const char* name) {
  TORCH_CHECK(!other.defined() || other.scalar_type() == input.scalar_type(), "Input type (", input.dtype(),
              ") and ", name, " type (", other.dtype(), ") should be the same");
}

}  // namespace opsmith
