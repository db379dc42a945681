// Means, and sums of squared deviations from them, of contiguous elements and of columns over rows: of so few
// that they stay in the first-level cache for the second pass.
#include "map.h"
#include "statistics_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

template <class T>
OPSMITH_INLINE void moments_each(const T* x, int64_t rows, int64_t stride, int64_t n, float* means,
                                 float* squares) {
  const float share = 1.0f / static_cast<float>(n);
  for (int64_t row = 0; row < rows; ++row) {
    const T* const p = x + row * stride;
    const float mean = total(p, n, [](F v) OPSMITH_ALWAYS_INLINE { return v; }) * share;
    const F middle = splat(mean);
    means[row] = mean;
    squares[row] = total(p, n, [middle](F v) OPSMITH_ALWAYS_INLINE {
      const F deviation = v - middle;
      return deviation * deviation;
    });
  }
}

// Of kVectors·kLanes columns, of which the last vector has `lanes`.
template <int kVectors, class T>
OPSMITH_INLINE void moments_of_strip(const T* x, int64_t rows, int64_t stride, int64_t lanes, F share,
                                     float* means, float* squares) {
  const auto at = [&](const T* p, int v) OPSMITH_ALWAYS_INLINE {
    return kVectors > 1 || lanes == kLanes ? load(p + v * kLanes) : load_some(p, lanes);
  };
  F sums[kVectors], deviations[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    sums[v] = zero();
    deviations[v] = zero();
  }
  const T* p = x;
  for (int64_t row = 0; row < rows; ++row, p += stride) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = sums[v] + at(p, v);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    sums[v] = sums[v] * share;
  }
  p = x;
  for (int64_t row = 0; row < rows; ++row, p += stride) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const F deviation = at(p, v) - sums[v];
      deviations[v] = fma(deviation, deviation, deviations[v]);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    store_some(means + v * kLanes, sums[v], kVectors > 1 ? kLanes : lanes);
    store_some(squares + v * kLanes, deviations[v], kVectors > 1 ? kLanes : lanes);
  }
}

template <class T>
OPSMITH_INLINE void moments_of_columns(const T* x, int64_t rows, int64_t stride, int64_t columns,
                                       float* means, float* squares) {
  const F share = splat(1.0f / static_cast<float>(rows));
  int64_t column = 0;
  for (; column + 4 * kLanes <= columns; column += 4 * kLanes) {
    moments_of_strip<4>(x + column, rows, stride, kLanes, share, means + column, squares + column);
  }
  for (; column < columns; column += kLanes) {
    moments_of_strip<1>(x + column, rows, stride, least(columns - column, kLanes), share, means + column,
                        squares + column);
  }
}

}  // namespace

#define OPSMITH_MOMENTS(T, suffix)                                                                          \
  void moments_each_##suffix(const T* x, int64_t rows, int64_t stride, int64_t n, float* means,             \
                             float* squares) {                                                              \
    moments_each(x, rows, stride, n, means, squares);                                                       \
  }                                                                                                         \
  void moments_of_columns_##suffix(const T* x, int64_t rows, int64_t stride, int64_t columns, float* means, \
                                   float* squares) {                                                        \
    moments_of_columns(x, rows, stride, columns, means, squares);                                           \
  }
OPSMITH_MOMENTS(float, float)
OPSMITH_MOMENTS(Bfloat16, bfloat16)
OPSMITH_MOMENTS(Float16, float16)
#undef OPSMITH_MOMENTS

}  // namespace opsmith::optimized::OPSMITH_ISA
