// Functions of one and two operands beside those of unary.cpp and binary.cpp, with the gradients of
// activations.
#include "pointwise_functions.h"

#include "exponential.h"
#include "logarithm.h"
#include "map.h"
#include "trigonometry.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

OPSMITH_INLINE F reciprocal(F x) {
  return splat(1.0f) / x;
}
OPSMITH_INLINE F inverse_root(F x) {
  return splat(1.0f) / square_root(x);
}
OPSMITH_INLINE F square(F x) {
  return x * x;
}
OPSMITH_INLINE F cube(F x) {
  return x * x * x;
}
OPSMITH_INLINE F inverse_square(F x) {
  return splat(1.0f) / (x * x);
}
// Halves to even: above 2^23 floats have no bit for fractions.
OPSMITH_INLINE F rounded(F x) {
  const F limit = splat(8388608.0f), size = absolute(x);
  const F result = less(size, limit, (size + limit) - limit, size);
  return (F)((U)result | ((U)x & 0x80000000u));
}

// ---- of signs, which are the highest bit of two bytes too: these need not be widened

OPSMITH_INLINE uint16_t absolute(uint16_t bits) {
  return bits & 0x7fffu;
}
OPSMITH_INLINE uint16_t negative(uint16_t bits) {
  return bits ^ 0x8000u;
}

template <class T, class Function>
OPSMITH_INLINE void map_bits(const T* x, T* y, int64_t n, const Function& function) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    y[i].bits = function(x[i].bits);
  }
}

// ---- with numbers

// NaN is not above 0, and stays.
OPSMITH_INLINE F leaky_relu(F x, const F* numbers) {
  return less(zero(), x, x, x * numbers[0]);
}
OPSMITH_INLINE F elu(F x, const F* numbers) {
  return less(x, zero(), expm1(x * numbers[2]) * numbers[0], x * numbers[1]);
}
OPSMITH_INLINE F softplus(F x, const F* numbers) {
  const F scaled_x = x * numbers[0];
  return less(numbers[1], scaled_x, x, log1p(exp(scaled_x)) / numbers[0]);
}
OPSMITH_INLINE F divided(F x, const F* numbers) {
  return x / numbers[0];
}
OPSMITH_INLINE F dividing(F x, const F* numbers) {
  return numbers[0] / x;
}

// ---- of two

OPSMITH_INLINE F quotient(F x, F y, F) {
  return x / y;
}
// NaN of either stays.
OPSMITH_INLINE F larger(F x, F y, F) {
  return at_most(y, y, less(x, y, y, x), y);
}
OPSMITH_INLINE F smaller(F x, F y, F) {
  return at_most(y, y, less(y, x, y, x), y);
}
OPSMITH_INLINE F sigmoid_gradient(F g, F y, F) {
  return g * (splat(1.0f) - y) * y;
}
OPSMITH_INLINE F tanh_gradient(F g, F y, F) {
  return g * (splat(1.0f) - y * y);
}
OPSMITH_INLINE F silu_gradient(F g, F x, F) {
  const F one = splat(1.0f), s = sigmoid(x);
  return g * s * fma(x, one - s, one);
}
// Φ(x) + x·φ(x)
OPSMITH_INLINE F gelu_erf_gradient(F g, F x, F) {
  const F density = exp(x * x * splat(-0.5f)) * splat(0.398942280f);
  return g * fma(x, density, fma(erf(x * splat(0.707106781f)), splat(0.5f), splat(0.5f)));
}
// With u = √(2/π)·(x + 0.044715·x³) and s = 1/(1 + e^-2u), which is (1 + tanh u)/2: s + x·s·(1 - s)·2u'. The
// bound keeps 1 - s = s·e^-2u finite.
OPSMITH_INLINE F gelu_tanh_gradient(F g, F x, F) {
  const F square = x * x, root = splat(-2.0f * 0.7978845608f);
  const F exponent = x * fma(square, splat(-2.0f * 0.7978845608f * 0.044715f), root);
  const F e = exp(min(splat(80.0f), exponent)), s = splat(1.0f) / (splat(1.0f) + e);
  const F slope = fma(square, splat(6.0f * 0.7978845608f * 0.044715f), zero() - root);
  return g * fma(x * slope, s * (e * s), s);
}
OPSMITH_INLINE F leaky_relu_gradient(F g, F x, F slope) {
  return less(zero(), x, g, g * slope);
}
// Numbers in vectors, kept in registers while a loop goes.
struct Numbers {
  F of[3];
};

}  // namespace

