// The operands of simd/convolution.cpp. Plain data, since every instruction set's code has it.
//
// A block is a copy of a part of a feature map with zeros where the convolution reaches beyond it, so that
// nothing which reads it asks for bounds. It consists of units of 4 bytes: a float32, or of bfloat16 the
// elements of two neighbouring channels, which is how VDPBF16PS takes them. Behind a block there are kSlack
// units more: whole vectors may be read and written beyond its end.
#pragma once

#include <cstdint>

#include "bfloat16.h"

namespace opsmith::optimized {

constexpr int64_t kSlack = 16;

// Rows of a block: `before` zeros, `count` elements of a feature map, zeros up to `width`. Of `rows` rows,
// those between row_begin and row_end are the map's, the others are zeros. So for each of some planes.
template <class T>
struct RowCopy {
  const T* from;    // the first element of row row_begin
  const T* second;  // of the neighbouring channel, or null, where units are pairs
  int64_t planes;
  int64_t from_plane;
  int64_t from_row;
  int64_t step;  // between elements
  int64_t rows;
  int64_t row_begin;
  int64_t row_end;
  int64_t before;
  int64_t count;
  int64_t width;
  float* to;
  int64_t to_plane;
  int64_t to_row;
};

// Pixels that lie one after the other in a block: `count` of them, from unit `from` to the `at`-th of a row.
struct Run {
  int64_t at;
  int64_t from;
  int64_t count;
};

// result[y][x] = bias + Σ weights[t] · block[y · block_row + x + offsets[t]]
template <class T>
struct Depthwise {
  const float* block;
  int64_t block_row;
  const int64_t* offsets;
  const float* weights;
  int64_t kernel_size;
  float bias;
  T* result;
  int64_t result_row;
  int64_t rows;
  int64_t columns;
};

// sums[t] += Σ grad[y][x] · block[y · block_row + x + offsets[t]]
struct DepthwiseGradient {
  const float* block;
  int64_t block_row;
  const int64_t* offsets;
  int64_t kernel_size;
  const float* grad;
  int64_t grad_row;
  int64_t rows;
  int64_t columns;
  double* sums;
};

}  // namespace opsmith::optimized
