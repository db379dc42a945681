// How the results of this library's operators are shaped, for what opsmith derives: ExecuTorch's own
// functions for the meta device are in Python.
#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

namespace opsmith::llm {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

at::Tensor like(const at::Tensor& tensor) {
  return at::empty_symint(tensor.sym_sizes(), tensor.options());
}

at::Tensor placeholder(const at::Tensor& value) {
  return at::empty({1}, value.options());
}

// A row of the weight, whose bytes hold values of so many bits, for each index.
at::Tensor embedded(const at::Tensor& weight, int64_t bits, const at::Tensor& indices, at::ScalarType dtype) {
  TORCH_CHECK(weight.dim() == 2, "a quantized embedding has 2 dimensions, not ", weight.dim());
  c10::SymDimVector sizes(indices.sym_sizes());
  sizes.push_back(weight.sym_size(1) * (8 / bits));
  return at::empty_symint(sizes, weight.options().dtype(dtype));
}

at::Tensor product(const at::Tensor& input, const at::Tensor& weight, int64_t columns, at::ScalarType dtype) {
  TORCH_CHECK(input.dim() == 2 && weight.dim() == 2, "`input` and `weight` have 2 dimensions, not ",
              input.dim(), " and ", weight.dim());
  return at::empty_symint({input.sym_size(0), weight.sym_size(columns)}, input.options().dtype(dtype));
}

}  // namespace

at::Tensor custom_sdpa_meta(const at::Tensor& query, const at::Tensor&, const at::Tensor&, c10::SymInt,
                            const OptionalTensor&, double, bool, std::optional<double>) {
  return like(query);
}

at::Tensor sdpa_with_kv_cache_meta(const at::Tensor& query, const at::Tensor&, const at::Tensor&,
                                   const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt,
                                   const OptionalTensor&, double, bool, std::optional<double>) {
  return like(query);
}

at::Tensor custom_quantized_sdpa_meta(const at::Tensor& query, const at::Tensor&, const at::Tensor&,
                                      c10::SymInt, const OptionalTensor&, double, bool, std::optional<double>,
                                      const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                      const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                      bool) {
  return at::empty_symint(query.sym_sizes(), query.options().dtype(at::kFloat));
}

at::Tensor update_cache_meta(const at::Tensor& value, const at::Tensor&, c10::SymInt) {
  return placeholder(value);
}

at::Tensor update_cache_with_indices_meta(const at::Tensor& value, const at::Tensor&, c10::SymInt,
                                          const at::Tensor&) {
  return placeholder(value);
}

std::tuple<at::Tensor, at::Tensor> channelwise_gated_delta_rule_meta(const at::Tensor&, const at::Tensor&,
                                                                     const at::Tensor& value,
                                                                     const at::Tensor&, const at::Tensor&,
                                                                     const at::Tensor& initial_state) {
  return {like(value), like(initial_state)};
}

at::Tensor fast_hadamard_transform_meta(const at::Tensor& mat) {
  return like(mat);
}

at::Tensor fallback_meta(const at::Tensor& input) {
  return like(input);
}

at::Tensor tile_crop_meta(const at::Tensor& input, int64_t tile_size) {
  TORCH_CHECK(input.dim() == 3 && tile_size > 0,
              "tile_crop: an image is [channels, height, width], and a tile has pixels");
  const c10::SymInt tiles = (input.sym_size(1) / tile_size) * (input.sym_size(2) / tile_size);
  return at::empty_symint({tiles, input.sym_size(0), tile_size, tile_size}, input.options());
}

#define OPSMITH_EMBEDDING(name, bits)                                                                        \
  at::Tensor embedding_##name##_scales_meta(const at::Tensor& weight, const at::Tensor& weight_scales,       \
                                            const OptionalTensor&, int64_t, int64_t,                         \
                                            const at::Tensor& indices) {                                     \
    return embedded(weight, bits, indices, weight_scales.scalar_type());                                     \
  }                                                                                                          \
  at::Tensor embedding_##name##_dtype_meta(const at::Tensor& weight, const at::Tensor& weight_scales,        \
                                           const OptionalTensor&, int64_t, int64_t,                          \
                                           const at::Tensor& indices, std::optional<at::ScalarType> dtype) { \
    return embedded(weight, bits, indices, dtype.value_or(weight_scales.scalar_type()));                     \
  }
OPSMITH_EMBEDDING(byte, 8)
OPSMITH_EMBEDDING(4bit, 4)
OPSMITH_EMBEDDING(2bit, 2)
#undef OPSMITH_EMBEDDING

at::Tensor mixed_mm_meta(const at::Tensor& input, const at::Tensor& weight, const at::Tensor&,
                         const OptionalTensor&) {
  return product(input, weight, 1, input.scalar_type());
}

at::Tensor mixed_linear_meta(const at::Tensor& input, const at::Tensor& weight, const at::Tensor&,
                             const OptionalTensor&, std::optional<at::ScalarType> dtype) {
  return product(input, weight, 0, dtype.value_or(input.scalar_type()));
}

}  // namespace opsmith::llm
