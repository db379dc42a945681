// What a convolution's arguments have to be, and the size of its result: the same for every library, texts of
// refusals included.
//
// Note [Large and small]
// A convolution ties two images: the large one (input; output where it is transposed) and the small one,
// whose pixel g meets the large one's pixel g · stride - padding + tap · dilation. The weight is (channels of
// the small one, channels of the large one / groups, taps) in either case. So there are three products: small
// from large, large from small, and the weight from both.
#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <optional>

#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>
#include <executorch/runtime/kernel/kernel_includes.h>

#include "image.h"

namespace opsmith {

// The arguments of aten::convolution that are no Tensors. A list of one number stands for all dimensions.
struct ConvolutionParameters {
  using List = executorch::aten::ArrayRef<int64_t>;

  List stride;
  List padding;
  List dilation;
  bool transposed;
  List output_padding;
  int64_t groups;
};

// (batch, channels, one to three spatial dimensions)
struct ConvolutionSizes {
  int64_t rank = 0;
  int64_t value[2 + kSpatial] = {};
};

// How the pixels of two images meet, by spatial dimension: missing ones, in front, have a kernel of 1.
struct ConvolutionWindow {
  int64_t kernel[kSpatial];
  int64_t stride[kSpatial];
  int64_t padding[kSpatial];
  int64_t dilation[kSpatial];

  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
};

inline ConvolutionWindow convolution_window(const executorch::aten::Tensor& weight,
                                            const ConvolutionParameters& parameters) {
  ConvolutionWindow window{{1, 1, 1}, {1, 1, 1}, {}, {1, 1, 1}};
  const int64_t spatial = weight.dim() - 2;
  for (int64_t d = 0; d < spatial; ++d) {
    const int64_t to = d + kSpatial - spatial;
    window.kernel[to] = weight.sizes()[2 + d];
    window.stride[to] = entry(parameters.stride, d);
    window.padding[to] = entry(parameters.padding, d);
    window.dilation[to] = entry(parameters.dilation, d);
  }
  return window;
}

// Fails the call with a reason and returns false where the condition does not hold.
#define OPSMITH_CHECK_CONVOLUTION(condition, ...)                  \
  do {                                                             \
    if (!(condition)) {                                            \
      ET_LOG(Error, __VA_ARGS__);                                  \
      context.fail(::executorch::runtime::Error::InvalidArgument); \
      return false;                                                \
    }                                                              \
  } while (false)

inline bool convolution_sizes(executorch::runtime::KernelRuntimeContext& context,
                              const executorch::aten::Tensor& input, const executorch::aten::Tensor& weight,
                              const ConvolutionParameters& parameters, ConvolutionSizes& output) {
  const int64_t rank = input.dim();
  const int64_t spatial = rank - 2;
  OPSMITH_CHECK_CONVOLUTION(
      spatial >= 1 && spatial <= kSpatial && weight.dim() == rank,
      "Expected 3D to 5D input and weight of as many dimensions, but got %d and %d dimensions",
      static_cast<int>(rank), static_cast<int>(weight.dim()));
  OPSMITH_CHECK_CONVOLUTION(input.scalar_type() == weight.scalar_type(),
                            "Input type (%s) and weight type (%s) should be the same",
                            executorch::runtime::toString(input.scalar_type()),
                            executorch::runtime::toString(weight.scalar_type()));
  for (const auto list : {parameters.stride, parameters.padding, parameters.dilation}) {
    OPSMITH_CHECK_CONVOLUTION(list.size() == 1 || static_cast<int64_t>(list.size()) == spatial,
                              "expected stride, padding and dilation of 1 or %d numbers, but got %zu",
                              static_cast<int>(spatial), list.size());
  }
  OPSMITH_CHECK_CONVOLUTION(!parameters.transposed || parameters.output_padding.size() == 1 ||
                                static_cast<int64_t>(parameters.output_padding.size()) == spatial,
                            "expected output_padding of 1 or %d numbers", static_cast<int>(spatial));
  const int64_t groups = parameters.groups;
  OPSMITH_CHECK_CONVOLUTION(groups > 0, "non-positive groups is not supported");
  OPSMITH_CHECK_CONVOLUTION(weight.sizes()[0] % groups == 0,
                            "Given groups=%" PRId64
                            ", expected weight to be divisible by it at dimension 0, but got %d",
                            groups, static_cast<int>(weight.sizes()[0]));
  const int64_t expected = parameters.transposed ? weight.sizes()[0] : weight.sizes()[1] * groups;
  OPSMITH_CHECK_CONVOLUTION(input.sizes()[1] == expected,
                            "Given groups=%" PRId64 ", expected input to have %" PRId64
                            " channels, but got %d channels instead",
                            groups, expected, static_cast<int>(input.sizes()[1]));
  output.rank = rank;
  output.value[0] = input.sizes()[0];
  output.value[1] = parameters.transposed ? weight.sizes()[1] * groups : weight.sizes()[0];
  for (int64_t d = 0; d < spatial; ++d) {
    const int64_t stride = entry(parameters.stride, d);
    const int64_t padding = entry(parameters.padding, d);
    const int64_t dilation = entry(parameters.dilation, d);
    OPSMITH_CHECK_CONVOLUTION(stride > 0 && padding >= 0 && dilation > 0,
                              "non-positive stride or dilation, or negative padding, is not supported");
    const int64_t reach = dilation * (weight.sizes()[2 + d] - 1) + 1;
    const int64_t size = input.sizes()[2 + d];
    int64_t& result = output.value[2 + d];
    if (parameters.transposed) {
      result = (size - 1) * stride - 2 * padding + reach + entry(parameters.output_padding, d);
    } else {
      OPSMITH_CHECK_CONVOLUTION(size + 2 * padding >= reach,
                                "Calculated padded input size per channel: %" PRId64 ". Kernel size: %" PRId64
                                ". Kernel size can't be greater than actual input size",
                                size + 2 * padding, reach);
      result = (size + 2 * padding - reach) / stride + 1;
    }
    OPSMITH_CHECK_CONVOLUTION(result >= 0, "the output would be too small");
  }
  return true;
}

inline bool convolution_takes_bias(executorch::runtime::KernelRuntimeContext& context,
                                   const executorch::aten::Tensor& input,
                                   const std::optional<executorch::aten::Tensor>& bias,
                                   const ConvolutionSizes& output) {
  OPSMITH_CHECK_CONVOLUTION(
      !bias.has_value() || (bias->dim() == 1 && bias->numel() == output.value[1] &&
                            bias->scalar_type() == input.scalar_type()),
      "expected bias to be 1-dimensional with %" PRId64 " elements of the input's dtype", output.value[1]);
  return true;
}

inline bool convolution_takes_gradient(executorch::runtime::KernelRuntimeContext& context,
                                       const executorch::aten::Tensor& input,
                                       const executorch::aten::Tensor& grad_output,
                                       const ConvolutionSizes& output) {
  OPSMITH_CHECK_CONVOLUTION(
      grad_output.scalar_type() == input.scalar_type() && grad_output.dim() == output.rank &&
          std::equal(output.value, output.value + output.rank, grad_output.sizes().begin()),
      "grad_output is not of the convolution's output size and dtype");
  return true;
}

#undef OPSMITH_CHECK_CONVOLUTION

}  // namespace opsmith
