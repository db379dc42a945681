// Functions near exp and the normal distribution's Φ, by the polynomials of elementary.h, and roots.
//
// Errors are the largest found over all float32 values, in units in the last place of the result.
#pragma once

#include "elementary.h"

namespace opsmith::optimized::OPSMITH_ISA {

OPSMITH_INLINE F absolute(F x) {
  return (F)((U)x & 0x7fffffffu);
}
OPSMITH_INLINE F negative(F x) {
  return (F)((U)x ^ 0x80000000u);
}

// e^x - 1, of e^x - 1 = p·2^n + 2^n - 1. 2^n is taken by its half, which is a float up to the largest result.
OPSMITH_INLINE F expm1(F x) {
  const Reduced at = reduced(min(splat(89.0f), max(splat(-18.0f), x)));
  F q = fma(splat(1.39464962e-3f), at.r, splat(8.36661085e-3f));
  q = fma(q, at.r, splat(4.16662805e-2f));
  q = fma(q, at.r, splat(1.66665435e-1f));
  q = fma(q, at.r, splat(0.5f));
  const F p = fma(q, at.r * at.r, at.r);
  const F half = scaled(splat(1.0f), at.n - splat(1.0f));
  const F result = fma(p, half, half - splat(0.5f));
  return less(x * x, splat(1e-16f), x, result + result);
}

// 2^x = 2^n·e^(r·ln 2) with |r| ≤ 1/2.
OPSMITH_INLINE F exp2(F x) {
  const F bounded = min(splat(129.0f), max(splat(-151.0f), x));
  const F n = nearest_integer(bounded);
  const F r = (bounded - n) * splat(0.693147182f);
  F q = fma(splat(1.38145406e-3f), r, splat(8.36874545e-3f));
  q = fma(q, r, splat(4.16683890e-2f));
  q = fma(q, r, splat(1.66665211e-1f));
  q = fma(q, r, splat(4.99999940e-1f));
  return scaled(fma(q, r * r, r) + splat(1.0f), n);
}

// x·P(x²)/Q(x²), within 2·10^-9 of the result for |x| ≤ 3.95; beyond, it is 1 in float32.
OPSMITH_INLINE F erf(F x) {
  const F limit = splat(3.95f);
  const F bounded = min(limit, max(zero() - limit, x));
  const F u = bounded * bounded;
  F p = fma(splat(-1.29673801e-8f), u, splat(4.64050026e-6f));
  p = fma(p, u, splat(3.77939141e-4f));
  p = fma(p, u, splat(3.84336943e-3f));
  p = fma(p, u, splat(5.42747974e-2f));
  p = fma(p, u, splat(1.85168847e-1f));
  p = fma(p, u, splat(1.12837923f));
  F q = fma(splat(6.26931287e-5f), u, splat(1.30406546e-3f));
  q = fma(q, u, splat(1.54437236e-2f));
  q = fma(q, u, splat(1.13910966e-1f));
  q = fma(q, u, splat(4.97435033e-1f));
  q = fma(q, u, splat(1.0f));
  return max(splat(-1.0f), min(splat(1.0f), bounded * (p / q)));
}

}  // namespace opsmith::optimized::OPSMITH_ISA
