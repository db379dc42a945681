// Dividing work among the runtime's threads.
#pragma once

#include <cstdint>

#include <executorch/runtime/core/function_ref.h>
#include <executorch/runtime/kernel/thread_parallel_interface.h>

namespace opsmith {

using executorch::runtime::FunctionRef;

// Elements below which a second thread does not pay.
inline constexpr int64_t kGrain = 32768;

// How many pieces of the work may have memory of their own.
inline constexpr int64_t kMostParts = 64;

inline int64_t ceil_divided(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// body(begin, end) over parts of 0…n, at least `grain` of them at a time; on this thread if there is no more
// than that.
inline void parallel(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= grain) {
    if (n > 0) {
      body(0, n);
    }
    return;
  }
  ::executorch::extension::parallel_for(0, n, grain, body);
}

}  // namespace opsmith
