// exp, tanh and the normal distribution's Φ of a vector, by polynomials.
//
// The coefficients come from tools/fit_elementary: Remez' algorithm in 40 digits, rounded to float32.
// Errors are the largest found over all float32 values (exp, tanh) or 4·10^6 of them (Φ), in units in the
// last place of the result.
#pragma once

#include "vector.h"

namespace opsmith::optimized::OPSMITH_ISA {

// x = n·ln 2 + r with |r| ≤ ln(2)/2; ln 2 in two parts, of which the first has few bits.
struct Reduced {
  F n;
  F r;
};
OPSMITH_INLINE Reduced reduced(F x) {
  const F n = nearest_integer(x * splat(1.44269504f));
  return {n, fma(n, splat(-1.42860677e-6f), fma(n, splat(-0.693145752f), x))};
}

// e^x: 1 + r + r²·q(r), q of degree 4 (2^-28.3 of the result). NaN stays, exp(-inf) = 0, exp(inf) = inf,
// subnormal results are kept.
OPSMITH_INLINE F exp(F x) {
  const Reduced at = reduced(min(splat(89.0f), max(splat(-105.0f), x)));
  F q = fma(splat(1.38145406e-3f), at.r, splat(8.36874545e-3f));
  q = fma(q, at.r, splat(4.16683890e-2f));
  q = fma(q, at.r, splat(1.66665211e-1f));
  q = fma(q, at.r, splat(4.99999940e-1f));
  return scaled(fma(q, at.r * at.r, at.r) + splat(1.0f), at.n);
}

// tanh(x) = (e^2x - 1) / (e^2x + 1), with e^2x - 1 from a polynomial that is accurate near 0 (2^-26 of it).
OPSMITH_INLINE F tanh(F x) {
  const F limit = splat(9.02f);  // from here on it rounds to 1
  const F bounded = min(limit, max(zero() - limit, x));
  const Reduced at = reduced(bounded + bounded);
  F q = fma(splat(1.39464962e-3f), at.r, splat(8.36661085e-3f));
  q = fma(q, at.r, splat(4.16662805e-2f));
  q = fma(q, at.r, splat(1.66665435e-1f));
  q = fma(q, at.r, splat(0.5f));
  const F p = fma(q, at.r * at.r, at.r);
  const F power = scaled(splat(1.0f), at.n);
  const F less_one = fma(p, power, power - splat(1.0f));
  // Where it rounds to x, it is x: less_one has lost the sign of a zero.
  return less(x * x, splat(1e-12f), x, less_one / (less_one + splat(2.0f)));
}

OPSMITH_INLINE F sigmoid(F x) {
  return splat(1.0f) / (splat(1.0f) + exp(zero() - x));
}

// x·Φ(x), Φ(x) - 1/2 being an odd rational function of degrees 11 and 10, within 7·10^-9 for |x| ≤ 5.5.
// Beyond, Φ is 0 or 1 in float32.
OPSMITH_INLINE F gelu_erf(F x) {
  const F bounded = min(splat(5.5f), max(splat(-5.5f), x));
  const F u = bounded * bounded;
  F p = fma(splat(2.27493367e-8f), u, splat(6.35211496e-6f));
  p = fma(p, u, splat(1.68826064e-4f));
  p = fma(p, u, splat(4.67726291e-3f));
  p = fma(p, u, splat(3.38526913e-2f));
  p = fma(p, u, splat(3.98942235e-1f));
  F q = fma(splat(1.19750288e-6f), u, splat(7.36475982e-5f));
  q = fma(q, u, splat(1.88444705e-3f));
  q = fma(q, u, splat(2.86458960e-2f));
  q = fma(q, u, splat(2.51522032e-1f));
  q = fma(q, u, splat(1.0f));
  const F phi = fma(bounded, p / q, splat(0.5f));
  return x * less(x, splat(-5.5f), zero(), phi);
}

// x / (1 + e^-2u) with u = √(2/π)·(x + 0.044715·x³), which is x·(1 + tanh u)/2.
OPSMITH_INLINE F gelu_tanh(F x) {
  const F u = x * fma(x * x, splat(-2.0f * 0.7978845608f * 0.044715f), splat(-2.0f * 0.7978845608f));
  return x / (splat(1.0f) + exp(u));
}

// NaN and -0 are not less than 0, and stay.
OPSMITH_INLINE F relu(F x) {
  return less(x, zero(), zero(), x);
}

// min(max(x + 3, 0), 6); NaN stays.
OPSMITH_INLINE F ramp(F x) {
  return min(splat(6.0f), max(zero(), x + splat(3.0f)));
}

OPSMITH_INLINE F hardsigmoid(F x) {
  return ramp(x) / splat(6.0f);
}

OPSMITH_INLINE F hardswish(F x) {
  return x * ramp(x) / splat(6.0f);
}

OPSMITH_INLINE F silu(F x) {
  return x / (splat(1.0f) + exp(zero() - x));
}

}  // namespace opsmith::optimized::OPSMITH_ISA
