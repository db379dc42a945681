// The outer product of two vectors, added to a matrix: on devices PyTorch makes it of other operators,
// without its checks of scalars, and multiplies in the vectors' dtype.
#pragma once

#include <ATen/core/Tensor.h>

namespace opsmith {

// aten::addr: beta self + alpha vec1 vec2ᵀ, in their common dtype. Raises RuntimeError where a scalar is of a
// kind that does not go with it.
at::Tensor addr(const at::Tensor& self, const at::Tensor& vec1, const at::Tensor& vec2,
                const at::Scalar& beta, const at::Scalar& alpha);

}  // namespace opsmith
