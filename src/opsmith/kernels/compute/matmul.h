// Products of matrices.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

namespace opsmith::compute {

// out = alpha * a b + beta * addend, for batches of matrices (b, m, k), (b, k, n) and (b, m, n) of one dtype
// that may lie in any way, broadcast ones included; `out` may have the dtype that this one is computed in.
// `addend` undefined: nothing is added.
void multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, const at::Scalar& alpha = 1,
              const at::Scalar& beta = 0, const at::Tensor& addend = {});

}  // namespace opsmith::compute
