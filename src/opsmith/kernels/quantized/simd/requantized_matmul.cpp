// RequantizedProduct, a tile of rows of the input by panels of the weight at a time; the rows of a
// convolution, gathered; and depthwise convolutions, sums and maxima of bytes.
#include "quantization_functions.h"
#include "rounding.h"

#include <algorithm>
#include <cstring>

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

// A value in units of the result's scale as a byte; NaN is the least.
inline uint8_t as_byte(float value, float least, float greatest, int32_t zero_point) {
  const float bounded = value > least ? value : least;
  return static_cast<uint8_t>(static_cast<int32_t>(round_even(bounded < greatest ? bounded : greatest)) +
                              zero_point);
}

inline uint8_t requantized(const Requantization& r, int32_t sum, int64_t column) {
  return as_byte(static_cast<float>(sum) * r.multipliers[column] + r.offsets[column], r.least, r.greatest,
                 r.zero_point);
}

// The bytes as unsigned.
inline void copy_unsigned(const uint8_t* from, uint8_t* to, int64_t n, uint8_t sign_bit) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = from[i] ^ sign_bit;
  }
}

// A row of one place in the kernel's height: `width` places beside one another, from pixel `x` on.
void gather_row(const Int8Windows& w, const uint8_t* row, int64_t x, uint8_t* to) {
  const int64_t places = w.kernel[1], step = w.dilation[1];
  if (step == 1 && w.channels == w.pixel_stride) {
    const int64_t begin = std::clamp<int64_t>(-x, 0, places);
    const int64_t end = std::clamp<int64_t>(w.width - x, begin, places);
    std::memset(to, w.zero_point, static_cast<size_t>(begin * w.channels));
    copy_unsigned(row + (x + begin) * w.pixel_stride, to + begin * w.channels, (end - begin) * w.channels,
                  w.sign_bit);
    std::memset(to + end * w.channels, w.zero_point, static_cast<size_t>((places - end) * w.channels));
    return;
  }
  for (int64_t place = 0; place < places; ++place, to += w.channels) {
    const int64_t at = x + place * step;
    if (at < 0 || at >= w.width) {
      std::memset(to, w.zero_point, static_cast<size_t>(w.channels));
    } else {
      copy_unsigned(row + at * w.pixel_stride, to, w.channels, w.sign_bit);
    }
  }
}

}  // namespace

void to_unsigned(const uint8_t* from, uint8_t* to, int64_t n, uint8_t sign_bit) {
  copy_unsigned(from, to, n, sign_bit);
}

void gather_windows(const Int8Windows& w, int64_t begin, int64_t end, uint8_t* to) {
  const int64_t row_bytes = w.kernel[1] * w.channels;
  const int64_t depth = w.kernel[0] * row_bytes;
  const int64_t filled = (depth + kPackedStep - 1) / kPackedStep * kPackedStep;
  const int64_t pixels = w.out_height * w.out_width;
  for (int64_t pixel = begin; pixel < end; ++pixel, to += filled) {
    const int64_t image = pixel / pixels, y = pixel % pixels / w.out_width, x = pixel % w.out_width;
    const uint8_t* const from = w.image + image * w.height * w.width * w.pixel_stride;
    for (int64_t place = 0; place < w.kernel[0]; ++place) {
      const int64_t at = y * w.stride[0] - w.padding[0] + place * w.dilation[0];
      uint8_t* const row = to + place * row_bytes;
      if (at < 0 || at >= w.height) {
        std::memset(row, w.zero_point, static_cast<size_t>(row_bytes));
      } else {
        gather_row(w, from + at * w.width * w.pixel_stride, x * w.stride[1] - w.padding[1], row);
      }
    }
    std::memset(to + depth, 0, static_cast<size_t>(filled - depth));
  }
}

void depthwise_pixel(const DepthwisePixel& p) {
  constexpr int64_t kBlock = 64;
  for (int64_t first = 0; first < p.channels; first += kBlock) {
    const int64_t count = std::min(kBlock, p.channels - first);
    int32_t sums[kBlock] = {};
    for (int64_t place = 0; place < p.count; ++place) {
      const uint8_t* const x = p.places[place] + first;
      const int8_t* const weight = p.weight + place * p.channels + first;
      for (int64_t i = 0; i < count; ++i) {
        // 255 · 128 fits 16 bits.
        const auto value = static_cast<int16_t>((x[i] ^ p.sign_bit) - p.zero_point);
        sums[i] += static_cast<int16_t>(value * weight[i]);
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      p.out[first + i] = requantized(p.requantization, sums[i], first + i);
    }
  }
}

void add_int8(const uint8_t* a, const uint8_t* b, uint8_t* out, int64_t n, const Int8Addition& sum) {
  for (int64_t i = 0; i < n; ++i) {
    const auto left = static_cast<float>(a[i] ^ sum.sign_bit),
               right = static_cast<float>(b[i] ^ sum.sign_bit);
    const float value = left * sum.left + (right * sum.right + sum.offset);
    out[i] = as_byte(value, sum.least, sum.greatest, sum.zero_point);
  }
}

void max_int8(const uint8_t* x, uint8_t* greatest, int64_t n, uint8_t sign_bit) {
  for (int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<uint8_t>(x[i] ^ sign_bit);
    greatest[i] = std::max(value, greatest[i]);
  }
}

}  // namespace opsmith::quantized::OPSMITH_ISA

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include "../arch/x86/requantized_matmul_vnni.h"
#elif defined(__AVX2__)
#include "../arch/x86/requantized_matmul_avx2.h"
#else
#include "requantized_matmul_int16.h"
#endif
