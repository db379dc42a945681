// A product of activations that are quantized row by row with 4-bit weights that are quantized group by
// group, as simd/grouped_matmul.cpp calculates it.
//
// The weight is packed in panels of kGroupedPanel columns. A step of a panel is 64 bytes for 8 products of
// each column: byte 4·c + j has column c's value for product j of the step in its low half and for product
// 4 + j in its high half, each with 8 added. Groups are filled up to whole steps, with zeros. The layout is
// the same on every machine, since programs carry packed weights:
// opsmith/executorch/transforms/grouped_linear.py writes it.
#pragma once

#include <cstdint>

namespace opsmith::quantized {

inline constexpr int64_t kGroupedPanel = 16;
inline constexpr int64_t kStep = 8;
inline constexpr int64_t kStepBytes = kGroupedPanel * kStep / 2;

// out[m, n] = scale[m] · Σ_group weight_scale[n, group] · Σ_k (input[m, k] - zero[m]) · weight[n, k] +
// bias[n]
struct GroupedProduct {
  const int8_t* input;  // [m, groups, steps, kStep], filled up with zeros
  // [m, groups], 8 · Σ (input - zero): what the 8 that are added to the weights come to
  const int32_t* offsets;
  const float* scales;         // [m]
  const int32_t* zero_points;  // [m], each four times side by side as int8
  const uint8_t* weight;       // [panels, groups, steps, kStepBytes]
  const float* weight_scales;  // [panels, groups, kGroupedPanel]
  const float* bias;           // [n], may be null
  float* out;                  // [m, n]
  int64_t m, n, groups, steps;
};

// A row that is being quantized.
struct QuantizedRow {
  int8_t* values;    // [groups, steps, kStep]
  int32_t* offsets;  // [groups]
  float scale;
  int32_t zero_point;  // four times side by side
};

// The largest group whose sum cannot overflow: 255 · 15 · k < 2^31.
inline constexpr int64_t kLargestGroup = int64_t{1} << 19;

}  // namespace opsmith::quantized
