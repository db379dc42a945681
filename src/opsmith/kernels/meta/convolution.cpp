// Convolutions, averages of windows and their gradients, and places in images.
#include "meta_tensors.h"
#include "result_sizes.h"

#include <ATen/Parallel.h>
#include <ATen/native/AdaptivePooling.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/native/GridSamplerUtils.h>
#include <ATen/native/im2col_shape_check.h>
#include <c10/util/StringUtil.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <tuple>
#include <utility>

namespace opsmith::meta_functions {
namespace {

// The other parameters of a convolution.
struct Settings {
  at::IntArrayRef stride;
  at::IntArrayRef dilation;
  bool transposed;
  at::IntArrayRef output_padding;
  int64_t groups;
};

constexpr std::array<size_t, 3> kDims{0, 1, 2};

// Whether the CPU leaves the convolution to oneDNN's kernels (ATen's ConvParams::use_mkldnn), of operands
// that have two or three spatial dimensions. Of Float that is where its own would be slower.
bool is_left_to_one_dnn(const at::Tensor& input, const at::Tensor& weight, const Settings& settings) {
  const int64_t dims = input.dim() - 2;
  const auto any = [&](const auto& holds) { return std::any_of(kDims.begin(), kDims.begin() + dims, holds); };
  if (settings.transposed &&
      any([&](size_t dim) { return at_dim(settings.output_padding, dim) >= at_dim(settings.stride, dim); })) {
    return false;
  }
  if (input.scalar_type() != at::kFloat) {
    return input.scalar_type() == at::kBFloat16;  // and Half, on the few processors that compute in it
  }
  const bool steps = any(
      [&](size_t dim) { return at_dim(settings.stride, dim) != 1 || at_dim(settings.dilation, dim) != 1; });
  const int64_t height = weight.size(-2), width = weight.size(-1);
  const Checked pixels = Checked(input.size(0)) * input.size(1) * input.size(2) * input.size(3);
  return (steps || input.size(0) >= 16 || width != 1 || height != 1 || at::get_num_threads() > 1) &&
         (settings.groups > 1 || (width > 3 && height > 3) || input.size(0) > 1 || !pixels.fits() ||
          pixels.value() > 20480);
}

// The memory format of a convolution's results on the CPU, of operands with two or three spatial dimensions.
// Of those with three, only oneDNN's kernels keep another format than the contiguous one; which calls it is
// left, PyTorch's meta kernel does not ask.
at::MemoryFormat format_of(const at::Tensor& input, const at::Tensor& weight) {
  const at::MemoryFormat format = convolution_format(input, weight);
  const bool kept = format != at::MemoryFormat::ChannelsLast3d ||
                    (input.is_floating_point() && input.scalar_type() != at::kDouble);
  return kept ? format : at::MemoryFormat::Contiguous;
}

// As ATen computes them: one spatial dimension is two, of which the first has one element.
at::Tensor with_height(const at::Tensor& tensor) {
  return tensor.dim() == 3 ? tensor.unsqueeze(2) : tensor;
}
at::Tensor without_height(const at::Tensor& tensor, int64_t dims) {
  return dims == 3 ? tensor.squeeze(2) : tensor;
}

// The four settings of sliding windows, and a size, are of two dimensions.
void check_pairs(std::initializer_list<std::pair<const char*, at::IntArrayRef>> lists) {
  for (const auto& [name, list] : lists) {
    TORCH_CHECK(list.size() == 2, "It is expected ", name, " equals to 2, but got size ", list.size());
  }
}

}  // namespace

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride, at::IntArrayRef padding,
                       at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
                       int64_t groups) {
  TORCH_CHECK(weight.dim() >= 3, "weight should have at least three dimensions");
  TORCH_CHECK(groups > 0, "non-positive groups is not supported");
  const auto backend = at::native::select_conv_backend(
      input, weight, bias, c10::fromIntArrayRefSlow(stride), c10::fromIntArrayRefSlow(padding),
      c10::fromIntArrayRefSlow(dilation), transposed, c10::fromIntArrayRefSlow(output_padding), groups,
      std::nullopt);
  at::DimVector sizes =
      convolution_result(input, weight, stride, padding, dilation, transposed, output_padding, groups);
  const int64_t dims = input.dim();
  const at::Tensor images = with_height(dims == 3 ? input.contiguous() : input);
  if (backend == at::native::ConvBackend::Empty) {
    TORCH_CHECK_INDEX(weight.numel() != 0 || input.size(1) == 0,
                      "select(): index 0 out of range for tensor of size [0] at dimension 0");
    // ATen multiplies the images by a number, where they have channels, and has the sizes from a view.
    const at::Tensor product = without_height(with_scalar(images, 1), dims);
    const bool keeps_strides = input.size(1) != 0 && product.sizes() == at::IntArrayRef(sizes);
    return keeps_strides ? product : contiguous(sizes, input.scalar_type());
  }
  TORCH_CHECK(weight.numel() != 0, "non-empty weight tensor expected, but got: ", weight.sizes());
  const Settings settings{stride, dilation, transposed, output_padding, groups};
  const bool to_one_dnn = is_left_to_one_dnn(images, with_height(weight), settings);
  for (const size_t dim : c10::irange(sizes.size() - 2)) {
    if (transposed) {
      const int64_t more = at_dim(output_padding, dim), step = at_dim(stride, dim);
      TORCH_CHECK(more < step || more < at_dim(dilation, dim),
                  "output padding must be smaller than either stride or dilation, but got output_padding: ",
                  more, " stride: ", step, " dilation: ", at_dim(dilation, dim));
    }
  }
  if (dims == 3) {
    sizes.insert(sizes.begin() + 2, 1);
  }
  const at::IntArrayRef pixels = at::IntArrayRef(sizes).slice(2);
  TORCH_CHECK(std::all_of(pixels.begin(), pixels.end(),
                          [&](int64_t n) { return n > 0 || (n == 0 && transposed && to_one_dnn); }),
              "Given input size per channel: (", c10::Join(" x ", images.sizes().slice(2)),
              "). Calculated output size per channel: (", c10::Join(" x ", pixels),
              "). Output size is too small");
  const at::MemoryFormat format = format_of(images, with_height(weight));
  return without_height(contiguous(sizes, input.scalar_type(), format), dims);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight,
    at::OptionalIntArrayRef bias_sizes, at::IntArrayRef /*stride*/, at::IntArrayRef /*padding*/,
    at::IntArrayRef /*dilation*/, bool transposed, at::IntArrayRef output_padding, int64_t /*groups*/,
    std::array<bool, 3> mask) {
  const at::ScalarType dtype = grad_output.scalar_type();
  TORCH_CHECK(!mask[2] || bias_sizes.has_value(), "convolution_backward: bias_sizes is missing");
  TORCH_CHECK(transposed ||
                  std::all_of(output_padding.begin(), output_padding.end(), [](int64_t n) { return n == 0; }),
              "output_padding is not supported for non-transposed convolutions; got: ",
              c10::Join(" ", output_padding));
  const bool empty = input.size(0) == 0 || input.size(1) == 0;
  const at::Tensor images = with_height(input.dim() == 3 ? input.contiguous() : input);
  const at::MemoryFormat format = format_of(images, with_height(weight));
  const auto gradient = [&](const at::Tensor& of) {
    const at::Tensor image = with_height(of);
    return without_height(empty ? like(image) : contiguous(image.sizes(), dtype, format), of.dim());
  };
  return {mask[0] ? gradient(empty && input.dim() == 3 ? input.contiguous() : input) : at::Tensor(),
          mask[1] ? gradient(weight) : at::Tensor(),
          mask[2] ? contiguous(*bias_sizes, empty ? weight.scalar_type() : dtype) : at::Tensor()};
}

