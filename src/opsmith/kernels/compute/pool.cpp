// Two-dimensional pools and their gradients.
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "dense.h"
#include "launch.h"

namespace opsmith::compute {
namespace {

constexpr const char* kPool =
#include "pool.cl"
    ;

// As in the source.
struct PoolShape {
  int64_t planes, height, width, out_height, out_width;
  int64_t kernel_height = 1, kernel_width = 1, step_height = 1, step_width = 1;
  int64_t pad_height = 0, pad_width = 0, gap_height = 1, gap_width = 1;
  int64_t with_padding = 0, divisor = 0;
};

PoolShape planes_of(const at::Tensor& in, const at::Tensor& out) {
  const int64_t height = in.size(-2);
  const int64_t width = in.size(-1);
  return {.planes = height * width == 0 ? 0 : in.numel() / (height * width),
          .height = height,
          .width = width,
          .out_height = out.size(-2),
          .out_width = out.size(-1)};
}

void set_pair(at::IntArrayRef values, int64_t& height, int64_t& width) {
  height = values[0];
  width = values.size() > 1 ? values[1] : values[0];
}

// Whether no place is in two windows.
bool are_apart(const PoolShape& shape) {
  return (shape.kernel_height - 1) * shape.gap_height < shape.step_height &&
         (shape.kernel_width - 1) * shape.gap_width < shape.step_width;
}

void pool(const char* kind, const at::Tensor& from, const at::Tensor& indices, const at::Tensor& to,
          const PoolShape& shape) {
  if (to.numel() == 0) {
    return;
  }
  const at::Tensor in = from.contiguous();
  const DenseResult written(to);
  int64_t items = to.numel();
  if (std::string_view(kind) == "MAX_BACKWARD_APART") {
    written.tensor().zero_();
    items = in.numel();
  }
  Arguments arguments;
  arguments.tensor(in).tensor(indices).tensor(written.tensor()).value(shape);
  launch("pool", kernel(kPool, definition(kind) + definition("DTYPE", to.scalar_type())), arguments,
         linear(items));
}

PoolShape window_of(PoolShape shape, at::IntArrayRef kernel, at::IntArrayRef stride,
                    at::IntArrayRef padding) {
  set_pair(kernel, shape.kernel_height, shape.kernel_width);
  set_pair(stride.empty() ? kernel : stride, shape.step_height, shape.step_width);
  set_pair(padding, shape.pad_height, shape.pad_width);
  return shape;
}

}  // namespace

void max_pool2d_with_indices(const at::Tensor& self, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                             at::IntArrayRef padding, at::IntArrayRef dilation, bool /*ceil_mode*/,
                             const at::Tensor& out, const at::Tensor& indices) {
  PoolShape shape = window_of(planes_of(self, out), kernel_size, stride, padding);
  set_pair(dilation, shape.gap_height, shape.gap_width);
  const DenseResult positions(indices);
  pool("MAX", self, positions.tensor(), out, shape);
}

void max_pool2d_with_indices_backward(const at::Tensor& grad_output, const at::Tensor& self,
                                      at::IntArrayRef kernel_size, at::IntArrayRef stride,
                                      at::IntArrayRef padding, at::IntArrayRef dilation, bool /*ceil_mode*/,
                                      const at::Tensor& indices, const at::Tensor& grad_input) {
  PoolShape shape = window_of(planes_of(self, grad_output), kernel_size, stride, padding);
  set_pair(dilation, shape.gap_height, shape.gap_width);
  require_dtype(self.scalar_type(), grad_output);
  require_dtype(at::kLong, indices);
  pool(are_apart(shape) ? "MAX_BACKWARD_APART" : "MAX_BACKWARD", grad_output, indices.contiguous(),
       grad_input, shape);
}

void avg_pool2d(const at::Tensor& self, int64_t kH, int64_t kW, int64_t dH, int64_t dW, int64_t padH,
                int64_t padW, bool /*ceil_mode*/, bool count_include_pad,
                std::optional<int64_t> divisor_override, const at::Tensor& out) {
  PoolShape shape = window_of(planes_of(self, out), {kH, kW}, {dH, dW}, {padH, padW});
  shape.with_padding = count_include_pad ? 1 : 0;
  shape.divisor = divisor_override.value_or(0);
  pool("AVERAGE", self, {}, out, shape);
}

void avg_pool2d_backward(const at::Tensor& grad_output, const at::Tensor& self, at::IntArrayRef kernel_size,
                         at::IntArrayRef stride, at::IntArrayRef padding, bool /*ceil_mode*/,
                         bool count_include_pad, std::optional<int64_t> divisor_override,
                         const at::Tensor& grad_input) {
  PoolShape shape = window_of(planes_of(self, grad_output), kernel_size, stride, padding);
  shape.with_padding = count_include_pad ? 1 : 0;
  shape.divisor = divisor_override.value_or(0);
  require_dtype(self.scalar_type(), grad_output);
  pool("AVERAGE_BACKWARD", grad_output, {}, grad_input, shape);
}

at::Tensor _adaptive_avg_pool2d(const at::Tensor& self, at::IntArrayRef output_size) {
  TORCH_CHECK(output_size.size() == 2, "adaptive_avg_pool2d: output_size must be 2");
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4, "adaptive_avg_pool2d(): Expected 3D or 4D tensor, but got ",
              self.sizes());
  at::DimVector sizes(self.sizes());
  sizes[sizes.size() - 2] = output_size[0];
  sizes[sizes.size() - 1] = output_size[1];
  at::Tensor out = at::empty(sizes, self.options(), self.suggest_memory_format());
  pool("ADAPTIVE", self, {}, out, planes_of(self, out));
  return out;
}

at::Tensor _adaptive_avg_pool2d_backward(const at::Tensor& grad_output, const at::Tensor& self) {
  TORCH_CHECK(self.dim() == grad_output.dim(), "_adaptive_avg_pool2d_backward: Expected dimensions ",
              self.dim(), " for `grad_output` but got dimensions ", grad_output.dim());
  TORCH_CHECK((self.dim() == 3 || self.dim() == 4) && self.scalar_type() == grad_output.scalar_type() &&
                  self.sizes().slice(0, self.dim() - 2) == grad_output.sizes().slice(0, self.dim() - 2),
              "_adaptive_avg_pool2d_backward: grad_output ", grad_output.toString(), grad_output.sizes(),
              " is not of a result of self ", self.toString(), self.sizes());
  at::Tensor grad_input = at::empty(self.sizes(), self.options(), self.suggest_memory_format());
  pool("ADAPTIVE_BACKWARD", grad_output, {}, grad_input, planes_of(self, grad_output));
  return grad_input;
}

}  // namespace opsmith::compute
