// Histograms of integers, which PyTorch's GPUs take and its CPU refuses. The fallback serves those of
// floating-point numbers.
#pragma once

#include <ATen/core/Tensor.h>

namespace opsmith {

// aten::histc of integers, as CUDA counts them: `min` and `max` lose their fractions, bins are found without
// rounding, and the counts have the dtype of `self`.
at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max);
at::Tensor& histc_out(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max,
                      at::Tensor& out);

}  // namespace opsmith
