// How a tensor's elements lie: dense, but in any order of its dimensions.
#pragma once

#include <cstdint>

#include <executorch/runtime/core/exec_aten/exec_aten.h>

namespace opsmith::optimized {

// Whether an index has one offset in both; dimensions of size 1 have no say.
inline bool same_layout(const executorch::aten::Tensor& a, const executorch::aten::Tensor& b) {
  if (a.dim() != b.dim()) {
    return false;
  }
  for (int d = 0; d < a.dim(); ++d) {
    if (a.sizes()[d] != b.sizes()[d] || (a.sizes()[d] != 1 && a.strides()[d] != b.strides()[d])) {
      return false;
    }
  }
  return true;
}

// Whether the elements lie in the order of their indices.
inline bool is_contiguous(const executorch::aten::Tensor& tensor) {
  int64_t expected = 1;
  for (int d = static_cast<int>(tensor.dim()) - 1; d >= 0; --d) {
    if (tensor.sizes()[d] != 1 && tensor.strides()[d] != expected) {
      return false;
    }
    expected *= tensor.sizes()[d];
  }
  return true;
}

}  // namespace opsmith::optimized
