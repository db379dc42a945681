// What the library's own operators return, of tensors without data.
#include <optional>
#include <string_view>
#include <utility>

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
                              const std::optional<at::Tensor>& /*bias*/, c10::SymInt out_features,
                              const std::optional<at::Tensor>& /*other*/, std::string_view /*activation*/) {
  TORCH_CHECK(input.dim() >= 1, "linear_packed: an input is [..., depth], not 0-dimensional");
  c10::SymDimVector sizes(input.sym_sizes());
  sizes.back() = out_features;
  return at::empty_symint(sizes, input.options());
}

// Channels-last, whatever the image is.
at::Tensor convolution_packed_meta(const at::Tensor& input, const at::Tensor& /*packed*/,
                                   const std::optional<at::Tensor>& /*bias*/,
                                   const std::optional<at::Tensor>& /*other*/, c10::SymInt out_channels,
                                   at::IntArrayRef kernel_size, c10::SymIntArrayRef stride,
                                   c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
                                   int64_t /*groups*/, std::string_view /*activation*/) {
  TORCH_CHECK(input.dim() == 4, "convolution_packed: an image is [batch, channels, y, x], not of ",
              input.dim(), " dimensions");
  const auto entry = [](const auto& list, size_t d) {
    TORCH_CHECK(
        list.size() == 1 || list.size() == 2,
        "convolution_packed: expected kernel_size, stride, padding and dilation of 1 or 2 numbers, but "
        "got ",
        list.size());
    return list[list.size() == 1 ? 0 : d];
  };
  c10::SymDimVector sizes{input.sym_size(0), std::move(out_channels)};
  for (size_t d = 0; d < 2; ++d) {
    const c10::SymInt reach = entry(dilation, d) * (entry(kernel_size, d) - 1) + 1;
    sizes.push_back(
        (input.sym_size(static_cast<int64_t>(d) + 2) + 2 * entry(padding, d) - reach) / entry(stride, d) + 1);
  }
  return at::empty_symint(sizes, input.options().memory_format(at::MemoryFormat::ChannelsLast));
}

}  // namespace opsmith::optimized
