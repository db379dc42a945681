// Which of the functions in simd/ this processor runs: those of the widest instruction set that it and the
// operating system support, or of the one that the environment variable OPSMITH_ISA names (baseline, avx2,
// avx512), for tests and bug reports. It is decided once, when it is first asked.
#pragma once

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

#include <cstdint>

namespace opsmith::quantized {

enum class InstructionSet : uint8_t { kBaseline, kAvx2, kAvx512 };

InstructionSet instruction_set();

template <class Function>
Function* best(Function* baseline, Function* avx2, Function* avx512) {
  const InstructionSet chosen = instruction_set();
  return chosen == InstructionSet::kAvx512 ? avx512 : chosen == InstructionSet::kAvx2 ? avx2 : baseline;
}

}  // namespace opsmith::quantized

// The function `name` of simd/declarations.h.
#if defined(OPSMITH_HAS_LEVELS)
#define OPSMITH_BEST(name)                                                                            \
  (::opsmith::quantized::best(::opsmith::quantized::baseline::name, ::opsmith::quantized::avx2::name, \
                              ::opsmith::quantized::avx512::name))
#else
#define OPSMITH_BEST(name) (&::opsmith::quantized::baseline::name)
#endif
