// The functions of simd/pointwise.cpp, as those of float_functions.h. No guard either.
//
// `streamed`: the result is stored past the caches. A result may lie where an operand does.

#include <cstdint>

#include "../bfloat16.h"
#include "../float16.h"

namespace opsmith::optimized::OPSMITH_ISA {

// y[i] = f(x[i])
#define OPSMITH_POINTWISE_UNARY(each)                                                                       \
  each(reciprocal) each(square_root) each(inverse_root) each(square) each(cube) each(inverse_square)        \
      each(erf) each(log) each(log1p) each(log2) each(log10) each(exp2) each(expm1) each(sine) each(cosine) \
          each(rounded)
// The same, of signs alone.
#define OPSMITH_POINTWISE_SIGN(each) each(absolute) each(negative)
// y[i] = f(x[i]), with numbers that say how.
#define OPSMITH_POINTWISE_WITH_NUMBERS(each) \
  each(leaky_relu) each(elu) each(softplus) each(divided) each(dividing)
// z[i] = f(x[i], y[i]), and with a number; gradients are of the result's x and the operand, or result, y.
#define OPSMITH_POINTWISE_BINARY(each)                                                                     \
  each(quotient) each(larger) each(smaller) each(sigmoid_gradient) each(tanh_gradient) each(silu_gradient) \
      each(gelu_erf_gradient) each(gelu_tanh_gradient) each(leaky_relu_gradient)

#define OPSMITH_DECLARE(name, T, suffix) void name##_##suffix(const T* x, T* y, int64_t n, bool streamed);
#define OPSMITH_EACH(name)                  \
  OPSMITH_DECLARE(name, float, float)       \
  OPSMITH_DECLARE(name, Bfloat16, bfloat16) \
  OPSMITH_DECLARE(name, Float16, float16)
OPSMITH_POINTWISE_UNARY(OPSMITH_EACH)
OPSMITH_POINTWISE_SIGN(OPSMITH_EACH)
#undef OPSMITH_DECLARE

#define OPSMITH_DECLARE(name, T, suffix) \
  void name##_##suffix(const T* x, const float* numbers, T* y, int64_t n, bool streamed);
OPSMITH_POINTWISE_WITH_NUMBERS(OPSMITH_EACH)
#undef OPSMITH_DECLARE

#define OPSMITH_DECLARE(name, T, suffix) \
  void name##_##suffix(const T* x, const T* y, float number, T* z, int64_t n, bool streamed);
OPSMITH_POINTWISE_BINARY(OPSMITH_EACH)
#undef OPSMITH_DECLARE
#undef OPSMITH_EACH

// z[i] = which[i] != 0 ? x[i] : y[i], of elements of any dtype of this width.
void chosen_of_two_bytes(const uint8_t* which, const uint16_t* x, const uint16_t* y, uint16_t* z, int64_t n);
void chosen_of_four_bytes(const uint8_t* which, const uint32_t* x, const uint32_t* y, uint32_t* z, int64_t n);

}  // namespace opsmith::optimized::OPSMITH_ISA
