// A float16 in memory. As in bfloat16.h it has no function.
#pragma once

#include <cstdint>

namespace opsmith::optimized {

struct Float16 {
  uint16_t bits;
};

}  // namespace opsmith::optimized
