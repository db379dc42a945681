// How the results of quantization and of its inverse are shaped, for what opsmith derives: PyTorch's own
// functions for the meta device are in Python, and take longer than small Tensors' kernels.
#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>

namespace opsmith::quantized {
namespace {

// As empty_like, whose meta kernel is in Python too.
at::Tensor like(const at::Tensor& input, at::ScalarType dtype) {
  const auto options = input.options().dtype(dtype);
  return input.is_non_overlapping_and_dense()
             ? at::empty_strided_symint(input.sym_sizes(), input.sym_strides(), options)
             : at::empty_like(input, options);
}

at::Tensor floats_like(const at::Tensor& input, std::optional<at::ScalarType> dtype) {
  return like(input, dtype.value_or(at::kFloat));
}

}  // namespace

at::Tensor quantize_per_tensor_meta(const at::Tensor& input, double, int64_t, int64_t, int64_t,
                                    at::ScalarType dtype) {
  return like(input, dtype);
}

at::Tensor quantize_per_tensor_tensor_meta(const at::Tensor& input, const at::Tensor&, const at::Tensor&,
                                           int64_t, int64_t, at::ScalarType dtype) {
  return like(input, dtype);
}

at::Tensor quantize_per_channel_meta(const at::Tensor& input, const at::Tensor&, const at::Tensor&, int64_t,
                                     int64_t, int64_t, at::ScalarType dtype) {
  return like(input, dtype);
}

at::Tensor quantize_per_token_meta(const at::Tensor& input, const at::Tensor&, const at::Tensor&, int64_t,
                                   int64_t, at::ScalarType dtype) {
  return like(input, dtype);
}

at::Tensor dequantize_per_tensor_meta(const at::Tensor& input, double, int64_t, int64_t, int64_t,
                                      at::ScalarType, std::optional<at::ScalarType> out_dtype) {
  return floats_like(input, out_dtype);
}

at::Tensor dequantize_per_tensor_tensor_meta(const at::Tensor& input, const at::Tensor&, const at::Tensor&,
                                             int64_t, int64_t, at::ScalarType,
                                             std::optional<at::ScalarType> out_dtype) {
  return floats_like(input, out_dtype);
}

at::Tensor dequantize_per_channel_meta(const at::Tensor& input, const at::Tensor&,
                                       const std::optional<at::Tensor>&, int64_t, int64_t, int64_t,
                                       at::ScalarType, std::optional<at::ScalarType> out_dtype) {
  return floats_like(input, out_dtype);
}

at::Tensor dequantize_per_token_meta(const at::Tensor& input, const at::Tensor&, const at::Tensor&, int64_t,
                                     int64_t, at::ScalarType, at::ScalarType output_dtype) {
  return like(input, output_dtype);
}

}  // namespace opsmith::quantized
