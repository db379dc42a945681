// Sizes of results, calculated from what a caller gave, for PyTorch.
#pragma once

#include "../common/checked_sizes.h"

#include <cmath>
#include <limits>

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

// The memory format that a convolution's operands have together: the input's, or else the weight's.
inline at::MemoryFormat convolution_format(const at::Tensor& input, const at::Tensor& weight) {
  const at::MemoryFormat of_input = input.suggest_memory_format();
  return of_input != at::MemoryFormat::Contiguous ? of_input : weight.suggest_memory_format();
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

// Of arange, which raises what PyTorch does. As PyTorch counts: whole numbers of 64 bits by themselves, all
// else in double.
inline int64_t arange_length(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                             at::ScalarType dtype) {
  const double from = start.toDouble();
  const double to = end.toDouble();
  const double by = step.toDouble();
  TORCH_CHECK(by != 0, "step must be nonzero");
  TORCH_CHECK(std::isfinite(from) && std::isfinite(to), "unsupported range: ", from, " -> ", to);
  TORCH_CHECK((by > 0 && to >= from) || (by < 0 && to <= from),
              "upper bound and lower bound inconsistent with step sign");
  if (dtype == at::kLong) {
    const int64_t whole = step.toLong();
    TORCH_CHECK_VALUE(whole != 0, "step must be nonzero");
    return (end.toLong() - start.toLong() + whole - (whole > 0 ? 1 : -1)) / whole;
  }
  const double length = std::ceil((to - from) / by);
  TORCH_CHECK(length < static_cast<double>(std::numeric_limits<int64_t>::max()),
              "invalid size, possible overflow?");
  return static_cast<int64_t>(length);
}

}  // namespace opsmith::meta_functions
