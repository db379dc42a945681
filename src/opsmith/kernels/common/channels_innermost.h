// Images whose channels lie one after the other.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include <executorch/runtime/kernel/kernel_includes.h>

namespace opsmith {

// Whether a tensor, [images, channels] and any dimensions of pixels, lies in memory as channels-last ones do,
// without gaps; dimensions of one element, and tensors without any, may have any strides.
inline bool has_channels_innermost(const executorch::aten::Tensor& t) {
  int64_t expected = 1;
  for (ssize_t i = 0; i < t.dim(); ++i) {
    const ssize_t d = i == 0 ? 1 : i == t.dim() - 1 ? 0 : t.dim() - i;
    if (t.numel() > 0 && t.sizes()[d] != 1 && t.strides()[d] != expected) {
      return false;
    }
    expected *= t.sizes()[d];
  }
  return true;
}

}  // namespace opsmith
