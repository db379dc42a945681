// See synchronized_batch_norm.h. The formulas are those of Ioffe and Szegedy, "Batch Normalization" (2015).
#include <opsmith/operators/synchronized_batch_norm.h>

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/full.h>
#include <ATen/ops/var_mean.h>

#include <vector>

namespace opsmith {

namespace {

at::Tensor widened(const at::Tensor& tensor) {
  return tensor.to(at::toOpMathType(tensor.scalar_type()));
}

// All but that of the channels.
std::vector<int64_t> reduced_dims(const at::Tensor& input) {
  TORCH_CHECK(input.dim() >= 2, "batch norm: expected an input of two dimensions at least, but got ",
              input.sizes());
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < input.dim(); ++dim) {
    dims.push_back(dim);
  }
  return dims;
}

// A value for each channel, that broadcasts with `input`.
at::Tensor over(const at::Tensor& values, const at::Tensor& input) {
  std::vector<int64_t> sizes(static_cast<size_t>(input.dim()), 1);
  sizes[1] = values.numel();
  return values.view(sizes);
}

bool has(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined();
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> batch_norm_stats(const at::Tensor& input, double eps) {
  auto [variance, mean] = at::var_mean(widened(input), reduced_dims(input), /*correction=*/0);
  return {std::move(mean), variance.add_(eps).rsqrt_()};
}

std::tuple<at::Tensor, at::Tensor> batch_norm_gather_stats_with_counts(
    const at::Tensor& /*input*/, const at::Tensor& mean, const at::Tensor& invstd,
    const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var,
    double momentum, double eps, const at::Tensor& counts) {
  const at::Tensor weights = counts.to(mean.scalar_type()).view({-1, 1});
  const at::Tensor total = weights.sum();
  at::Tensor all_mean = mean.mul(weights).sum(0).div_(total);
  const at::Tensor variances = invstd.square().reciprocal_().sub_(eps);
  const at::Tensor variance = variances.add_(mean.sub(all_mean).square_()).mul_(weights).sum(0).div_(total);
  if (has(running_mean)) {
    running_mean->lerp_(all_mean.to(running_mean->scalar_type()), momentum);
  }
  if (has(running_var)) {
    const at::Tensor unbiased = variance.mul(total).div_(total.sub(1));
    running_var->lerp_(unbiased.to(running_var->scalar_type()), momentum);
  }
  return {std::move(all_mean), variance.add(eps).rsqrt_()};
}

std::tuple<at::Tensor, at::Tensor> batch_norm_gather_stats(const at::Tensor& input, const at::Tensor& mean,
                                                           const at::Tensor& invstd,
                                                           const std::optional<at::Tensor>& running_mean,
                                                           const std::optional<at::Tensor>& running_var,
                                                           double momentum, double eps, int64_t count) {
  return opsmith::batch_norm_gather_stats_with_counts(input, mean, invstd, running_mean, running_var,
                                                      momentum, eps,
                                                      at::full({mean.size(0)}, count, mean.options()));
}

at::Tensor batch_norm_elemt(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& mean,
                            const at::Tensor& invstd, double /*eps*/) {
  const at::Tensor scale = has(weight) ? invstd.mul(*weight) : invstd;
  at::Tensor result = widened(input).sub(over(mean, input)).mul_(over(scale, input));
  if (has(bias)) {
    result.add_(over(*bias, input));
  }
  return result.to(input.scalar_type());
}

at::Tensor& batch_norm_elemt_out(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                                 const std::optional<at::Tensor>& bias, const at::Tensor& mean,
                                 const at::Tensor& invstd, double eps, at::Tensor& out) {
  const at::Tensor result = opsmith::batch_norm_elemt(input, weight, bias, mean, invstd, eps);
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_backward_reduce(
    const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
    const std::optional<at::Tensor>& weight, bool input_g, bool weight_g, bool bias_g) {
  const std::vector<int64_t> dims = reduced_dims(input);
  const at::Tensor grad = widened(grad_out);
  const at::Tensor sum_dy = grad.sum(dims);
  const at::Tensor sum_dy_xmu = widened(input).sub(over(mean, input)).mul_(grad).sum(dims);
  const at::ScalarType dtype = has(weight) ? weight->scalar_type() : input.scalar_type();
  return {input_g ? sum_dy : at::Tensor(), input_g ? sum_dy_xmu : at::Tensor(),
          weight_g ? sum_dy_xmu.mul(invstd).to(dtype) : at::Tensor(),
          bias_g ? sum_dy.to(dtype) : at::Tensor()};
}

at::Tensor batch_norm_backward_elemt(const at::Tensor& grad_out, const at::Tensor& input,
                                     const at::Tensor& mean, const at::Tensor& invstd,
                                     const std::optional<at::Tensor>& weight, const at::Tensor& sum_dy,
                                     const at::Tensor& sum_dy_xmu, const at::Tensor& count) {
  const at::Tensor total = count.sum().to(sum_dy.scalar_type());
  const at::Tensor slope = sum_dy_xmu.div(total).mul_(invstd.square());
  const at::Tensor scale = has(weight) ? invstd.mul(*weight) : invstd;
  return widened(grad_out)
      .sub(over(sum_dy.div(total), input))
      .sub_(widened(input).sub(over(mean, input)).mul_(over(slope, input)))
      .mul_(over(scale, input))
      .to(input.scalar_type());
}

}  // namespace opsmith