at::Tensor adaptive_avg_pool2d(const at::Tensor& self, at::IntArrayRef output_size) {
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4, "Expected 3D or 4D tensor, but got ", self.sizes());
  at::DimVector sizes(self.sizes().slice(0, self.dim() - 2));
  sizes.append(output_size.begin(), output_size.end());
  return contiguous(sizes, self.scalar_type(), self.suggest_memory_format());
}

at::Tensor adaptive_avg_pool3d(const at::Tensor& self, at::IntArrayRef output_size) {
  for (const int64_t dim : c10::irange(int64_t{1}, self.dim())) {
    TORCH_CHECK(self.size(dim) > 0,
                "adaptive_avg_pool3d(): Expected input to have non-zero size for non-batch dimensions, but "
                "input has sizes ",
                self.sizes(), " with dimension ", dim, " being empty");
  }
  TORCH_CHECK(self.dim() == 4 || self.dim() == 5, "Expected 4D or 5D tensor, but got ", self.sizes());
  at::DimVector sizes(self.sizes().slice(0, self.dim() - 3));
  sizes.append(output_size.begin(), output_size.end());
  return contiguous(sizes, self.scalar_type());
}

at::Tensor adaptive_avg_pool2d_backward(const at::Tensor& grad_output, const at::Tensor& self) {
  at::native::adaptive_pool_empty_output_check(grad_output, "adaptive_avg_pool2d_backward");
  TORCH_CHECK(self.scalar_type() == grad_output.scalar_type(), "expected dtype ", self.scalar_type(),
              " for `grad_output` but got dtype ", grad_output.scalar_type());
  return contiguous(self.sizes(), self.scalar_type(), self.suggest_memory_format());
}

