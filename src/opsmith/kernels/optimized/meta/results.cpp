// The meta kernels of the library's own operators.
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/SymIntArrayRef.h>

namespace opsmith::optimized {

namespace {

std::tuple<at::Tensor, at::Tensor> normed_and_sum(const char* name, const at::Tensor& input,
                                                  const at::Tensor& residual,
                                                  at::IntArrayRef normalized_shape) {
  TORCH_CHECK(input.sym_sizes() == residual.sym_sizes() &&
                  input.dim() >= static_cast<int64_t>(normalized_shape.size()),
              name, ": input and residual have one shape, and at least the normalized dimensions; they are ",
              input.sym_sizes(), " and ", residual.sym_sizes());
  return {at::empty_symint(input.sym_sizes(), input.options()),
          at::empty_symint(input.sym_sizes(), input.options())};
}

}  // namespace

// Called for each functional call: `same_as` in the manifest would take a copy of the operand without its
// data.
at::Tensor rms_norm_meta(const at::Tensor& input, at::IntArrayRef /*normalized_shape*/,
                         const std::optional<at::Tensor>& /*weight*/, std::optional<double> /*eps*/) {
  return at::empty_symint(input.sym_sizes(), input.options());
}

std::tuple<at::Tensor, at::Tensor> add_rms_norm_meta(const at::Tensor& input, const at::Tensor& residual,
                                                     at::IntArrayRef normalized_shape,
                                                     const std::optional<at::Tensor>& /*weight*/,
                                                     std::optional<double> /*eps*/) {
  return normed_and_sum("add_rms_norm", input, residual, normalized_shape);
}

std::tuple<at::Tensor, at::Tensor> add_layer_norm_meta(const at::Tensor& input, const at::Tensor& residual,
                                                       at::IntArrayRef normalized_shape,
                                                       const std::optional<at::Tensor>& /*weight*/,
                                                       const std::optional<at::Tensor>& /*bias*/,
                                                       double /*eps*/) {
  return normed_and_sum("add_layer_norm", input, residual, normalized_shape);
}

at::Tensor bias_gelu_meta(const at::Tensor& input, const at::Tensor& bias, std::string_view /*approximate*/) {
  TORCH_CHECK(input.dim() >= 1 && bias.dim() == 1 && input.sym_size(-1) == bias.sym_size(0),
              "bias_gelu: there is a bias for each element of the last dimension; the sizes are ",
              input.sym_sizes(), " and ", bias.sym_sizes());
  return at::empty_symint(input.sym_sizes(), input.options());
}

at::Tensor rope_meta(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& /*sin*/,
                     bool /*interleaved*/) {
  TORCH_CHECK(x.dim() >= cos.dim() && cos.dim() >= 1, "rope: cos and sin broadcast to x; the sizes are ",
              cos.sym_sizes(), " and ", x.sym_sizes());
  return at::empty_symint(x.sym_sizes(), x.options());
}

// matmul_operands.h describes the layout; it is not included, being compiled without PyTorch.
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
    TORCH_CHECK(entry(stride, d) > 0, "convolution_packed: non-positive stride is not supported");
    const c10::SymInt reach = entry(dilation, d) * (entry(kernel_size, d) - 1) + 1;
    sizes.push_back(
        (input.sym_size(static_cast<int64_t>(d) + 2) + 2 * entry(padding, d) - reach) / entry(stride, d) + 1);
  }
  return at::empty_symint(sizes, input.options().memory_format(at::MemoryFormat::ChannelsLast));
}

}  // namespace opsmith::optimized
