// Sums of contiguous elements, and of columns over rows.
//
// At most kBlock elements or kRows rows are added in float32, in several lanes; their sums in float64. So an
// error grows with the square root of the block's length, not with that of the whole.
#include "map.h"
#include "../matmul_operands.h"
#include "float_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

constexpr int64_t kBlock = 2048;
constexpr int64_t kRows = 256;

template <class T>
OPSMITH_INLINE double sum_all(const T* x, int64_t n) {
  double whole = 0;
  for (int64_t i = 0; i < n; i += kBlock) {
    whole +=
        static_cast<double>(total(x + i, least(n - i, kBlock), [](F v) OPSMITH_ALWAYS_INLINE { return v; }));
  }
  return whole;
}

// Short rows are added one element after another: neighbouring rows do not wait for each other.
template <class T>
OPSMITH_INLINE void sum_each(const T* x, int64_t rows, int64_t stride, int64_t n, double* totals) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* const p = x + row * stride;
    if (n > 2 * kLanes) {
      totals[row] += sum_all(p, n);
      continue;
    }
    float one = 0, other = 0;
    int64_t i = 0;
    for (; i + 2 <= n; i += 2) {
      one += widened_one(p[i]);
      other += widened_one(p[i + 1]);
    }
    totals[row] += static_cast<double>(one + other + (i < n ? widened_one(p[i]) : 0.0f));
  }
}

template <class T>
OPSMITH_INLINE void add_to(double* totals, F sums, int64_t n) {
  float lanes[kLanes];
  store(lanes, sums);
  for (int64_t i = 0; i < n; ++i) {
    totals[i] += static_cast<double>(lanes[i]);
  }
}

template <class T>
OPSMITH_INLINE void sum_columns(const T* x, int64_t rows, int64_t stride, int64_t columns, double* totals) {
  for (int64_t row = 0; row < rows; row += kRows) {
    const int64_t count = least(rows - row, kRows);
    const T* const block = x + row * stride;
    int64_t column = 0;
    for (; column + 4 * kLanes <= columns; column += 4 * kLanes) {
      F s0 = zero(), s1 = zero(), s2 = zero(), s3 = zero();
      const T* p = block + column;
      for (int64_t i = 0; i < count; ++i, p += stride) {
        s0 = s0 + load(p);
        s1 = s1 + load(p + kLanes);
        s2 = s2 + load(p + 2 * kLanes);
        s3 = s3 + load(p + 3 * kLanes);
      }
      add_to<T>(totals + column, s0, kLanes);
      add_to<T>(totals + column + kLanes, s1, kLanes);
      add_to<T>(totals + column + 2 * kLanes, s2, kLanes);
      add_to<T>(totals + column + 3 * kLanes, s3, kLanes);
    }
    for (; column < columns; column += kLanes) {
      const int64_t lanes = least(columns - column, kLanes);
      F s = zero();
      const T* p = block + column;
      for (int64_t i = 0; i < count; ++i, p += stride) {
        s = s + load_some(p, lanes);
      }
      add_to<T>(totals + column, s, lanes);
    }
  }
}

}  // namespace

#define OPSMITH_SUMS(T, suffix)                                                                       \
  void sum_each_##suffix(const T* x, int64_t rows, int64_t stride, int64_t n, double* totals) {       \
    sum_each(x, rows, stride, n, totals);                                                             \
  }                                                                                                   \
  void sum_rows_##suffix(const T* x, int64_t rows, int64_t stride, int64_t columns, double* totals) { \
    sum_columns(x, rows, stride, columns, totals);                                                    \
  }
OPSMITH_SUMS(float, float)
OPSMITH_SUMS(Bfloat16, bfloat16)
OPSMITH_SUMS(Float16, float16)
#undef OPSMITH_SUMS

}  // namespace opsmith::optimized::OPSMITH_ISA