at::Tensor adaptive_avg_pool3d_backward(const at::Tensor& grad_output, const at::Tensor& self) {
  at::native::adaptive_pool_empty_output_check(grad_output, "adaptive_avg_pool3d_backward");
  return contiguous(self.sizes(), self.scalar_type());
}

at::Tensor col2im(const at::Tensor& self, at::IntArrayRef output_size, at::IntArrayRef kernel,
                  at::IntArrayRef dilation, at::IntArrayRef padding, at::IntArrayRef stride) {
  check_pairs({{"output_size", output_size},
               {"kernel_size", kernel},
               {"dilation", dilation},
               {"padding", padding},
               {"stride", stride}});
  at::native::col2im_shape_check(self, at::Tensor(), output_size[0], output_size[1], kernel[0], kernel[1],
                                 dilation[0], dilation[1], padding[0], padding[1], stride[0], stride[1]);
  at::DimVector sizes(self.sizes().slice(0, self.dim() - 2));
  sizes.push_back(self.size(-2) / (kernel[0] * kernel[1]));
  sizes.append(output_size.begin(), output_size.end());
  return contiguous(sizes, self.scalar_type());
}

at::Tensor im2col(const at::Tensor& self, at::IntArrayRef kernel, at::IntArrayRef dilation,
                  at::IntArrayRef padding, at::IntArrayRef stride) {
  check_pairs({{"kernel_size", kernel}, {"dilation", dilation}, {"padding", padding}, {"stride", stride}});
  at::native::im2col_shape_check(self, at::Tensor(), kernel[0], kernel[1], dilation[0], dilation[1],
                                 padding[0], padding[1], stride[0], stride[1]);
  at::DimVector sizes(self.sizes().slice(0, self.dim() - 3));
  sizes.push_back(value_of(Checked(self.size(-3)) * kernel[0] * kernel[1], "im2col"));
  Checked places = 1;
  for (const size_t dim : {0, 1}) {
    const SlidingWindow window{kernel[dim], stride[dim], padding[dim], dilation[dim]};
    places = places * window.places(self.size(dim == 0 ? -2 : -1));
  }
  sizes.push_back(value_of(places, "im2col"));
  return contiguous(sizes, self.scalar_type());
}

at::Tensor grid_sampler_2d(const at::Tensor& input, const at::Tensor& grid, int64_t /*interpolation_mode*/,
                           int64_t /*padding_mode*/, bool /*align_corners*/) {
  at::native::check_grid_sampler_common(input, grid);
  at::native::check_grid_sampler_2d(input, grid);
  return contiguous({input.size(0), input.size(1), grid.size(1), grid.size(2)}, input.scalar_type());
}

}  // namespace opsmith::meta_functions
