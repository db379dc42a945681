// When threads are worth it, and when results go past the caches.
#pragma once

#include <cstdint>

#include "../common/parallel.h"

namespace opsmith::optimized {

// From here on a result is streamed to memory: it would not stay in the caches anyway, and they need not read
// it first.
constexpr int64_t kStreamedBytes = int64_t{4} << 20;

// Of rows that take `cost` each, in elements of a simple sum, how many are worth a thread.
inline int64_t rows_per_thread(int64_t cost) {
  constexpr int64_t kWorth = 16384;
  return cost >= kWorth ? 1 : kWorth / (cost > 0 ? cost : 1);
}

}  // namespace opsmith::optimized
