// The functions of simd/ for this processor: OPSMITH_BEST(name), with ../common/instruction_set.h.
#pragma once

#include "../common/instruction_set.h"

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

#define OPSMITH_BEST(name) OPSMITH_BEST_OF(quantized, name)
