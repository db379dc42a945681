// Sums and other folds in lanes side by side, which the compiler turns into vectors: floating point may not
// be reordered without being told so.
#pragma once

#include <algorithm>
#include <cstdint>

namespace opsmith::portable {

// combine(...) of `start` and f(0) to f(n - 1).
template <class C, class Combine, class F>
C fold(int64_t n, C start, const Combine& combine, const F& f) {
  constexpr int64_t kLanes = 16;
  C lanes[kLanes];
  std::fill_n(lanes, kLanes, start);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      lanes[l] = combine(lanes[l], f(i + l));
    }
  }
  for (; i < n; ++i) {
    lanes[0] = combine(lanes[0], f(i));
  }
  for (int64_t step = kLanes / 2; step > 0; step /= 2) {
    for (int64_t l = 0; l < step; ++l) {
      lanes[l] = combine(lanes[l], lanes[l + step]);
    }
  }
  return lanes[0];
}

// f(0) + ... + f(n - 1)
template <class C, class F>
C sum_of(int64_t n, const F& f) {
  return fold(n, C(0), [](C a, C b) { return a + b; }, f);
}

}  // namespace opsmith::portable
