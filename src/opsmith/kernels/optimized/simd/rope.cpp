// Rotary embedding of one row: pairs of numbers, turned by the angles whose cosines and sines are given.
#include "map.h"
#include "../matmul_operands.h"
#include "float_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

struct Turned {
  F first;
  F second;
};
OPSMITH_INLINE Turned turned(F first, F second, F cos, F sin) {
  return {fma(first, cos, zero() - second * sin), fma(second, cos, first * sin)};
}

// Element i with element pairs + i.
template <class T, class C>
OPSMITH_INLINE void halves(const T* x, const C* cos, const C* sin, T* y, int64_t pairs) {
  int64_t i = 0;
  for (; i + kLanes <= pairs; i += kLanes) {
    const Turned to = turned(load(x + i), load(x + pairs + i), load(cos + i), load(sin + i));
    store(y + i, to.first);
    store(y + pairs + i, to.second);
  }
  if (i < pairs) {
    const int64_t n = pairs - i;
    const Turned to = turned(load_some(x + i, n), load_some(x + pairs + i, n), load_some(cos + i, n),
                             load_some(sin + i, n));
    store_some(y + i, to.first, n);
    store_some(y + pairs + i, to.second, n);
  }
}

// A vector of pairs of neighbours, of which one element behind them is read.
template <class T>
OPSMITH_INLINE void turn_neighbours(const T* x, F cos, F sin, T* y) {
  const F first = evens(load(x), load(x + kLanes)), second = evens(load(x + 1), load(x + kLanes + 1));
  const Turned to = turned(first, second, cos, sin);
  store(y, alternating_low(to.first, to.second));
  store(y + kLanes, alternating_high(to.first, to.second));
}

// Element 2i with element 2i + 1.
template <class T, class C>
OPSMITH_INLINE void neighbours(const T* x, const C* cos, const C* sin, T* y, int64_t pairs) {
  int64_t i = 0;
  for (; i + kLanes < pairs; i += kLanes) {
    turn_neighbours(x + 2 * i, load(cos + i), load(sin + i), y + 2 * i);
  }
  const int64_t n = pairs - i;
  if (n > 0) {
    T last[2 * kLanes + 1] = {};
    for (int64_t j = 0; j < 2 * n; ++j) {
      last[j] = x[2 * i + j];
    }
    turn_neighbours(last, load_some(cos + i, n), load_some(sin + i, n), last);
    for (int64_t j = 0; j < 2 * n; ++j) {
      y[2 * i + j] = last[j];
    }
  }
}

}  // namespace

#define OPSMITH_ROPE(T, C, suffix)                                                             \
  void rope_halves_##suffix(const T* x, const C* cos, const C* sin, T* y, int64_t pairs) {     \
    halves(x, cos, sin, y, pairs);                                                             \
  }                                                                                            \
  void rope_neighbours_##suffix(const T* x, const C* cos, const C* sin, T* y, int64_t pairs) { \
    neighbours(x, cos, sin, y, pairs);                                                         \
  }
OPSMITH_ROPE(float, float, float)
OPSMITH_ROPE(Bfloat16, Bfloat16, bfloat16)
OPSMITH_ROPE(Bfloat16, float, bfloat16_float)
OPSMITH_ROPE(Float16, Float16, float16)
OPSMITH_ROPE(Float16, float, float16_float)
#undef OPSMITH_ROPE

}  // namespace opsmith::optimized::OPSMITH_ISA