#define OPSMITH_DEFINE(name, T, suffix)                                        \
  void name##_##suffix(const T* x, T* y, int64_t n, bool streamed) {           \
    map(x, y, n, streamed, [](F v) OPSMITH_ALWAYS_INLINE { return name(v); }); \
  }
#define OPSMITH_EACH(name)                 \
  OPSMITH_DEFINE(name, float, float)       \
  OPSMITH_DEFINE(name, Bfloat16, bfloat16) \
  OPSMITH_DEFINE(name, Float16, float16)
OPSMITH_POINTWISE_UNARY(OPSMITH_EACH)
#undef OPSMITH_DEFINE

#define OPSMITH_DEFINE(name, T, suffix)                                                    \
  void name##_##suffix(const T* x, const float* numbers, T* y, int64_t n, bool streamed) { \
    const Numbers all{{splat(numbers[0]), splat(numbers[1]), splat(numbers[2])}};          \
    map(x, y, n, streamed, [all](F v) OPSMITH_ALWAYS_INLINE { return name(v, all.of); });  \
  }
OPSMITH_POINTWISE_WITH_NUMBERS(OPSMITH_EACH)
#undef OPSMITH_DEFINE

#define OPSMITH_DEFINE(name, T, suffix)                                                           \
  void name##_##suffix(const T* x, const T* y, float number, T* z, int64_t n, bool streamed) {    \
    const F by = splat(number);                                                                   \
    map(x, y, z, n, streamed, [by](Pair v) OPSMITH_ALWAYS_INLINE { return name(v.x, v.y, by); }); \
  }
OPSMITH_POINTWISE_BINARY(OPSMITH_EACH)
#undef OPSMITH_DEFINE
#undef OPSMITH_EACH

#define OPSMITH_DEFINE_OF_BITS(name, T, suffix)                                  \
  void name##_##suffix(const T* x, T* y, int64_t n, bool) {                      \
    map_bits(x, y, n, [](uint16_t v) OPSMITH_ALWAYS_INLINE { return name(v); }); \
  }
#define OPSMITH_EACH(name)                                                     \
  void name##_float(const float* x, float* y, int64_t n, bool streamed) {      \
    map(x, y, n, streamed, [](F v) OPSMITH_ALWAYS_INLINE { return name(v); }); \
  }                                                                            \
  OPSMITH_DEFINE_OF_BITS(name, Bfloat16, bfloat16)                             \
  OPSMITH_DEFINE_OF_BITS(name, Float16, float16)
OPSMITH_POINTWISE_SIGN(OPSMITH_EACH)
#undef OPSMITH_EACH
#undef OPSMITH_DEFINE_OF_BITS

void chosen_of_two_bytes(const uint8_t* which, const uint16_t* x, const uint16_t* y, uint16_t* z, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    // Both are read, or gcc would have a branch for each element.
    const auto one = x[i], other = y[i];
    z[i] = which[i] != 0 ? one : other;
  }
}
void chosen_of_four_bytes(const uint8_t* which, const uint32_t* x, const uint32_t* y, uint32_t* z,
                          int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    // Both are read, or gcc would have a branch for each element.
    const auto one = x[i], other = y[i];
    z[i] = which[i] != 0 ? one : other;
  }
}

}  // namespace opsmith::optimized::OPSMITH_ISA
