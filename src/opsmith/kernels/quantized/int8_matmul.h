// A product of quantized activations with quantized weights, as simd/int8_matmul.cpp calculates it.
#pragma once

#include <cstdint>

namespace opsmith::quantized {

// out[m, n] = Σ_k (input[m, k] - zero[m]) · weight[n, k] · scale[m] · weight_scale[n] + bias[n], all
// row-major.
struct Int8Product {
  const uint8_t* input;    // [m, k], as unsigned: signed values have their sign bit flipped on loading
  uint8_t sign_bit;        // 0x80 for signed values, else 0
  const int16_t* shifted;  // [m, k], input - zero, where needs_shifted(); else null
  const int8_t* weight;    // [n, k]
  int64_t m, n, k;
  const float* scales;         // of the input
  const int32_t* zero_points;  // of the input as unsigned
  int64_t per_row;             // 1: each row has its scale and zero point; 0: all share the first
  const float* weight_scales;
  int64_t per_channel;    // 1: each row of the weight has its scale; 0: all share the first
  const float* bias;      // may be null
  float* out;             // [m, n]
  bool has_dot_products;  // of bytes, by the processor's SDOT
};

// Columns of the weight that are packed together, as [⌈k / 4⌉][kPanel][4].
inline constexpr int64_t kPanel = 32;

// The largest k whose sum cannot overflow: 255 · 128 · k < 2^31.
inline constexpr int64_t kMostTerms = 65536;

}  // namespace opsmith::quantized
