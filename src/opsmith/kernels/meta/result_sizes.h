// Sizes of results, calculated from what a caller gave, for PyTorch.
#pragma once

#include "../common/checked_sizes.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace opsmith::meta_functions {

// The size, which raises where it does not fit.
inline int64_t value_of(Checked size, const char* name) {
  TORCH_CHECK(size.fits(), name, ": a size of the result goes beyond 64 bits");
  return size.value();
}

// The element for `dim` of a list that may have one for all dimensions.
inline int64_t at_dim(at::IntArrayRef values, size_t dim) {
  return values.size() == 1 ? values[0] : values[dim];
}

// Of a convolution with arguments that ATen takes.
inline at::DimVector convolution_result(const at::Tensor& input, const at::Tensor& weight,
                                        at::IntArrayRef stride, at::IntArrayRef padding,
                                        at::IntArrayRef dilation, bool transposed,
                                        at::IntArrayRef output_padding, int64_t groups) {
  const Checked channels = transposed ? Checked(groups) * weight.size(1) : weight.size(0);
  at::DimVector sizes{input.size(0), input.size(1) == 0 ? 0 : value_of(channels, "convolution")};
  for (int64_t i = 2; i < input.dim(); ++i) {
    const size_t dim = static_cast<size_t>(i - 2);
    const SlidingWindow window{weight.size(i), at_dim(stride, dim), at_dim(padding, dim),
                               at_dim(dilation, dim)};
    const Checked size = transposed ? window.covered(input.size(i), at_dim(output_padding, dim))
                                    : window.places(input.size(i));
    sizes.push_back(value_of(size, "convolution"));
  }
  return sizes;
}

}  // namespace opsmith::meta_functions
