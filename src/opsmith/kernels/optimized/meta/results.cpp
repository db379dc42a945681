// What the library's own operators return, of tensors without data.
#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/SymIntArrayRef.h>

namespace opsmith::optimized {

// Called for each functional call: `same_as` in the manifest would take a copy of the operand without its
// data.
at::Tensor rms_norm_meta(const at::Tensor& input, at::IntArrayRef /*normalized_shape*/,
                         const std::optional<at::Tensor>& /*weight*/, std::optional<double> /*eps*/) {
  return at::empty_symint(input.sym_sizes(), input.options());
}

// gemm_operands.h describes the layout; it is not included, being compiled without PyTorch.
at::Tensor pack_linear_weight_meta(const at::Tensor& weight) {
  TORCH_CHECK(weight.dim() == 2, "pack_linear_weight: a weight is [features, depth], not of ", weight.dim(),
              " dimensions");
  const bool is_pairs = weight.scalar_type() == at::kBFloat16;
  const c10::SymInt depth = is_pairs ? (weight.sym_size(1) + 1) / 2 : weight.sym_size(1);
  return at::empty_symint({(weight.sym_size(0) + 15) / 16, depth, is_pairs ? 32 : 16}, weight.options());
}

at::Tensor linear_packed_meta(const at::Tensor& input, const at::Tensor& /*packed*/,
                              const std::optional<at::Tensor>& /*bias*/, c10::SymInt out_features) {
  TORCH_CHECK(input.dim() >= 1, "linear_packed: an input is [..., depth], not 0-dimensional");
  c10::SymDimVector sizes(input.sym_sizes());
  sizes.back() = out_features;
  return at::empty_symint(sizes, input.options());
}

}  // namespace opsmith::optimized
