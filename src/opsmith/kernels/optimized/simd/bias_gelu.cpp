// gelu of a row to which a bias is added.
#include "elementary.h"
#include "map.h"
#include "../matmul_operands.h"
#include "float_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {

#define OPSMITH_BIAS_GELU(T, suffix)                                                                 \
  void bias_gelu_erf_##suffix(const T* x, const T* bias, T* y, int64_t n, bool streamed) {           \
    map(x, bias, y, n, streamed, [](Pair v) OPSMITH_ALWAYS_INLINE { return gelu_erf(v.x + v.y); });  \
  }                                                                                                  \
  void bias_gelu_tanh_##suffix(const T* x, const T* bias, T* y, int64_t n, bool streamed) {          \
    map(x, bias, y, n, streamed, [](Pair v) OPSMITH_ALWAYS_INLINE { return gelu_tanh(v.x + v.y); }); \
  }
OPSMITH_BIAS_GELU(float, float)
OPSMITH_BIAS_GELU(Bfloat16, bfloat16)
OPSMITH_BIAS_GELU(Float16, float16)
#undef OPSMITH_BIAS_GELU

}  // namespace opsmith::optimized::OPSMITH_ISA
