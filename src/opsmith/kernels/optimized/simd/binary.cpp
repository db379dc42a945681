// Sums, products and thresholds of two operands, of an operand and a number, and conversions of dtype.
#include "map.h"
#include "../matmul_operands.h"
#include "float_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {

#define OPSMITH_BINARY(T, suffix)                                                                          \
  void add_##suffix(const T* x, const T* y, float alpha, T* z, int64_t n, bool streamed) {                 \
    const F scale = splat(alpha);                                                                          \
    map(x, y, z, n, streamed, [scale](Pair v) OPSMITH_ALWAYS_INLINE { return fma(v.y, scale, v.x); });     \
  }                                                                                                        \
  void mul_##suffix(const T* x, const T* y, float, T* z, int64_t n, bool streamed) {                       \
    map(x, y, z, n, streamed, [](Pair v) OPSMITH_ALWAYS_INLINE { return v.x * v.y; });                     \
  }                                                                                                        \
  void above_##suffix(const T* x, const T* y, float threshold, T* z, int64_t n, bool streamed) {           \
    const F bound = splat(threshold);                                                                      \
    map(x, y, z, n, streamed,                                                                              \
        [bound](Pair v) OPSMITH_ALWAYS_INLINE { return at_most(v.y, bound, zero(), v.x); });               \
  }                                                                                                        \
  void affine_##suffix(const T* x, float scale, float shift, T* z, int64_t n, bool streamed) {             \
    const F a = splat(scale), b = splat(shift);                                                            \
    map(x, z, n, streamed, [a, b](F v) OPSMITH_ALWAYS_INLINE { return fma(v, a, b); });                    \
  }                                                                                                        \
  void bound_##suffix(const T* x, float low, float high, T* z, int64_t n, bool streamed) {                 \
    const F least = splat(low), most = splat(high);                                                        \
    map(x, z, n, streamed, [least, most](F v) OPSMITH_ALWAYS_INLINE { return max(least, min(most, v)); }); \
  }
OPSMITH_BINARY(float, float)
OPSMITH_BINARY(Bfloat16, bfloat16)
OPSMITH_BINARY(Float16, float16)

void narrow(const float* x, Bfloat16* y, int64_t n) {
  map(x, y, n, false, [](F v) OPSMITH_ALWAYS_INLINE { return v; });
}
void narrow_float16(const float* x, Float16* y, int64_t n) {
  map(x, y, n, false, [](F v) OPSMITH_ALWAYS_INLINE { return v; });
}
void widen_float16(const Float16* x, float* y, int64_t n) {
  map(x, y, n, false, [](F v) OPSMITH_ALWAYS_INLINE { return v; });
}

}  // namespace opsmith::optimized::OPSMITH_ISA
