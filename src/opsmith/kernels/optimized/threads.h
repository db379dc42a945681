// Dividing work among the runtime's threads, and when results go past the caches.
#pragma once

#include <cstdint>

#include <executorch/runtime/kernel/thread_parallel_interface.h>

namespace opsmith::optimized {

// From here on a result is streamed to memory: it would not stay in the caches anyway, and they need not read
// it first.
constexpr int64_t kStreamedBytes = int64_t{4} << 20;

// body(begin, end) over 0…n, at least `grain` of them at a time; on this thread if there is no more than
// that.
template <class Body>
void parallel(int64_t n, int64_t grain, const Body& body) {
  if (n <= grain) {
    if (n > 0) {
      body(int64_t{0}, n);
    }
    return;
  }
  ::executorch::extension::parallel_for(0, n, grain, body);
}

// Of rows that take `cost` each, in elements of a simple sum, how many are worth a thread.
inline int64_t rows_per_thread(int64_t cost) {
  constexpr int64_t kWorth = 16384;
  return cost >= kWorth ? 1 : kWorth / (cost > 0 ? cost : 1);
}

}  // namespace opsmith::optimized
