// Convolutions: PyTorch asks an out-of-tree device for these two operators, which have no CPU kernel of their
// own, so they run aten::convolution and aten::convolution_backward on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <tuple>

namespace opsmith {

at::Tensor convolution_overrideable(const at::Tensor& input, const at::Tensor& weight,
                                    const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                                    at::IntArrayRef output_padding, int64_t groups);

// Gradients of input, weight and bias; undefined where `output_mask` is false.
std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward_overrideable(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
    int64_t groups, std::array<bool, 3> output_mask);

}  // namespace opsmith
