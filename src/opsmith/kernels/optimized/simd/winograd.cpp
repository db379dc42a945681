// The transforms of winograd.h: of weights, of the source and of the result, a vector of channels or tiles at
// a time.
#include "vector.h"
#include "float_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

// One dimension of a transform, on four vectors in place.
OPSMITH_INLINE void transform_source(F& a, F& b, F& c, F& d) {
  const F second = b + c, third = c - b;
  a = a - c;
  d = b - d;
  b = second;
  c = third;
}

// Every second of the tiles' elements in a row, from `p` on.
OPSMITH_INLINE F every_second(const float* p) {
  return evens(load(p), load(p + kLanes));
}

}  // namespace

void winograd_weights(const float* weights, float* to, int64_t to_plane) {
  const F half = splat(0.5f);
  for (int64_t lane = 0; lane < kChannelsTogether; lane += kLanes) {
    F rows[kPatchSide][3];
#pragma GCC unroll 3
    for (int64_t x = 0; x < 3; ++x) {
      const F first = load(weights + x * kChannelsTogether + lane);
      const F second = load(weights + (3 + x) * kChannelsTogether + lane);
      const F third = load(weights + (6 + x) * kChannelsTogether + lane);
      const F outer = (first + third) * half, inner = second * half;
      rows[0][x] = first;
      rows[1][x] = outer + inner;
      rows[2][x] = outer - inner;
      rows[3][x] = third;
    }
#pragma GCC unroll 4
    for (int64_t y = 0; y < kPatchSide; ++y) {
      const F outer = (rows[y][0] + rows[y][2]) * half, inner = rows[y][1] * half;
      float* const at = to + y * kPatchSide * to_plane + lane;
      store(at, rows[y][0]);
      store(at + to_plane, outer + inner);
      store(at + 2 * to_plane, outer - inner);
      store(at + 3 * to_plane, rows[y][2]);
    }
  }
}

void winograd_source(const WinogradSource& row) {
  for (int64_t tile = 0; tile < row.tiles; tile += kLanes) {
    F x[kPatchSide][kPatchSide];
#pragma GCC unroll 4
    for (int64_t j = 0; j < kPatchSide; ++j) {
#pragma GCC unroll 4
      for (int64_t i = 0; i < kPatchSide; ++i) {
        x[i][j] = every_second(row.from + i * row.from_row + tile * kTileSide + j);
      }
      transform_source(x[0][j], x[1][j], x[2][j], x[3][j]);
    }
#pragma GCC unroll 4
    for (int64_t i = 0; i < kPatchSide; ++i) {
      transform_source(x[i][0], x[i][1], x[i][2], x[i][3]);
#pragma GCC unroll 4
      for (int64_t j = 0; j < kPatchSide; ++j) {
        store(row.to + (i * kPatchSide + j) * row.to_plane + tile, x[i][j]);
      }
    }
  }
}

bool winograd_result(const WinogradResult& row) {
  F not_finite = zero();
  const F bias = splat(row.bias);
  for (int64_t tile = 0; tile < row.tiles; tile += kLanes) {
    const int64_t lanes = row.tiles - tile;
    // Rows of the tile by points of its columns.
    F sums[kTileSide][kPatchSide];
#pragma GCC unroll 4
    for (int64_t j = 0; j < kPatchSide; ++j) {
      F x[kPatchSide];
#pragma GCC unroll 4
      for (int64_t i = 0; i < kPatchSide; ++i) {
        const float* const from = row.from + (i * kPatchSide + j) * row.from_plane + tile;
        x[i] = lanes >= kLanes ? load(from) : load_some(from, lanes);
      }
      sums[0][j] = x[0] + x[1] + x[2];
      sums[1][j] = x[1] - x[2] - x[3];
    }
    for (int64_t i = 0; i < row.rows; ++i) {
      const F inner = sums[i][1] + bias, even = sums[i][0] + inner + sums[i][2];
      const F odd = inner - sums[i][2] - sums[i][3];
      not_finite = fma(even, zero(), fma(odd, zero(), not_finite));
      float* const to = row.to + i * row.to_row + tile * kTileSide;
      const int64_t columns = row.columns - tile * kTileSide;
      const F parts[] = {alternating_low(even, odd), alternating_high(even, odd)};
#pragma GCC unroll 2
      for (int64_t part = 0; part < 2; ++part) {
        const int64_t count = columns - part * kLanes;
        if (count >= kLanes) {
          store(to + part * kLanes, parts[part]);
        } else if (count > 0) {
          store_some(to + part * kLanes, parts[part], count);
        }
      }
    }
  }
  return sum(not_finite) == 0.0f;
}

}  // namespace opsmith::optimized::OPSMITH_ISA
