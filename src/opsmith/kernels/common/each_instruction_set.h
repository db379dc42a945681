// The header OPSMITH_FUNCTIONS once for each instruction set, with OPSMITH_ISA as its name: the declarations
// that OPSMITH_BEST chooses from. No guard: each library has a header of its own.

#include "instruction_set.h"

#if defined(OPSMITH_ISA_NEON)
#define OPSMITH_ISA neon
#include OPSMITH_FUNCTIONS
#undef OPSMITH_ISA
#else
#define OPSMITH_ISA baseline
#include OPSMITH_FUNCTIONS
#undef OPSMITH_ISA
#endif
#if defined(OPSMITH_HAS_LEVELS)
#define OPSMITH_ISA avx2
#include OPSMITH_FUNCTIONS
#undef OPSMITH_ISA
#endif
#if defined(OPSMITH_HAS_LEVELS) && defined(OPSMITH_ISA_AVX512)
#define OPSMITH_ISA avx512
#include OPSMITH_FUNCTIONS
#undef OPSMITH_ISA
#endif
