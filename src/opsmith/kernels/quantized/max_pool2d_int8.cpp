// opsmith_quantized::max_pool2d_int8: the greatest of quantized values, which are those of max_pool2d between
// dequantize and quantize with the same scale and zero point. Results have their channels innermost.
#include "byte_images.h"
#include "parameters.h"
#include "quantized_dtypes.h"
#include "requantization.h"
#include "quantization_functions.h"

#include <algorithm>
#include <cstring>

namespace opsmith::quantized::native {
namespace {

constexpr const char* kName = "max_pool2d_int8";

bool prepare(KernelRuntimeContext& context, const Tensor& input, const Window2d& window, bool ceil_mode,
             Tensor& out) {
  if (!check_bytes(context, kName, "input", input) ||
      !check_dtype(context, kName, "out", out, input.scalar_type())) {
    return false;
  }
  OPSMITH_CHECK(context, input.dim() == 4, InvalidArgument, false,
                "%s: `input` has to have 4 dimensions, not %d", kName, static_cast<int>(input.dim()));
  Dims sizes{input.sizes()[0], input.sizes()[1]};
  for (int64_t d = 0; d < 2; ++d) {
    OPSMITH_CHECK(context, window.padding[d] <= window.kernel[d] / 2, InvalidArgument, false,
                  "%s: padding is at most half of the kernel", kName);
    const int64_t size = input.sizes()[static_cast<size_t>(2 + d)];
    const int64_t count = window.along(d).places(size, ceil_mode).value();
    OPSMITH_CHECK(context, count > 0 && size > 0, InvalidArgument, false,
                  "%s: the kernel reaches beyond the padded input of size %" PRId64, kName,
                  size + 2 * window.padding[d]);
    sizes.push_back(count);
  }
  return resize(context, out, sizes);
}

}  // namespace

Tensor& max_pool2d_int8_out(KernelRuntimeContext& context, const Tensor& input, IntList kernel_size,
                            IntList stride, IntList padding, IntList dilation, bool ceil_mode, Tensor& out) {
  Window2d window{};
  if (!window_of(context, kName, kernel_size, stride.empty() ? kernel_size : stride, padding, dilation,
                 window) ||
      !prepare(context, input, window, ceil_mode, out) || out.numel() == 0) {
    return out;
  }
  const auto image = channels_innermost(context, input);
  const auto place = place_for_image(context, out);
  if (image == nullptr || place == nullptr) {
    return out;
  }
  const uint8_t* const from = image;
  uint8_t* const to = place;
  const uint8_t sign_bit = sign_bit_of(input);
  const int64_t channels = input.sizes()[1], height = input.sizes()[2], width = input.sizes()[3];
  const int64_t rows = out.sizes()[2], columns = out.sizes()[3];
  const int64_t cost = std::max<int64_t>(1, channels * window.kernel[0] * window.kernel[1]);
  parallel(out.numel() / channels, grain_size(cost), [&](int64_t begin, int64_t end) {
    for (int64_t pixel = begin; pixel < end; ++pixel) {
      const int64_t first = pixel / (rows * columns) * height;
      const int64_t y = pixel / columns % rows * window.stride[0] - window.padding[0];
      const int64_t x = pixel % columns * window.stride[1] - window.padding[1];
      uint8_t* const greatest = to + pixel * channels;
      std::memset(greatest, 0, static_cast<size_t>(channels));
      for (int64_t i = 0; i < window.kernel[0]; ++i) {
        const int64_t row = y + i * window.dilation[0];
        for (int64_t j = 0; row >= 0 && row < height && j < window.kernel[1]; ++j) {
          const int64_t column = x + j * window.dilation[1];
          if (column >= 0 && column < width) {
            OPSMITH_BEST(max_int8)
            (from + ((first + row) * width + column) * channels, greatest, channels, sign_bit);
          }
        }
      }
      OPSMITH_BEST(to_unsigned)(greatest, greatest, channels, sign_bit);
    }
  });
  put_back(to, out);
  return out;
}

}  // namespace opsmith::quantized::native
