// How work is divided among threads, and when results go past the caches.
#pragma once

#include "../parallel.h"

#include <cstdint>

namespace opsmith::optimized {

// From here on a result is streamed to memory: it would not stay in the caches anyway, and they need not read
// it first.
constexpr int64_t kStreamedBytes = int64_t{4} << 20;

// How many pieces of the work may have memory of their own.
constexpr int64_t kMostParts = 64;

inline int64_t ceil_divided(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Of rows that take `cost` each, in elements of a simple sum, how many are worth a thread.
inline int64_t rows_per_thread(int64_t cost) {
  constexpr int64_t kWorth = 16384;
  return cost >= kWorth ? 1 : kWorth / (cost > 0 ? cost : 1);
}

}  // namespace opsmith::optimized
