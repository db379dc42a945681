// Logarithms of a vector, by a polynomial of tools/fit_elementary.
//
// Errors are the largest found over all float32 values, in units in the last place of the result.
#pragma once

#include "vector.h"

namespace opsmith::optimized::OPSMITH_ISA {

// x = 2^n·(1 + f) of a positive finite x, with 1 + f between √½ and √2; log(1 + f) = f + rest.
struct Logarithm {
  F n;
  F f;
  F rest;
};
OPSMITH_INLINE Logarithm logarithm_of_normal(F x) {
  typedef int32_t Signed __attribute__((vector_size(sizeof(F))));
  const U bits = (U)x;
  const Signed exponent = (Signed)(bits - 0x3f3504f3u) >> 23;
  const F f = (F)(bits - ((U)exponent << 23)) - splat(1.0f);
  const F n = __builtin_convertvector(exponent, F);
  const F square = f * f;
  F q = fma(splat(-0.0763328075f), f, splat(0.127620712f));
  q = fma(q, f, splat(-0.131608412f));
  q = fma(q, f, splat(0.142017365f));
  q = fma(q, f, splat(-0.166232929f));
  q = fma(q, f, splat(0.200012252f));
  q = fma(q, f, splat(-0.250008225f));
  q = fma(q, f, splat(0.333333313f));
  return {n, f, fma(square * f, q, square * splat(-0.5f))};
}

OPSMITH_INLINE Logarithm logarithm_of(F x) {
  const F least_normal = splat(1.17549435e-38f);
  Logarithm at = logarithm_of_normal(less(x, least_normal, x * splat(8388608.0f), x));
  at.n = at.n + less(x, least_normal, splat(-23.0f), zero());
  return at;
}

// The result of a positive finite x, and what the logarithm of the others is.
OPSMITH_INLINE F with_special(F x, F result) {
  const F infinity = splat(__builtin_inff());
  const F of_others = less(x, zero(), splat(__builtin_nanf("")), at_most(x, zero(), zero() - infinity, x));
  return less(zero(), x, less(x, infinity, result, x), of_others);
}

// result(logarithm_of(x)) where x is positive and finite. Most vectors are of normal numbers, all of which
// are.
template <class Result>
OPSMITH_INLINE F logarithm(F x, Result result) {
  return are_positive_normal(x) ? result(logarithm_of_normal(x)) : with_special(x, result(logarithm_of(x)));
}

// ln 2 in two parts, of which the first has few bits.
OPSMITH_INLINE F log_of(const Logarithm& at) {
  const F low = fma(at.n, splat(-2.12194440e-4f), at.rest);
  return fma(at.n, splat(0.693359375f), low + at.f);
}
OPSMITH_INLINE F log(F x) {
  return logarithm(x, log_of);
}

OPSMITH_INLINE F log2(F x) {
  return logarithm(x, [](const Logarithm& at) OPSMITH_ALWAYS_INLINE {
    // log2 e in two parts.
    const F low = fma(at.rest, splat(1.44269502f), at.f * splat(0.44269502f));
    return at.n + (at.f + fma(at.f + at.rest, splat(1.92596299e-8f), low));
  });
}

OPSMITH_INLINE F log10(F x) {
  return logarithm(x, [](const Logarithm& at) OPSMITH_ALWAYS_INLINE {
    // log10 e and log10 2 in two parts.
    const F low = fma(at.f, splat(-5.51940877e-3f), at.rest * splat(0.434294482f));
    const F sum = fma(at.f, splat(0.439813882f), fma(at.n, splat(2.48745663e-4f), low));
    return fma(at.n, splat(0.30078125f), sum);
  });
}

// log(u) of u = 1 + x, and what u lost of x, over u.
OPSMITH_INLINE F log1p(F x) {
  const F one = splat(1.0f), u = one + x;
  const F lost = less(one, x, one - (u - x), x - (u - one));
  const F result =
      logarithm(u, [=](const Logarithm& at) OPSMITH_ALWAYS_INLINE { return log_of(at) + lost / u; });
  // So small an x is its own result, a zero with its sign too.
  return less(x * x, splat(1e-16f), x, result);
}

}  // namespace opsmith::optimized::OPSMITH_ISA
