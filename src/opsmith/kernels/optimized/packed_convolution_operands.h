// The operands of simd/packed_convolution.cpp. Plain data, since every instruction set's code has it.
#pragma once

#include <cstdint>

#include "matmul_operands.h"

namespace opsmith::optimized {

// Pixels of a channels-last map, one after the other, from the pixels of another that they meet: for each
// place in the kernel, where its channels lie. Each result is bias + Σ weight · channel (+ other), no less
// than `low` and no more than `high`.
struct PackedPixels {
  const float* const* sources;  // [place][pixel]
  int64_t place_step;           // from a place to the next in `sources`
  int64_t pixels;
  int64_t places;
  int64_t depth;         // channels of a place; of a depthwise kernel 1
  int64_t at_once;       // places whose weights stay in the caches while all pixels pass by
  const float* weights;  // panels of [place][depth][kPanel]
  int64_t channels;      // of the result, beginning with a panel's first
  const float* bias;     // or null
  const float* other;    // where the result lies in another map of the same strides, or null
  float* result;
  int64_t pixel_step;  // from a pixel of the result to the next
  float low;
  float high;
};

}  // namespace opsmith::optimized
