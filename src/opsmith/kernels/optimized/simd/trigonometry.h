// Sine and cosine of a vector, by polynomials of tools/fit_elementary: within 2.5 units in the last place of
// the result, for every 97th float32.
#pragma once

#include "exponential.h"

namespace opsmith::optimized::OPSMITH_ISA {

// x = quarter·π/2 + r with |r| ≤ π/4.
struct Quarters {
  U quarter;
  F r;
};
// Up to kMostQuarters of them: so few have a product without rounding with each of the first three parts that
// π/2 is taken off in, of 8, 11 and 11 bits.
constexpr float kMostQuarters = 8192.0f;
OPSMITH_INLINE Quarters in_quarters(F x) {
  typedef int32_t Signed __attribute__((vector_size(sizeof(F))));
  const F n = nearest_integer(x * splat(0.636619772f));
  F r = fma(n, splat(-1.5703125f), x);
  r = fma(n, splat(-4.83751297e-4f), r);
  r = fma(n, splat(-7.54953362e-8f), r);
  r = fma(n, splat(-2.56334407e-12f), r);
  return {(U) __builtin_convertvector(n, Signed), r};
}

OPSMITH_INLINE F sine_or_cosine(F x, uint32_t first_quarter) {
  const Quarters at = in_quarters(x);
  const F square = at.r * at.r;
  F s = fma(splat(-1.95146320e-4f), square, splat(8.33215564e-3f));
  s = fma(s, square, splat(-1.66666552e-1f));
  s = fma(s, square * at.r, at.r);
  F c = fma(splat(2.44377297e-5f), square, splat(-1.38873619e-3f));
  c = fma(c, square, splat(4.16666456e-2f));
  c = fma(c, square * square, fma(square, splat(-0.5f), splat(1.0f)));
  const U quarter = at.quarter + first_quarter;
  const U odd = 0u - (quarter & 1u);
  return (F)((((U)c & odd) | ((U)s & ~odd)) ^ ((quarter & 2u) << 30));
}

// One lane after the other by libm, where one is beyond the quarters that have no rounding, or not finite.
template <uint32_t kFirstQuarter>
OPSMITH_INLINE F sine_or_cosine_of_any(F x) {
  const F limit = splat(kMostQuarters * 1.57f), one = splat(1.0f);
  if (max_lane(less(absolute(x), limit, zero(), one)) == 0.0f) {
    return sine_or_cosine(x, kFirstQuarter);
  }
  float lanes[kLanes];
  store(lanes, x);
  for (int64_t i = 0; i < kLanes; ++i) {
    lanes[i] = kFirstQuarter == 0 ? __builtin_sinf(lanes[i]) : __builtin_cosf(lanes[i]);
  }
  return load(lanes);
}
// So small an x is its own sine, a zero with its sign too.
OPSMITH_INLINE F sine(F x) {
  return less(absolute(x), splat(2e-4f), x, sine_or_cosine_of_any<0>(x));
}
OPSMITH_INLINE F cosine(F x) {
  return sine_or_cosine_of_any<1>(x);
}

}  // namespace opsmith::optimized::OPSMITH_ISA
