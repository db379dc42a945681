// Dropout: PyTorch asks an out-of-tree device for this fused operator. Its CPU kernel draws from the CPU's
// default generator, as the operator takes none; on the device it must draw from the device's.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace opsmith {

// The result and the mask of what was kept (bool, of the input's shape).
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train);

}  // namespace opsmith
