// Dividing work among the runtime's threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <executorch/runtime/core/function_ref.h>
#include <executorch/runtime/kernel/thread_parallel_interface.h>

namespace opsmith {

using executorch::runtime::FunctionRef;

// Elements below which a second thread does not pay.
inline constexpr int64_t kGrain = 32768;

// How many parts the work is divided into at most, each a bit of Note [Pieces]'s word.
inline constexpr int64_t kMostParts = 64;

// Rounded up; `b` is positive, and may be any such number.
inline int64_t ceil_divided(int64_t a, int64_t b) {
  return a / b + (a % b > 0 ? 1 : 0);
}

// The grain size of rows that cost `cost` elements each, where that of elements is `grain`.
inline int64_t grain_size(int64_t cost, int64_t grain = kGrain) {
  return std::max<int64_t>(1, grain / std::max<int64_t>(1, cost));
}

// body(slot, begin, end), where calls that run at the same time have different slots.
using SlotBody = FunctionRef<void(int64_t slot, int64_t begin, int64_t end)>;

// Note [Pieces]
// A thread begins with pieces of its own, which are neighbours, and goes on with those that no other has
// begun: nobody waits for one that wakes late or has the longer ones. All of them have the thread's slot, so
// that memory by slot is as much as the threads touch.
[[gnu::noinline]] inline void in_pieces(int64_t n, int64_t grain, SlotBody body) {
  const int64_t at_once = ceil_divided(n, std::min(kMostParts, ceil_divided(n, grain)));
  const int64_t pieces = ceil_divided(n, at_once);
  std::atomic<uint64_t> begun{0};
  std::atomic<int64_t> slots{0};
  const auto run = [&](int64_t slot, int64_t piece) {
    const uint64_t bit = uint64_t{1} << piece;
    if ((begun.load(std::memory_order_relaxed) & bit) == 0 &&
        (begun.fetch_or(bit, std::memory_order_relaxed) & bit) == 0) {
      body(slot, piece * at_once, std::min(n, (piece + 1) * at_once));
    }
  };
  ::executorch::extension::parallel_for(0, pieces, 1, [&](int64_t begin, int64_t end) {
    const int64_t slot = slots.fetch_add(1, std::memory_order_relaxed);
    if (end - begin == pieces) {
      body(slot, 0, n);
      return;
    }
    for (int64_t piece = begin; piece < end; ++piece) {
      run(slot, piece);
    }
    for (int64_t piece = pieces; piece-- > 0;) {
      run(slot, piece);
    }
  });
}

// body(slot, begin, end) over parts of 0…n, about `grain` of them at a time at least; on this thread if there
// is no more than that. There are at most as many slots as parts, and kMostParts.
inline void parallel_in_slots(int64_t n, int64_t grain, SlotBody body) {
  if (n > std::max<int64_t>(1, grain)) {
    in_pieces(n, std::max<int64_t>(1, grain), body);
  } else if (n > 0) {
    body(0, 0, n);
  }
}

inline void parallel(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  parallel_in_slots(n, grain, [&](int64_t, int64_t begin, int64_t end) { body(begin, end); });
}

}  // namespace opsmith
