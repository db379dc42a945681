// The checks of a convolution's arguments, and the size of its result: the same for every library, texts of
// rejections included.
//
// Note [Large and small]
// A convolution ties two feature maps: the large one (input; output where it is transposed) and the small
// one, whose pixel g meets the large one's pixel g · stride - padding + k · dilation for every place k in the
// kernel. The weight is (channels of the small one, channels of the large one / groups, kernel) in either
// case. So there are three products: small from large, large from small, and the weight from both.
#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstring>
#include <optional>
#include <tuple>

#include "dims.h"
#include "dtype_names.h"
#include "dtypes.h"
#include "feature_map.h"
#include "resize.h"

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

// How the pixels of two feature maps meet, by spatial dimension: missing ones, in front, have a kernel of 1.
struct ConvolutionWindow {
  int64_t kernel[kSpatial];
  int64_t stride[kSpatial];
  int64_t padding[kSpatial];
  int64_t dilation[kSpatial];

  int64_t kernel_size() const { return kernel[0] * kernel[1] * kernel[2]; }
};

inline ConvolutionWindow convolution_window(const Tensor& weight, const ConvolutionParameters& parameters) {
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

inline bool convolution_sizes(KernelRuntimeContext& context, const Tensor& input, const Tensor& weight,
                              const ConvolutionParameters& parameters, Dims& output) {
  const int64_t rank = input.dim();
  const int64_t spatial = rank - 2;
  OPSMITH_CHECK(context, spatial >= 1 && spatial <= kSpatial && weight.dim() == rank, InvalidArgument, false,
                "Expected 3D to 5D input and weight of as many dimensions, but got %d and %d dimensions",
                static_cast<int>(rank), static_cast<int>(weight.dim()));
  OPSMITH_CHECK(context, input.scalar_type() == weight.scalar_type(), InvalidArgument, false,
                "Input type (%s) and weight type (%s) should be the same", name_of(input.scalar_type()),
                name_of(weight.scalar_type()));
  for (const auto list : {parameters.stride, parameters.padding, parameters.dilation}) {
    OPSMITH_CHECK(context, list.size() == 1 || static_cast<int64_t>(list.size()) == spatial, InvalidArgument,
                  false, "expected stride, padding and dilation of 1 or %d numbers, but got %zu",
                  static_cast<int>(spatial), list.size());
  }
  OPSMITH_CHECK(context,
                !parameters.transposed || parameters.output_padding.size() == 1 ||
                    static_cast<int64_t>(parameters.output_padding.size()) == spatial,
                InvalidArgument, false, "expected output_padding of 1 or %d numbers",
                static_cast<int>(spatial));
  // ATen leaves it to the library that computes, and none does where there is nothing to compute.
  for (int64_t d = 0; in_executorch() && parameters.transposed && d < spatial; ++d) {
    const int64_t added = entry(parameters.output_padding, d);
    OPSMITH_CHECK(
        context, added >= 0 && (added < entry(parameters.stride, d) || added < entry(parameters.dilation, d)),
        InvalidArgument, false,
        "output padding must be smaller than either stride or dilation, but got %" PRId64, added);
  }
  const int64_t groups = parameters.groups;
  OPSMITH_CHECK(context, groups > 0, InvalidArgument, false, "non-positive groups is not supported");
  OPSMITH_CHECK(context, weight.sizes()[0] % groups == 0, InvalidArgument, false,
                "Given groups=%" PRId64 ", expected weight to be divisible by it at dimension 0, but got %d",
                groups, static_cast<int>(weight.sizes()[0]));
  // A weight without elements may be of any number of groups.
  const Checked of_groups = Checked(weight.sizes()[1]) * groups;
  const Checked expected = parameters.transposed ? weight.sizes()[0] : of_groups;
  OPSMITH_CHECK(context, of_groups.fits() && expected == input.sizes()[1], InvalidArgument, false,
                "Given groups=%" PRId64 ", expected input to have %" PRId64
                " channels, but got %d channels instead",
                groups, expected.value(), static_cast<int>(input.sizes()[1]));
  output = {input.sizes()[0], parameters.transposed ? of_groups.value() : weight.sizes()[0]};
  if (input.sizes()[1] == 0) {
    output[1] = 0;  // as ATen says of inputs without channels
  }
  Checked bytes = Checked(std::max<int64_t>(input.sizes()[1], output[1])) *
                  static_cast<int64_t>(input.element_size());  // of a padded image
  for (int64_t d = 0; d < spatial; ++d) {
    const int64_t stride = entry(parameters.stride, d);
    const int64_t padding = entry(parameters.padding, d);
    const int64_t dilation = entry(parameters.dilation, d);
    OPSMITH_CHECK(context, stride > 0 && padding >= 0 && dilation > 0, InvalidArgument, false,
                  "non-positive stride or dilation, or negative padding, is not supported");
    const SlidingWindow window{weight.sizes()[2 + d], stride, padding, dilation};
    OPSMITH_CHECK(context, window.is_taken(), InvalidArgument, false,
                  "stride, padding or dilation is beyond %" PRId64, SlidingWindow::kMost);
    const int64_t size = input.sizes()[2 + d];
    const Checked result = parameters.transposed ? window.covered(size, entry(parameters.output_padding, d))
                                                 : window.places(size);
    OPSMITH_CHECK(context, parameters.transposed || result.value() >= 1, InvalidArgument, false,
                  "Calculated padded input size per channel: %" PRId64 ". Kernel size: %" PRId64
                  ". Kernel size can't be greater than actual input size",
                  window.padded(size).value(), window.reach().value());
    OPSMITH_CHECK(context, result.value() >= 0, InvalidArgument, false, "the output would be too small");
    bytes = bytes * window.padded(std::max(size, result.value()));
    OPSMITH_CHECK(context, result.fits() && bytes.fits(), InvalidArgument, false,
                  "sizes, padding and dilation go beyond 64 bits");
    output.push_back(result.value());
  }
  return true;
}

// Whether ATen computes nothing: then the operands' dtypes and shapes need not fit, and gradients are zeros.
inline bool is_empty_convolution(const Tensor& input) {
  return input.dim() >= 2 && (input.sizes()[0] == 0 || input.sizes()[1] == 0);
}

// The gradients where that is so.
inline void convolution_backward_of_nothing(KernelRuntimeContext& context, const Tensor& input,
                                            const Tensor& weight,
                                            const std::optional<ConvolutionParameters::List>& bias_sizes,
                                            executorch::aten::ArrayRef<bool> output_mask, Tensor& out0,
                                            Tensor& out1, Tensor& out2) {
  const auto zero = [&](Tensor& gradient, const Dims& sizes) {
    if (resize(context, gradient, sizes) && gradient.nbytes() > 0) {
      std::memset(gradient.mutable_data_ptr(), 0, gradient.nbytes());
    }
  };
  if (output_mask[0]) {
    zero(out0, sizes_of(input));
  }
  if (output_mask[1]) {
    zero(out1, sizes_of(weight));
  }
  if (output_mask[2] && bias_sizes.has_value()) {
    zero(out2, Dims(*bias_sizes));
  }
}

// `of_any_dtype`: the kernel converts it, as ExecuTorch's does.
inline bool convolution_takes_bias(KernelRuntimeContext& context, const Tensor& input,
                                   const std::optional<Tensor>& bias, const Dims& output,
                                   bool of_any_dtype = false) {
  OPSMITH_CHECK(
      context,
      !bias.has_value() || (bias->dim() == 1 && (bias->numel() == output.value[1] || output.value[1] == 0) &&
                            (of_any_dtype || bias->scalar_type() == input.scalar_type())),
      InvalidArgument, false,
      "expected bias to be 1-dimensional with %" PRId64 " elements of the input's dtype", output.value[1]);
  return true;
}

inline bool convolution_takes_gradient(KernelRuntimeContext& context, const Tensor& input,
                                       const Tensor& grad_output, const Dims& output) {
  OPSMITH_CHECK(context,
                grad_output.scalar_type() == input.scalar_type() && grad_output.dim() == output.rank &&
                    std::equal(output.value, output.value + output.rank, grad_output.sizes().begin()),
                InvalidArgument, false, "grad_output is not of the convolution's output size and dtype");
  return true;
}

// Checks a call of convolution_backward, for kernels that compute in Float, BFloat16 and Half: `is_taken`
// says whether the input is of one of these. `sizes` become those of the forward's output. False where
// nothing is left to compute: the call is rejected, or the gradients are those of an empty convolution.
inline bool begins_convolution_backward(KernelRuntimeContext& context, const Tensor& grad_output,
                                        const Tensor& input, const Tensor& weight,
                                        const std::optional<ConvolutionParameters::List>& bias_sizes,
                                        const ConvolutionParameters& parameters,
                                        executorch::aten::ArrayRef<bool> output_mask,
                                        const std::tuple<Tensor&, Tensor&, Tensor&>& gradients, bool is_taken,
                                        Dims& sizes) {
  const auto& [out0, out1, out2] = gradients;
  if (!is_mask_of(context, output_mask, 3)) {
    return false;
  }
  const Tensor* const outs[] = {&out0, &out1, &out2};
  for (size_t i = 0; i < 3; ++i) {
    if (output_mask[i] && !same_dtype(context, input, *outs[i])) {
      return false;
    }
  }
  if (is_empty_convolution(input)) {
    convolution_backward_of_nothing(context, input, weight, bias_sizes, output_mask, out0, out1, out2);
    return false;
  }
  if (!convolution_sizes(context, input, weight, parameters, sizes)) {
    return false;
  }
  OPSMITH_CHECK(context, is_taken, NotSupported, false,
                "convolution_backward takes float32, bfloat16 or float16, all operands the same");
  return convolution_takes_gradient(context, input, grad_output, sizes);
}

}  // namespace opsmith
