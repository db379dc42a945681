// opsmith_quantized::conv2d_int8: a convolution on quantized activations and weights, whose result is
// quantized again.
//
// Computes dequantize → conv2d (→ relu) → quantize without making floats of the integers: the products
// are added up exactly and rounded once, and an activation is a narrower range of the result. The weight
// comes packed, see requantized_matmul.h, or of depthwise convolutions as [places of the kernel, channels];
// its zero points are 0. Results have their channels innermost.
#include "byte_images.h"
#include "parameters.h"
#include "quantized_dtypes.h"
#include "requantization.h"
#include "quantization_functions.h"
#include "int8_matmul.h"

#include <algorithm>
#include <optional>

#include "../common/tasks.h"

namespace opsmith::quantized::native {
namespace {

constexpr const char* kName = "conv2d_int8";

// The grain size, in products.
constexpr int64_t kGrainOfProducts = int64_t{1} << 18;
// Bytes of gathered rows that are multiplied by all panels while they are in the cache; and that all threads
// gather before they multiply.
constexpr int64_t kBlockBytes = int64_t{1} << 17;
constexpr int64_t kBytesTogether = int64_t{1} << 20;
// A multiple of the rows of a tile, of each instruction set.
constexpr int64_t kRows = 12;
// Panels that are multiplied at once.
constexpr int64_t kPanels = 4;

struct Convolution {
  Window2d window;
  int64_t groups, channels, out_channels;  // in a group
  bool is_depthwise;
  int64_t depth() const { return window.kernel[0] * window.kernel[1] * channels; }
};

bool check_weight(KernelRuntimeContext& context, const Convolution& c, const Tensor& weight) {
  if (!check_dtype(context, kName, "weight", weight, ScalarType::Char)) {
    return false;
  }
  if (c.is_depthwise) {
    OPSMITH_CHECK(
        context,
        weight.sizes()[0] == c.window.kernel[0] * c.window.kernel[1] && weight.sizes()[1] == c.groups,
        InvalidArgument, false,
        "%s: the `weight` of a depthwise convolution has to be [%" PRId64 ", %" PRId64
        "]: places of the kernel, channels",
        kName, c.window.kernel[0] * c.window.kernel[1], c.groups);
    return true;
  }
  const int64_t panels = ceil_divided(c.out_channels, kPackedPanel);
  const int64_t steps = ceil_divided(c.depth(), kPackedStep);
  OPSMITH_CHECK(context,
                weight.dim() == 4 && weight.sizes()[0] == c.groups && weight.sizes()[1] == panels &&
                    weight.sizes()[2] == 1 + steps && weight.sizes()[3] == kPackedBytes,
                InvalidArgument, false,
                "%s: `weight` has to be packed: [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]", kName,
                c.groups, panels, 1 + steps, kPackedBytes);
  return true;
}

// That the tensors fit one another; resizes `out`.
bool prepare(KernelRuntimeContext& context, const Tensor& input, const Tensor& weight,
             const Tensor& weight_scales, const std::optional<Tensor>& bias, int64_t out_channels,
             int64_t groups, Convolution& c, Tensor& out) {
  if (!check_bytes(context, kName, "input", input) ||
      !check_dtype(context, kName, "out", out, input.scalar_type())) {
    return false;
  }
  OPSMITH_CHECK(context, input.dim() == 4, InvalidArgument, false,
                "%s: `input` has to have 4 dimensions, not %d", kName, static_cast<int>(input.dim()));
  const int64_t channels = input.sizes()[1];
  OPSMITH_CHECK(
      context,
      groups > 0 && out_channels > 0 && channels > 0 && channels % groups == 0 && out_channels % groups == 0,
      InvalidArgument, false,
      "%s: %" PRId64 " groups do not divide %" PRId64 " channels of `input` and %" PRId64 " of the result",
      kName, groups, channels, out_channels);
  c.groups = groups;
  c.channels = channels / groups;
  c.out_channels = out_channels / groups;
  c.is_depthwise = weight.dim() == 2 && c.channels == 1 && c.out_channels == 1;
  OPSMITH_CHECK(context,
                c.window.kernel[0] <= kMostTerms && c.window.kernel[1] <= kMostTerms &&
                    c.window.kernel[0] * c.window.kernel[1] <= kMostTerms / c.channels,
                NotSupported, false, "%s: more than %" PRId64 " products to a sum may overflow", kName,
                kMostTerms);
  if (!check_weight(context, c, weight) ||
      !check_columns(context, kName, weight_scales, bias, out_channels)) {
    return false;
  }
  Dims sizes{input.sizes()[0], out_channels};
  for (int64_t d = 0; d < 2; ++d) {
    const int64_t size = input.sizes()[static_cast<size_t>(2 + d)];
    const int64_t count = c.window.along(d).places(size).value();
    OPSMITH_CHECK(context, count > 0, InvalidArgument, false,
                  "%s: the kernel reaches beyond the padded input of size %" PRId64, kName,
                  size + 2 * c.window.padding[d]);
    sizes.push_back(count);
  }
  return resize(context, out, sizes);
}

// ---- as products

// All pixels of one group's channels.
void multiply_group(KernelRuntimeContext& context, const Int8Windows& windows, RequantizedProduct product,
                    uint8_t* out) {
  const int64_t pixels = product.m, row_bytes = product.steps * kPackedStep;
  const int64_t panels = ceil_divided(product.n, kPackedPanel);
  const int64_t cost = std::max<int64_t>(1, row_bytes * kPackedPanel);
  if (pixels * row_bytes <= kBytesTogether) {
    const auto rows = temporary<uint8_t>(context, pixels * row_bytes);
    if (rows == nullptr) {
      return;
    }
    uint8_t* const memory = rows;
    parallel(pixels, grain_size(row_bytes), [&](int64_t begin, int64_t end) {
      OPSMITH_BEST(gather_windows)(windows, begin, end, memory + begin * row_bytes);
    });
    product.input = memory;
    product.out = out;
    const int64_t grain = grain_size(cost * kPanels * pixels, kGrainOfProducts);
    parallel(ceil_divided(panels, kPanels), grain, [&](int64_t begin, int64_t end) {
      OPSMITH_BEST(requantized_matmul)(product, begin * kPanels, std::min(end * kPanels, panels));
    });
    return;
  }
  const int64_t rows = std::max<int64_t>(1, kBlockBytes / (row_bytes * kRows)) * kRows;
  const int64_t blocks = ceil_divided(pixels, rows);
  const auto multiply_block = [&](int64_t block, uint8_t* gathered) {
    const int64_t from = block * rows, to = std::min(pixels, from + rows);
    OPSMITH_BEST(gather_windows)(windows, from, to, gathered);
    RequantizedProduct each = product;
    each.input = gathered;
    each.out = out + from * product.out_stride;
    each.m = to - from;
    OPSMITH_BEST(requantized_matmul)(each, 0, panels);
  };
  run_tasks<uint8_t>(context, blocks, grain_size(cost * panels * rows, kGrainOfProducts), rows * row_bytes,
                     multiply_block);
}

// ---- depthwise

void depthwise(KernelRuntimeContext& context, const Convolution& c, const Int8Windows& windows,
               const int8_t* weight, const Requantization& requantization, int64_t images, uint8_t* out) {
  const int64_t channels = c.groups, places = windows.kernel[0] * windows.kernel[1];
  const auto around = temporary<uint8_t>(context, channels);
  if (around == nullptr) {
    return;
  }
  std::fill_n(around.get(), channels, static_cast<uint8_t>(windows.zero_point ^ windows.sign_bit));
  const uint8_t* const outside = around;
  const int64_t pixels = windows.out_height * windows.out_width;
  const auto convolve_pixel = [&](int64_t pixel, const uint8_t** pointers) {
    const uint8_t* const image =
        windows.image + pixel / pixels * windows.height * windows.width * windows.pixel_stride;
    const int64_t y = pixel % pixels / windows.out_width * windows.stride[0] - windows.padding[0];
    const int64_t x = pixel % windows.out_width * windows.stride[1] - windows.padding[1];
    for (int64_t place = 0; place < places; ++place) {
      const int64_t row = y + place / windows.kernel[1] * windows.dilation[0];
      const int64_t column = x + place % windows.kernel[1] * windows.dilation[1];
      const bool is_inside = row >= 0 && row < windows.height && column >= 0 && column < windows.width;
      pointers[place] = is_inside ? image + (row * windows.width + column) * windows.pixel_stride : outside;
    }
    OPSMITH_BEST(depthwise_pixel)({pointers, places, weight, channels, windows.sign_bit, windows.zero_point,
                                   requantization, out + pixel * channels});
  };
  run_tasks<const uint8_t*>(context, images * pixels, grain_size(places * channels, kGrainOfProducts), places,
                            convolve_pixel);
}

}  // namespace

Tensor& conv2d_int8_out(KernelRuntimeContext& context, const Tensor& input, double input_scale,
                        int64_t input_zero_point, const Tensor& weight, const Tensor& weight_scales,
                        const std::optional<Tensor>& bias, int64_t out_channels, IntList kernel_size,
                        IntList stride, IntList padding, IntList dilation, int64_t groups,
                        double output_scale, int64_t output_zero_point, int64_t output_min,
                        int64_t output_max, Tensor& out) {
  Convolution c{};
  const QuantizedResult result{output_scale, output_zero_point, output_min, output_max};
  if (!window_of(context, kName, kernel_size, stride, padding, dilation, c.window) ||
      !prepare(context, input, weight, weight_scales, bias, out_channels, groups, c, out) ||
      !check_values(context, kName, "input", input, {input_scale, input_zero_point}) ||
      !check_result(context, kName, out, result) || out.numel() == 0) {
    return out;
  }
  const auto owned = requantization(context, input_scale, weight_scales, bias, result);
  const auto image = channels_innermost(context, input);
  const auto place = place_for_image(context, out);
  if (owned.parameters.multipliers == nullptr || image == nullptr || place == nullptr) {
    return out;
  }
  Int8Windows windows{};
  windows.image = image;
  windows.sign_bit = sign_bit_of(input);
  windows.zero_point = static_cast<uint8_t>(static_cast<uint8_t>(input_zero_point) ^ windows.sign_bit);
  windows.channels = c.channels;
  windows.pixel_stride = input.sizes()[1];
  windows.height = input.sizes()[2];
  windows.width = input.sizes()[3];
  std::copy_n(c.window.kernel, 2, windows.kernel);
  std::copy_n(c.window.stride, 2, windows.stride);
  std::copy_n(c.window.padding, 2, windows.padding);
  std::copy_n(c.window.dilation, 2, windows.dilation);
  windows.out_height = out.sizes()[2];
  windows.out_width = out.sizes()[3];
  const auto* const packed = weight.const_data_ptr<int8_t>();
  if (c.is_depthwise) {
    depthwise(context, c, windows, packed, owned.parameters, out.sizes()[0], place);
  } else {
    RequantizedProduct product{};
    product.zero_point = windows.zero_point;
    product.requantization = owned.parameters;
    product.out_stride = out_channels;
    product.m = out.numel() / out_channels;
    product.n = c.out_channels;
    product.steps = ceil_divided(c.depth(), kPackedStep);
    for (int64_t group = 0; group < groups; ++group) {
      product.weight = packed + group * (weight.numel() / groups);
      multiply_group(context, windows, product, place + group * c.out_channels);
      windows.image += c.channels;
      product.requantization.multipliers += c.out_channels;
      product.requantization.offsets += c.out_channels;
    }
  }
  put_back(place, out);
  return out;
}

}  // namespace opsmith::quantized::native
