// Elementary functions for pointwise loops. The float ones are free of branches and library calls, so that
// gcc vectorises the loops around them; they are within 2 units in the last place of libm. The double ones
// are libm's. Coefficients: S. L. Moshier, Cephes Mathematical Library (expf, tanhf).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace opsmith {

namespace detail {

// Comparisons of magnitudes and choices by them, in integers: unless it is told that nobody looks at
// floating-point exceptions, gcc makes branches of choices between floats, and then does not vectorise the
// loop.
inline constexpr int32_t kMagnitude = 0x7fffffff;
inline constexpr int32_t kInfinity = 0x7f800000;

inline int32_t bits(float x) {
  return std::bit_cast<int32_t>(x);
}

inline float choose(bool condition, float a, float b) {
  const int32_t mask = -static_cast<int32_t>(condition);
  return std::bit_cast<float>((bits(a) & mask) | (bits(b) & ~mask));
}

}  // namespace detail

inline double exp(double x) {
  return std::exp(x);
}

inline float exp(float x) {
  constexpr float kLog2E = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kToInteger =
      12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, kept in the low bits
  // Beyond the limits the result is infinite or zero all the same; NaN stays NaN.
  const int32_t magnitude = detail::bits(x) & detail::kMagnitude;
  const bool beyond = (magnitude > detail::bits(104.0f)) & (magnitude <= detail::kInfinity);
  const float c = detail::choose(beyond, std::copysign(104.0f, x), x);
  const float shifted = c * kLog2E + kToInteger;
  const float n = shifted - kToInteger;
  const int32_t k = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kToInteger);
  const float r = (c - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // 2^k in two factors, because k goes beyond the exponents of normal numbers on both sides.
  const uint32_t half = static_cast<uint32_t>((k >> 1) + 127) << 23;
  const uint32_t rest = static_cast<uint32_t>(k - (k >> 1) + 127) << 23;
  return p * std::bit_cast<float>(half) * std::bit_cast<float>(rest);
}

inline double tanh(double x) {
  return std::tanh(x);
}

inline float tanh(float x) {
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near_zero = p * z * x + x;
  const float magnitude = std::fabs(x);
  const float elsewhere = std::copysign(1.0f - 2.0f / (opsmith::exp(2.0f * magnitude) + 1.0f), x);
  return detail::choose(detail::bits(magnitude) < detail::bits(0.625f), near_zero, elsewhere);
}

template <class C>
inline C sigmoid(C x) {
  return C(1) / (C(1) + opsmith::exp(-x));
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

}  // namespace opsmith
