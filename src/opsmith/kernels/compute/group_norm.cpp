// Group norm and its gradients: layer norm of each group's elements, then each channel's weight and bias.
#include <array>
#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/sum.h>

#include "dense.h"

namespace opsmith::compute {
namespace {

// Halves are computed with in float, and rounded once.
at::ScalarType group_norm_dtype(const at::Tensor& input) {
  return at::isReducedFloatingType(input.scalar_type()) ? at::kFloat : input.scalar_type();
}

// A weight or bias, (C), beside (N, C, elements); undefined where there is none.
at::Tensor beside_channels(const std::optional<at::Tensor>& parameter, at::ScalarType dtype) {
  return parameter.has_value() && parameter->defined() ? parameter->to(dtype).view({1, -1, 1}) : at::Tensor();
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_group_norm(const at::Tensor& input,
                                                                 const std::optional<at::Tensor>& weight,
                                                                 const std::optional<at::Tensor>& bias,
                                                                 int64_t N, int64_t C, int64_t HxW,
                                                                 int64_t group, double eps) {
  const at::ScalarType dtype = group_norm_dtype(input);
  const at::ScalarType statistics =
      parameters_dtype(input, {weight.value_or(at::Tensor()), bias.value_or(at::Tensor())});
  const int64_t elements = C / group * HxW;
  const at::Tensor rows = input.to(dtype).contiguous().view({N * group, elements});
  auto [normal, mean, rstd] = at::native_layer_norm(rows, {elements}, std::nullopt, std::nullopt, eps);
  at::Tensor out = normal.view({N, C, HxW});
  const at::Tensor w = beside_channels(weight, dtype);
  const at::Tensor b = beside_channels(bias, dtype);
  if (w.defined() && b.defined()) {
    out = at::addcmul(b, out, w);
  } else if (w.defined() || b.defined()) {
    out = w.defined() ? out.mul(w) : out.add(b);
  }
  return {out.view(input.sizes()).to(input.scalar_type()).contiguous(input.suggest_memory_format()),
          mean.view({N, group}).to(statistics), rstd.view({N, group}).to(statistics)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_group_norm_backward(
    const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd,
    const std::optional<at::Tensor>& weight, int64_t N, int64_t C, int64_t HxW, int64_t group,
    std::array<bool, 3> output_mask) {
  require_dtype(input.scalar_type(), grad_out);
  const at::ScalarType dtype = group_norm_dtype(input);
  const int64_t elements = C / group * HxW;
  const at::Tensor grad = grad_out.to(dtype).contiguous().view({N, C, HxW});
  const at::Tensor rows = input.to(dtype).contiguous().view({N * group, elements});
  const at::Tensor centre = mean.to(dtype).view({N * group, 1});
  const at::Tensor scale = rstd.to(dtype).view({N * group, 1});
  const at::Tensor w = beside_channels(weight, dtype);
  const at::ScalarType parameters = w.defined() ? weight->scalar_type() : input.scalar_type();
  at::Tensor grad_input, grad_weight, grad_bias;
  if (output_mask[0]) {
    const at::Tensor weighed = (w.defined() ? grad.mul(w) : grad).view({N * group, elements});
    grad_input = std::get<0>(at::native_layer_norm_backward(weighed, rows, {elements}, centre, scale,
                                                            std::nullopt, std::nullopt, {true, false, false}))
                     .view(input.sizes())
                     .to(input.scalar_type())
                     .contiguous(input.suggest_memory_format());
  }
  if (output_mask[1]) {
    const at::Tensor normal = rows.sub(centre).mul_(scale).view({N, C, HxW});
    grad_weight = grad.mul(normal).sum(at::IntArrayRef{0, 2}).to(parameters);
  }
  if (output_mask[2]) {
    grad_bias = grad.sum(at::IntArrayRef{0, 2}).to(parameters);
  }
  return {std::move(grad_input), std::move(grad_weight), std::move(grad_bias)};
}

}  // namespace opsmith::compute
