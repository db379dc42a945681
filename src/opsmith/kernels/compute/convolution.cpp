// Convolutions as products with the columns of images: a transposed convolution's forward is the other one's
// gradient, and the other way round. In terms of the plain convolution there are an image (samples, channels,
// height, width), the windows' weights (filters, channels of a group, height, width) and a result with a
// channel for each filter.
#include <opsmith/unsupported.h>

#include <array>
#include <string>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include "../meta/result_sizes.h"
#include "dense.h"
#include "launch.h"
#include "matmul.h"

namespace opsmith::compute {
namespace {

constexpr const char* kColumns =
#include "convolution.cl"
    ;

// As in the source.
struct ConvolutionShape {
  int64_t samples, channels, height, width, kernel_height, kernel_width, out_height, out_width;
  int64_t step_height, step_width, pad_height, pad_width, gap_height, gap_width;

  int64_t window() const { return kernel_height * kernel_width; }
  int64_t places() const { return out_height * out_width; }
};

// Whether columns are the image as it lies.
bool is_plain(const ConvolutionShape& s) {
  return s.window() == 1 && s.step_height == 1 && s.step_width == 1 && s.pad_height == 0 && s.pad_width == 0;
}

// How many elements of a row an item writes.
int64_t run_length() {
  return limits().is_cpu != 0 ? 64 : 1;
}

std::string column_definitions(const at::Tensor& image, const at::Tensor& columns) {
  return definition("DTYPE", image.scalar_type()) + definition("COLUMN", columns.scalar_type()) +
         definition("RUN", run_length());
}

// For `elements` in rows of `width`.
Grid runs_of(int64_t elements, int64_t width) {
  return linear(elements / width * ceil_div(width, run_length()));
}

// (samples, channels * window, places) of a contiguous image.
at::Tensor columns_of(const at::Tensor& image, const ConvolutionShape& s) {
  if (is_plain(s)) {
    return image.view({s.samples, s.channels, s.places()});
  }
  at::Tensor columns = at::empty({s.samples, s.channels * s.window(), s.places()}, image.options());
  Arguments arguments;
  arguments.tensor(image).tensor(columns).value(s);
  launch("take an image apart", kernel(kColumns, column_definitions(image, columns) + definition("COLUMNS")),
         arguments, runs_of(columns.numel(), s.out_width));
  return columns;
}

// Of `dtype`, plus a number for each channel where `bias` is defined.
at::Tensor image_of(const at::Tensor& columns, const at::Tensor& bias, at::ScalarType dtype,
                    const ConvolutionShape& s) {
  if (is_plain(s) && !bias.defined() && columns.scalar_type() == dtype) {
    return columns.view({s.samples, s.channels, s.height, s.width});
  }
  at::Tensor image = at::empty({s.samples, s.channels, s.height, s.width}, columns.options().dtype(dtype));
  Arguments arguments;
  arguments.tensor(image).tensor(columns);
  if (bias.defined()) {
    arguments.tensor(bias);
  }
  arguments.value(s);
  launch("add up an image",
         kernel(kColumns, column_definitions(image, columns) + definition_if(bias.defined(), "BIASED")),
         arguments, runs_of(image.numel(), s.width));
  return image;
}

// The channels of one group of a (samples, channels, places) tensor.
at::Tensor group_of(const at::Tensor& tensor, int64_t group, int64_t groups) {
  const int64_t size = tensor.size(1) / groups;
  return tensor.narrow(1, group * size, size);
}

// One group's weights, for each sample: (samples, filters of the group, channels of the group * window).
at::Tensor weights_of(const at::Tensor& weight, int64_t group, int64_t groups, int64_t samples) {
  const int64_t filters = weight.size(0) / groups;
  return weight.view({weight.size(0), -1})
      .narrow(0, group * filters, filters)
      .unsqueeze(0)
      .expand({samples, -1, -1});
}

at::Tensor result_of(const at::Tensor& image, const at::Tensor& weight, const at::Tensor& bias,
                     const ConvolutionShape& s, int64_t groups) {
  const at::Tensor columns = columns_of(image, s);
  at::Tensor result = at::empty({s.samples, weight.size(0), s.places()}, image.options());
  const at::Tensor added = bias.defined() ? bias.view({1, -1, 1}).expand(result.sizes()) : at::Tensor();
  for (int64_t g = 0; g < groups; ++g) {
    multiply(weights_of(weight, g, groups, s.samples), group_of(columns, g, groups),
             group_of(result, g, groups), 1, bias.defined() ? 1 : 0,
             bias.defined() ? group_of(added, g, groups) : at::Tensor());
  }
  return result.view({s.samples, weight.size(0), s.out_height, s.out_width});
}

// The options of products that are added up later: halves would be rounded twice.
at::TensorOptions unrounded(const at::Tensor& like) {
  return at::isReducedFloatingType(like.scalar_type()) ? like.options().dtype(at::kFloat) : like.options();
}

at::Tensor image_gradient(const at::Tensor& grad, const at::Tensor& weight, const at::Tensor& bias,
                          const ConvolutionShape& s, int64_t groups) {
  const at::Tensor flat = grad.view({s.samples, weight.size(0), s.places()});
  at::Tensor columns = at::empty({s.samples, s.channels * s.window(), s.places()}, unrounded(grad));
  for (int64_t g = 0; g < groups; ++g) {
    multiply(weights_of(weight, g, groups, s.samples).transpose(1, 2), group_of(flat, g, groups),
             group_of(columns, g, groups));
  }
  return image_of(columns, bias, grad.scalar_type(), s);
}

at::Tensor weight_gradient(const at::Tensor& grad, const at::Tensor& image, at::IntArrayRef weight_sizes,
                           const ConvolutionShape& s, int64_t groups) {
  const at::Tensor flat = grad.view({s.samples, weight_sizes[0], s.places()});
  const at::Tensor columns = columns_of(image, s);
  const int64_t filters = weight_sizes[0] / groups;
  const int64_t length = s.channels / groups * s.window();
  at::Tensor of_samples = at::empty({s.samples, weight_sizes[0], length}, unrounded(grad));
  for (int64_t g = 0; g < groups; ++g) {
    multiply(group_of(flat, g, groups), group_of(columns, g, groups).transpose(1, 2),
             of_samples.narrow(1, g * filters, filters));
  }
  return of_samples.sum(0, /*keepdim=*/false, grad.scalar_type()).view(weight_sizes);
}

void reject_other_ranks(const at::Tensor& input) {
  if (input.dim() != 4) {
    unsupported("the convolution has " + std::to_string(input.dim() - 2) +
                " dimensions of space, and there are kernels for 1 and 2");
  }
}

// Of the plain convolution that takes `image` to what has the sizes of `result`.
ConvolutionShape convolution_shape(at::IntArrayRef image, at::IntArrayRef result, at::IntArrayRef weight,
                                   at::IntArrayRef stride, at::IntArrayRef padding,
                                   at::IntArrayRef dilation) {
  return {.samples = image[0],
          .channels = image[1],
          .height = image[2],
          .width = image[3],
          .kernel_height = weight[2],
          .kernel_width = weight[3],
          .out_height = result[2],
          .out_width = result[3],
          .step_height = stride[0],
          .step_width = stride[1],
          .pad_height = padding[0],
          .pad_width = padding[1],
          .gap_height = dilation[0],
          .gap_width = dilation[1]};
}

}  // namespace

at::Tensor convolution_overrideable(const at::Tensor& input, const at::Tensor& weight,
                                    const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                                    at::IntArrayRef output_padding, int64_t groups) {
  reject_other_ranks(input);
  require_dtype_of_input(input, weight, "weight");
  const at::Tensor b = bias.value_or(at::Tensor());
  require_dtype_of_input(input, b, "bias");
  const at::Tensor in = input.contiguous();
  const at::Tensor w = weight.contiguous();
  const at::DimVector sizes = meta_functions::convolution_result(in, w, stride, padding, dilation, transposed,
                                                                 output_padding, groups);
  const at::MemoryFormat format = meta_functions::convolution_format(input, weight);
  const at::IntArrayRef image = transposed ? sizes : in.sizes(), result = transposed ? in.sizes() : sizes;
  const ConvolutionShape shape = convolution_shape(image, result, w.sizes(), stride, padding, dilation);
  if (in.numel() == 0 || shape.places() == 0) {
    return at::empty(sizes, in.options(), format);
  }
  const at::Tensor added = b.defined() ? b.contiguous() : b;
  return (transposed ? image_gradient : result_of)(in, w, added, shape, groups).contiguous(format);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward_overrideable(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
    int64_t groups, std::array<bool, 3> output_mask) {
  reject_other_ranks(input);
  require_dtype_of_input(input, grad_output, "grad_output");
  require_dtype_of_input(input, weight, "weight");
  const at::DimVector sizes = meta_functions::convolution_result(input, weight, stride, padding, dilation,
                                                                 transposed, output_padding, groups);
  TORCH_CHECK(grad_output.sizes().equals(sizes), "convolution_backward: the result is of ", sizes,
              ", and grad_output of ", grad_output.sizes());
  const at::MemoryFormat format = meta_functions::convolution_format(input, weight);
  const at::Tensor grad = grad_output.contiguous();
  const at::Tensor in = input.contiguous();
  const at::Tensor w = weight.contiguous();
  std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients;
  auto& [grad_input, grad_weight, grad_bias] = gradients;
  const at::Tensor& image = transposed ? grad : in;
  const at::Tensor& result = transposed ? in : grad;
  if (image.numel() == 0 || result.numel() == 0) {
    unsupported("a convolution without elements has no gradient here");
  }
  const ConvolutionShape shape =
      convolution_shape(image.sizes(), result.sizes(), w.sizes(), stride, padding, dilation);
  if (output_mask[0]) {
    grad_input = (transposed ? result_of : image_gradient)(grad, w, {}, shape, groups).contiguous(format);
  }
  if (output_mask[1]) {
    grad_weight = weight_gradient(result, image, w.sizes(), shape, groups).contiguous(format);
  }
  if (output_mask[2]) {
    grad_bias = grad.sum(at::IntArrayRef{0, 2, 3});
  }
  return gradients;
}

}  // namespace opsmith::compute
