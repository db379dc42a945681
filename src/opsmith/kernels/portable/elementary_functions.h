// Elementary functions for pointwise loops. The float ones are free of branches and library calls, so that
// the loops around them vectorise; they are within 2 units in the last place of libm. The double ones are
// libm's. Coefficients: S. L. Moshier, Cephes Mathematical Library (expf, tanhf).
#pragma once

#include "../common/dtypes.h"

#include <cmath>

namespace opsmith::portable {

// The value at x of a polynomial with these coefficients, from that of the highest power on.
template <class... C>
inline float polynomial(float x, float value, C... coefficients) {
  ((value = value * x + coefficients), ...);
  return value;
}

inline double exp(double x) {
  return std::exp(x);
}

inline float exp(float x) {
  constexpr float kLog2E = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kToInteger = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, in the low bits
  // Beyond the limits the result is infinite or zero all the same; NaN is no less and no greater, and stays.
  const float c = x > 104.0f ? 104.0f : x < -104.0f ? -104.0f : x;
  const float shifted = c * kLog2E + kToInteger;
  const float n = shifted - kToInteger;
  const int32_t k = same_bits<int32_t>(shifted) - same_bits<int32_t>(kToInteger);
  const float r = (c - n * kLn2High) - n * kLn2Low;
  float p = polynomial(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                       1.6666665459e-1f, 5.0000001201e-1f);
  p = p * r * r + r + 1.0f;
  // 2^k in two factors, because k goes beyond the exponents of normal numbers on both sides.
  const uint32_t half = static_cast<uint32_t>((k >> 1) + 127) << 23;
  const uint32_t rest = static_cast<uint32_t>(k - (k >> 1) + 127) << 23;
  return p * same_bits<float>(half) * same_bits<float>(rest);
}

inline double tanh(double x) {
  return std::tanh(x);
}

inline float tanh(float x) {
  const float z = x * x;
  const float p = polynomial(z, -5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f,
                             -3.33332819422e-1f);
  const float near_zero = p * z * x + x;
  const float magnitude = std::fabs(x);
  const float elsewhere = 1.0f - 2.0f / (portable::exp(2.0f * magnitude) + 1.0f);
  return std::copysign(magnitude < 0.625f ? near_zero : elsewhere, x);
}

inline double erf(double x) {
  return std::erf(x);
}

inline float erf(float x) {
  const float z = x * x;
  const float p = polynomial(z, 7.853861353153693e-5f, -8.010193625184903e-4f, 5.188327685732524e-3f,
                             -2.685381193529856e-2f, 1.128358514861418e-1f, -3.761262582423300e-1f,
                             1.128379165726710e+0f);
  // Beyond 1: the complement, exp(-x^2) / x times a polynomial in 1 / x^2. Beyond 4 it is 1 all the same.
  const float magnitude = std::fabs(x);
  const float c = magnitude > 4.0f ? 4.0f : magnitude;
  const float inverse = 1.0f / c;
  const float y = inverse * inverse;
  const float q = polynomial(y, 2.326819970068386e-2f, -1.387039388740657e-1f, 3.687424674597105e-1f,
                             -5.824733027278666e-1f, 6.210004621745983e-1f, -4.944515323274145e-1f,
                             3.404879937665872e-1f, -2.741127028184656e-1f, 5.638259427386472e-1f);
  const float elsewhere = std::copysign(1.0f - portable::exp(-c * c) * inverse * q, x);
  return magnitude < 1.0f ? p * x : elsewhere;
}

template <class C>
inline C sigmoid(C x) {
  return C(1) / (C(1) + portable::exp(-x));
}

// The larger and the smaller of two, NaN when either is NaN.
template <class C>
inline C maximum(C a, C b) {
  return ((a < b) | (b != b)) ? b : a;
}
template <class C>
inline C minimum(C a, C b) {
  return ((b < a) | (b != b)) ? b : a;
}

}  // namespace opsmith::portable
