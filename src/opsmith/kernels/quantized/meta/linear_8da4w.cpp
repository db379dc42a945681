// How the result of linear_8da4w is shaped, for PyTorch.
#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

namespace opsmith::quantized {

at::Tensor linear_8da4w_meta(const at::Tensor& input, const at::Tensor& /*weight*/,
                             const at::Tensor& /*weight_scales*/, const std::optional<at::Tensor>& /*bias*/,
                             c10::SymInt out_features) {
  TORCH_CHECK(input.dim() >= 1, "linear_8da4w: an input is [..., depth], not 0-dimensional");
  std::vector<c10::SymInt> sizes = input.sym_sizes().vec();
  sizes.back() = std::move(out_features);
  return at::empty_symint(sizes, input.options().dtype(at::kFloat));
}

}  // namespace opsmith::quantized
