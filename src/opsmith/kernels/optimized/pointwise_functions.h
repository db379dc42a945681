// The functions of simd/pointwise_functions.h, of each instruction set: OPSMITH_BEST chooses from them.
#pragma once

#define OPSMITH_FUNCTIONS "../optimized/simd/pointwise_functions.h"
#include "../common/each_instruction_set.h"
#undef OPSMITH_FUNCTIONS
