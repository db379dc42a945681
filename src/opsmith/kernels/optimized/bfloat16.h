// A bfloat16 in memory. It has no function, so that no two instruction sets can share one.
#pragma once

#include <cstdint>

namespace opsmith::optimized {

struct Bfloat16 {
  uint16_t bits;
};

}  // namespace opsmith::optimized
