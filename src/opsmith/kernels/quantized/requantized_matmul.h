// A product of quantized activations with quantized weights whose results are quantized again, as
// simd/requantized_matmul.cpp calculates it; and the rows of activations that make a convolution one.
//
// The weight is packed in panels of kPackedPanel columns. A panel begins with the sums of its columns, int32;
// then come steps of 64 bytes, for 4 products of each column: byte 4·c + j has column c's value for product j
// of the step. Depth and columns are filled up with zeros. The layout is the same on every machine, since
// programs carry packed weights: opsmith/executorch/transforms/int8_packing.py writes it.
#pragma once

#include <cstdint>

namespace opsmith::quantized {

inline constexpr int64_t kPackedPanel = 16;
inline constexpr int64_t kPackedStep = 4;
inline constexpr int64_t kPackedBytes = kPackedPanel * kPackedStep;

// How int32 sums become bytes: clamp(round(sum · multiplier + offset), least, greatest) + zero point, for
// each column.
struct Requantization {
  const float* multipliers;
  const float* offsets;
  float least, greatest;  // less the zero point
  int32_t zero_point;     // of the result
};

// out[m, n] = requantized Σ_k (input[m, k] - zero) · weight[n, k]
struct RequantizedProduct {
  const uint8_t* input;  // [m, steps, kPackedStep], as unsigned
  int32_t zero_point;    // of the input, as unsigned
  const int8_t* weight;  // [panels, 1 + steps, kPackedBytes]
  Requantization requantization;
  uint8_t* out;  // rows are out_stride apart
  int64_t out_stride;
  int64_t m, n, steps;
};

// The windows from which the pixels of a convolution's result are computed. The image has its channels
// innermost; those of a group are `channels`, from `image` on.
struct Int8Windows {
  const uint8_t* image;  // as it is given
  uint8_t sign_bit;      // 0x80 for signed values, else 0
  uint8_t zero_point;    // as unsigned, what is around the image
  int64_t channels;
  int64_t pixel_stride;  // in bytes: all channels
  int64_t height, width;
  int64_t kernel[2], stride[2], padding[2], dilation[2];
  int64_t out_height, out_width;
};

// A pixel of a convolution with one channel to a group: `places` of the kernel, each with the image's
// channels there.
struct DepthwisePixel {
  const uint8_t* const* places;
  int64_t count;
  const int8_t* weight;  // [count, channels]
  int64_t channels;
  uint8_t sign_bit;
  int32_t zero_point;  // as unsigned
  Requantization requantization;
  uint8_t* out;
};

// out = clamp(round(a · left + b · right + offset), least, greatest) + zero point, of a and b as unsigned
struct Int8Addition {
  float left, right, offset;
  float least, greatest;  // less the zero point
  int32_t zero_point;     // of the result
  uint8_t sign_bit;
};

}  // namespace opsmith::quantized
