// Convolutions and averages of windows, and their gradients.
#include "meta_tensors.h"

#include <array>
#include <tuple>

namespace opsmith::meta_functions {
namespace {

// The element for `dim` of a list that may have one for all dimensions.
int64_t at_dim(at::IntArrayRef values, size_t dim) {
  return values.size() == 1 ? values[0] : values[dim];
}

at::MemoryFormat format_of(const at::Tensor& first, const at::Tensor& second) {
  for (const at::MemoryFormat format : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::ChannelsLast3d}) {
    if (first.suggest_memory_format() == format || second.suggest_memory_format() == format) {
      return format;
    }
  }
  return at::MemoryFormat::Contiguous;
}

}  // namespace

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& /*bias*/, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  TORCH_CHECK(input.dim() >= 3 && input.dim() == weight.dim(), "Expected ", weight.dim(),
              "-dimensional input for ", weight.dim(), "-dimensional weight ", weight.sizes(),
              ", but got input of size: ", input.sizes(), " instead");
  TORCH_CHECK(weight.size(0) >= groups, "Given groups=", groups, ", expected weight to be at least ", groups,
              " at dimension 0, but got weight of size ", weight.sizes(), " instead");
  TORCH_CHECK(transposed || weight.size(1) * groups == input.size(1), "Given groups=", groups,
              ", weight of size ", weight.sizes(), ", expected input", input.sizes(), " to have ",
              weight.size(1) * groups, " channels, but got ", input.size(1), " channels instead");
  at::DimVector sizes{input.size(0), transposed ? groups * weight.size(1) : weight.size(0)};
  if (input.size(1) == 0) {
    sizes[1] = 0;
  }
  for (int64_t i = 2; i < input.dim(); ++i) {
    const size_t dim = static_cast<size_t>(i - 2);
    const int64_t pad = 2 * at_dim(padding, dim);
    const int64_t window = at_dim(dilation, dim) * (weight.size(i) - 1) + 1;
    const int64_t step = at_dim(stride, dim);
    if (transposed) {
      const int64_t more = at_dim(output_padding, dim);
      TORCH_CHECK(more < step || more < at_dim(dilation, dim),
                  "output padding must be smaller than either stride or dilation, but got output_padding: ",
                  more, " stride: ", step, " dilation: ", at_dim(dilation, dim));
      sizes.push_back((input.size(i) - 1) * step - pad + window + more);
    } else {
      TORCH_CHECK(step > 0, "non-positive stride is not supported");
      TORCH_CHECK(input.size(i) + pad >= window, "Calculated padded input size per channel: (",
                  input.size(i) + pad, "). Kernel size: (", window,
                  "). Kernel size can't be greater than actual input size");
      sizes.push_back((input.size(i) + pad - window) / step + 1);
    }
    TORCH_CHECK(sizes.back() > 0 || (transposed && sizes.back() == 0),
                "Given input size per channel: ", input.sizes().slice(2),
                ". Calculated output size per channel: ", at::IntArrayRef(sizes).slice(2),
                ". Output size is too small");
  }
  return contiguous(sizes, input.scalar_type(), format_of(input, weight));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight,
    at::OptionalIntArrayRef bias_sizes, at::IntArrayRef /*stride*/, at::IntArrayRef /*padding*/,
    at::IntArrayRef /*dilation*/, bool /*transposed*/, at::IntArrayRef /*output_padding*/, int64_t /*groups*/,
    std::array<bool, 3> mask) {
  const at::ScalarType dtype = grad_output.scalar_type();
  const at::MemoryFormat format = format_of(input, weight);
  TORCH_CHECK(!mask[2] || bias_sizes.has_value(), "convolution_backward: bias_sizes is missing");
  return {mask[0] ? contiguous(input.sizes(), dtype, format) : at::Tensor(),
          mask[1] ? contiguous(weight.sizes(), dtype, format) : at::Tensor(),
          mask[2] ? contiguous(*bias_sizes, dtype) : at::Tensor()};
}

at::Tensor adaptive_avg_pool2d(const at::Tensor& self, at::IntArrayRef output_size) {
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4, "Expected 3D or 4D tensor, but got ", self.sizes());
  at::DimVector sizes(self.sizes().slice(0, self.dim() - 2));
  sizes.append(output_size.begin(), output_size.end());
  return contiguous(sizes, self.scalar_type(), self.suggest_memory_format());
}

at::Tensor adaptive_avg_pool3d(const at::Tensor& self, at::IntArrayRef output_size) {
  TORCH_CHECK(self.dim() == 4 || self.dim() == 5, "Expected 4D or 5D tensor, but got ", self.sizes());
  at::DimVector sizes(self.sizes().slice(0, self.dim() - 3));
  sizes.append(output_size.begin(), output_size.end());
  return contiguous(sizes, self.scalar_type());
}

at::Tensor adaptive_avg_pool2d_backward(const at::Tensor& grad_output, const at::Tensor& self) {
  TORCH_CHECK(self.scalar_type() == grad_output.scalar_type(), "expected dtype ", self.scalar_type(),
              " for `grad_output` but got dtype ", grad_output.scalar_type());
  return contiguous(self.sizes(), self.scalar_type(), self.suggest_memory_format());
}

at::Tensor adaptive_avg_pool3d_backward(const at::Tensor& /*grad_output*/, const at::Tensor& self) {
  return contiguous(self.sizes(), self.scalar_type());
}

}  // namespace opsmith::meta_functions
