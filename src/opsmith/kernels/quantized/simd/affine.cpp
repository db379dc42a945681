// Quantization and its inverse, over rows. Plain loops: the compiler makes vectors of them.
#include "quantization_functions.h"
#include "rounding.h"

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

// Not inlined: a product and a sum in one loop would be contracted to one rounding.
template <class C>
__attribute__((noinline)) void multiply(const float* x, C* y, int64_t n, C factor) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = static_cast<C>(x[i]) * factor;
  }
}

}  // namespace

#define OPSMITH_AFFINE(C, suffix)                                                                            \
  void quantize_##suffix(const float* x, int32_t* y, int64_t n, C inverse, C zero, C low, C high) {          \
    for (int64_t i = 0; i < n; ++i) {                                                                        \
      y[i] = clamped(round_even(static_cast<C>(x[i]) * inverse) + zero, low, high);                          \
    }                                                                                                        \
  }                                                                                                          \
  void quantize_each_##suffix(const float* x, int32_t* y, int64_t n, const C* inverse, const C* zero, C low, \
                              C high) {                                                                      \
    for (int64_t i = 0; i < n; ++i) {                                                                        \
      y[i] = clamped(round_even(static_cast<C>(x[i]) * inverse[i]) + zero[i], low, high);                    \
    }                                                                                                        \
  }                                                                                                          \
  void quantize_shifted_##suffix(const float* x, int32_t* y, int64_t n, C inverse, C zero, C low, C high) {  \
    constexpr int64_t kBlock = 256;                                                                          \
    C scaled[kBlock];                                                                                        \
    for (int64_t begin = 0; begin < n; begin += kBlock) {                                                    \
      const int64_t count = n - begin < kBlock ? n - begin : kBlock;                                         \
      multiply(x + begin, scaled, count, inverse);                                                           \
      for (int64_t i = 0; i < count; ++i) {                                                                  \
        y[begin + i] = clamped(round_even(scaled[i] + zero), low, high);                                     \
      }                                                                                                      \
    }                                                                                                        \
  }                                                                                                          \
  void dequantize_##suffix(const int32_t* x, C* y, int64_t n, C zero, C scale) {                             \
    for (int64_t i = 0; i < n; ++i) {                                                                        \
      y[i] = (static_cast<C>(x[i]) - zero) * scale;                                                          \
    }                                                                                                        \
  }                                                                                                          \
  void dequantize_each_##suffix(const int32_t* x, C* y, int64_t n, const C* zero, const C* scale) {          \
    for (int64_t i = 0; i < n; ++i) {                                                                        \
      y[i] = (static_cast<C>(x[i]) - zero[i]) * scale[i];                                                    \
    }                                                                                                        \
  }
OPSMITH_AFFINE(float, float)
OPSMITH_AFFINE(double, double)
#undef OPSMITH_AFFINE

void quantize_to_bytes(const float* x, uint8_t* y, int64_t n, float inverse, float zero, float low,
                       float high) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = static_cast<uint8_t>(clamped(round_even(x[i] * inverse) + zero, low, high));
  }
}

}  // namespace opsmith::quantized::OPSMITH_ISA
