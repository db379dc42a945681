// The operands of simd/winograd.cpp. Plain data, since every instruction set's code has it.
//
// A tile is 2 × 2 pixels of the result of a 3 × 3 kernel, from 4 × 4 of the source. Its transform has kPoints
// elements, which lie one plane each apart: the sum over the channels is a product for each.
#pragma once

#include <cstdint>

namespace opsmith::optimized {

constexpr int64_t kTileSide = 2;
constexpr int64_t kPatchSide = 4;
constexpr int64_t kPoints = kPatchSide * kPatchSide;
constexpr int64_t kPlaces = 9;
// Channels whose weights are transformed at once.
constexpr int64_t kChannelsTogether = 16;

// A row of tiles of one channel, from kPatchSide rows of its source. Whole vectors are read and stored.
struct WinogradSource {
  const float* from;
  int64_t from_row;
  int64_t tiles;
  float* to;
  int64_t to_plane;
};

// A row of tiles of the result: `columns` pixels in each of one or two rows.
struct WinogradResult {
  const float* from;
  int64_t from_plane;
  int64_t tiles;
  float bias;
  float* to;
  int64_t to_row;
  int64_t rows;
  int64_t columns;
};

}  // namespace opsmith::optimized
