// The functions of simd/ for this processor: OPSMITH_BEST(name), with ../common/instruction_set.h.
#pragma once

#include "../common/instruction_set.h"

#include <cstdint>

#include "bfloat16.h"
#include "gemm_operands.h"

#define OPSMITH_ISA baseline
#include "simd/declarations.h"
#undef OPSMITH_ISA
#if defined(OPSMITH_HAS_LEVELS)
#define OPSMITH_ISA avx2
#include "simd/declarations.h"
#undef OPSMITH_ISA
#define OPSMITH_ISA avx512
#include "simd/declarations.h"
#undef OPSMITH_ISA
#endif

namespace opsmith::optimized {

// Whether the processor has VDPBF16PS, which AVX-512 need not bring.
inline bool multiplies_bfloat16() {
#if defined(OPSMITH_HAS_LEVELS)
  static const bool has =
      instruction_set() == InstructionSet::kAvx512 && __builtin_cpu_supports("avx512bf16");
  return has;
#else
  return false;
#endif
}

}  // namespace opsmith::optimized

#define OPSMITH_BEST(name) OPSMITH_BEST_OF(optimized, name)
