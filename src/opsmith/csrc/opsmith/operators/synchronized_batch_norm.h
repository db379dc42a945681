// The operators of torch.nn.SyncBatchNorm, which PyTorch has for its GPUs only. They are made of the device's
// own operators. Statistics have a value for each channel, dimension 1, in float32 where elements are
// shorter.
#pragma once

#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>

namespace opsmith {

// aten::batch_norm_stats: mean and 1/sqrt(variance + eps) of this process's elements.
std::tuple<at::Tensor, at::Tensor> batch_norm_stats(const at::Tensor& input, double eps);

// aten::batch_norm_gather_stats(_with_counts): those of all processes, whose own are the rows of `mean` and
// `invstd`, of `counts` elements for each channel; updates the running ones.
std::tuple<at::Tensor, at::Tensor> batch_norm_gather_stats_with_counts(
    const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
    const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var,
    double momentum, double eps, const at::Tensor& counts);
std::tuple<at::Tensor, at::Tensor> batch_norm_gather_stats(const at::Tensor& input, const at::Tensor& mean,
                                                           const at::Tensor& invstd,
                                                           const std::optional<at::Tensor>& running_mean,
                                                           const std::optional<at::Tensor>& running_var,
                                                           double momentum, double eps, int64_t count);

// aten::batch_norm_elemt: `input`, normalised.
at::Tensor batch_norm_elemt(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& mean,
                            const at::Tensor& invstd, double eps);
at::Tensor& batch_norm_elemt_out(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                                 const std::optional<at::Tensor>& bias, const at::Tensor& mean,
                                 const at::Tensor& invstd, double eps, at::Tensor& out);

// aten::batch_norm_backward_reduce: the sums of `grad_out` and of `grad_out * (input - mean)`, and this
// process's gradients of weight and bias. What is not asked for is undefined.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_backward_reduce(
    const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
    const std::optional<at::Tensor>& weight, bool input_g, bool weight_g, bool bias_g);

// aten::batch_norm_backward_elemt: the gradient of `input`, from these sums over all processes, whose
// elements for each channel are `count`.
at::Tensor batch_norm_backward_elemt(const at::Tensor& grad_out, const at::Tensor& input,
                                     const at::Tensor& mean, const at::Tensor& invstd,
                                     const std::optional<at::Tensor>& weight, const at::Tensor& sum_dy,
                                     const at::Tensor& sum_dy_xmu, const at::Tensor& count);

}  // namespace opsmith
