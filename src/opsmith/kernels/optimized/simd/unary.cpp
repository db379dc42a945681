// Functions of one operand.
#include "elementary.h"
#include "map.h"
#include "../matmul_operands.h"
#include "float_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {

#define OPSMITH_UNARY(name)                                                        \
  void name##_float(const float* x, float* y, int64_t n, bool streamed) {          \
    map(x, y, n, streamed, [](F v) OPSMITH_ALWAYS_INLINE { return name(v); });     \
  }                                                                                \
  void name##_bfloat16(const Bfloat16* x, Bfloat16* y, int64_t n, bool streamed) { \
    map(x, y, n, streamed, [](F v) OPSMITH_ALWAYS_INLINE { return name(v); });     \
  }                                                                                \
  void name##_float16(const Float16* x, Float16* y, int64_t n, bool streamed) {    \
    map(x, y, n, streamed, [](F v) OPSMITH_ALWAYS_INLINE { return name(v); });     \
  }
OPSMITH_UNARY_FUNCTIONS(OPSMITH_UNARY)

}  // namespace opsmith::optimized::OPSMITH_ISA
