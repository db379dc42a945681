// Which of the functions in simd/ this processor runs: those of the widest instruction set that it and the
// operating system support, or of the one that the environment variable OPSMITH_ISA names (baseline, avx2,
// avx512), for tests and bug reports. It is decided once, when it is first asked.
#pragma once

#include <cstdint>

#include "bfloat16.h"
#include "gemm_operands.h"

#if defined(__x86_64__) && defined(OPSMITH_ISA_AVX2) && defined(OPSMITH_ISA_AVX512)
#define OPSMITH_HAS_LEVELS 1
#endif

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

enum class InstructionSet : uint8_t { kBaseline, kAvx2, kAvx512 };

InstructionSet instruction_set();

// Whether the processor has VDPBF16PS, which AVX-512 need not bring.
bool multiplies_bfloat16();

template <class Function>
Function* best(Function* baseline, Function* avx2, Function* avx512) {
  const InstructionSet chosen = instruction_set();
  return chosen == InstructionSet::kAvx512 ? avx512 : chosen == InstructionSet::kAvx2 ? avx2 : baseline;
}

}  // namespace opsmith::optimized

// The function `name` of simd/declarations.h. A kernel that no program selects refers to none, so the linker
// drops them.
#if defined(OPSMITH_HAS_LEVELS)
#define OPSMITH_BEST(name)                                                                            \
  (::opsmith::optimized::best(::opsmith::optimized::baseline::name, ::opsmith::optimized::avx2::name, \
                              ::opsmith::optimized::avx512::name))
#else
#define OPSMITH_BEST(name) (&::opsmith::optimized::baseline::name)
#endif
