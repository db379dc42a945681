// How the results of linear_int8 are shaped, for PyTorch.
#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

namespace opsmith::quantized {
namespace {

at::Tensor linear_meta(const at::Tensor& input, const at::Tensor& weight) {
  TORCH_CHECK(
      input.dim() >= 1 && weight.dim() == 2 && input.sym_size(-1) == weight.sym_size(1),
      "linear_int8: `weight` has to have 2 dimensions, the second as large as the last of `input`; they are ",
      input.sym_sizes(), " and ", weight.sym_sizes());
  std::vector<c10::SymInt> sizes = input.sym_sizes().vec();
  sizes.back() = weight.sym_size(0);
  return at::empty_symint(sizes, input.options().dtype(at::kFloat));
}

}  // namespace

at::Tensor linear_int8_meta(const at::Tensor& input, double /*input_scale*/, int64_t /*input_zero_point*/,
                            const at::Tensor& weight, const at::Tensor& /*weight_scales*/,
                            const std::optional<at::Tensor>& /*bias*/) {
  return linear_meta(input, weight);
}

at::Tensor linear_int8_per_token_meta(const at::Tensor& input, const at::Tensor& /*input_scales*/,
                                      const at::Tensor& /*input_zero_points*/, const at::Tensor& weight,
                                      const at::Tensor& /*weight_scales*/,
                                      const std::optional<at::Tensor>& /*bias*/) {
  return linear_meta(input, weight);
}

at::Tensor linear_int8_requantized_meta(const at::Tensor& input, double /*input_scale*/,
                                        int64_t /*input_zero_point*/, const at::Tensor& /*weight*/,
                                        const at::Tensor& /*weight_scales*/,
                                        const std::optional<at::Tensor>& /*bias*/, int64_t out_features,
                                        double /*output_scale*/, int64_t /*output_zero_point*/,
                                        int64_t /*output_min*/, int64_t /*output_max*/) {
  TORCH_CHECK(input.dim() >= 1, "linear_int8: an input is [..., depth], not 0-dimensional");
  std::vector<c10::SymInt> sizes = input.sym_sizes().vec();
  sizes.back() = out_features;
  return at::empty_symint(sizes, input.options());
}

}  // namespace opsmith::quantized
