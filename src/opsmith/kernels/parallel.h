// Dividing work among the runtime's threads.
#pragma once

#include <cstdint>

#include <executorch/runtime/kernel/thread_parallel_interface.h>

namespace opsmith {

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

}  // namespace opsmith
