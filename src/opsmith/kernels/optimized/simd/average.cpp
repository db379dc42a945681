// Averages of windows: of elements that lie at so many addresses, and of neighbours in a row.
#include "vector.h"
#include "statistics_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

// put(i, sums, lanes) for the sums of elements[k][i…], four vectors at a time.
template <class T, class Put>
OPSMITH_INLINE void sum_elements(const T* const* elements, int64_t number, int64_t count, Put put) {
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    F s0 = zero(), s1 = zero(), s2 = zero(), s3 = zero();
    for (int64_t k = 0; k < number; ++k) {
      const T* const p = elements[k] + i;
      s0 = s0 + load(p);
      s1 = s1 + load(p + kLanes);
      s2 = s2 + load(p + 2 * kLanes);
      s3 = s3 + load(p + 3 * kLanes);
    }
    put(i, s0, kLanes);
    put(i + kLanes, s1, kLanes);
    put(i + 2 * kLanes, s2, kLanes);
    put(i + 3 * kLanes, s3, kLanes);
  }
  for (; i < count; i += kLanes) {
    const int64_t lanes = least(count - i, kLanes);
    F s = zero();
    for (int64_t k = 0; k < number; ++k) {
      s = s + (lanes == kLanes ? load(elements[k] + i) : load_some(elements[k] + i, lanes));
    }
    put(i, s, lanes);
  }
}

template <class T>
OPSMITH_INLINE void averages(const T* const* elements, int64_t number, int64_t count, float divisor,
                             T* result) {
  const F all = splat(divisor);
  sum_elements(elements, number, count, [&](int64_t i, F sums, int64_t lanes) OPSMITH_ALWAYS_INLINE {
    lanes == kLanes ? store(result + i, sums / all) : store_some(result + i, sums / all, lanes);
  });
}

template <class T>
OPSMITH_INLINE void window_averages(const float* row, int64_t width, int64_t step, int64_t count,
                                    float divisor, T* result) {
  const F all = splat(divisor);
  int64_t i = 0;
  // The loads of each vector but the last lie within the row.
  for (; step <= 2 && i + kLanes < count; i += kLanes) {
    const float* const p = row + i * step;
    F s = zero();
    for (int64_t k = 0; k < width; ++k) {
      s = s + (step == 1 ? load(p + k) : evens(load(p + k), load(p + k + kLanes)));
    }
    store(result + i, s / all);
  }
  for (; i < count; i += kLanes) {
    const int64_t lanes = least(count - i, kLanes);
    float sums[kLanes] = {};
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const float* const p = row + (i + lane) * step;
      for (int64_t k = 0; k < width; ++k) {
        sums[lane] += p[k];
      }
    }
    store_some(result + i, load(sums) / all, lanes);
  }
}

}  // namespace

#define OPSMITH_AVERAGE(T, suffix)                                                                           \
  void averages_##suffix(const T* const* elements, int64_t number, int64_t count, float divisor,             \
                         T* result) {                                                                        \
    averages(elements, number, count, divisor, result);                                                      \
  }                                                                                                          \
  void row_sums_##suffix(const T* const* rows, int64_t number, int64_t count, float* sums) {                 \
    sum_elements(rows, number, count, [&](int64_t i, F s, int64_t lanes) OPSMITH_ALWAYS_INLINE {             \
      store_some(sums + i, s, lanes);                                                                        \
    });                                                                                                      \
  }                                                                                                          \
  void window_averages_##suffix(const float* row, int64_t width, int64_t step, int64_t count, float divisor, \
                                T* result) {                                                                 \
    window_averages(row, width, step, count, divisor, result);                                               \
  }
OPSMITH_AVERAGE(float, float)
OPSMITH_AVERAGE(Bfloat16, bfloat16)
OPSMITH_AVERAGE(Float16, float16)
#undef OPSMITH_AVERAGE

}  // namespace opsmith::optimized::OPSMITH_ISA
