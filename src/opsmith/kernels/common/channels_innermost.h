// Images whose channels lie one after the other.
#pragma once

#include <cstddef>
#include <cstdint>

#include <executorch/runtime/kernel/kernel_includes.h>

namespace opsmith {

// Whether a tensor, [images, channels, height, width], lies in memory as channels-last ones do, without gaps;
// dimensions of one element, and tensors without any, may have any strides.
inline bool has_channels_innermost(const executorch::aten::Tensor& t) {
  int64_t expected = 1;
  for (const size_t d : {1, 3, 2, 0}) {
    if (t.numel() > 0 && t.sizes()[d] != 1 && t.strides()[d] != expected) {
      return false;
    }
    expected *= t.sizes()[d];
  }
  return true;
}

}  // namespace opsmith
