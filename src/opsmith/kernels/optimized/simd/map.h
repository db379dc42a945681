// Loops over contiguous elements: whole vectors, a last part of one, and stores past the caches.
#pragma once

#include "vector.h"

namespace opsmith::optimized::OPSMITH_ISA {

// Of how many elements y[0…] consists before an address at which a whole vector may be streamed.
template <class T>
OPSMITH_INLINE int64_t unaligned(const T* y, int64_t n) {
  constexpr int64_t kBytes = kLanes * sizeof(T);
  const int64_t past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(y) % kBytes);
  return past == 0 ? 0 : least(n, (kBytes - past) / static_cast<int64_t>(sizeof(T)));
}

// y[i] = compute(load(i)), where load_part(i, n) loads n lanes only.
template <class T, class Load, class LoadPart, class Compute>
OPSMITH_INLINE void produce(T* y, int64_t n, bool streamed, Load load, LoadPart load_part, Compute compute) {
  int64_t i = 0;
  if (streamed) {
    const int64_t head = unaligned(y, n);
    if (head != 0) {
      store_some(y, compute(load_part(0, head)), head);
    }
    for (i = head; i + kLanes <= n; i += kLanes) {
      stream(y + i, compute(load(i)));
    }
    end_streaming();
  } else {
    for (; i + kLanes <= n; i += kLanes) {
      store(y + i, compute(load(i)));
    }
  }
  if (i < n) {
    store_some(y + i, compute(load_part(i, n - i)), n - i);
  }
}

template <class T, class U, class Compute>
OPSMITH_INLINE void map(const T* x, U* y, int64_t n, bool streamed, Compute compute) {
  produce(
      y, n, streamed, [x](int64_t i) OPSMITH_ALWAYS_INLINE { return load(x + i); },
      [x](int64_t i, int64_t count) OPSMITH_ALWAYS_INLINE { return load_some(x + i, count); }, compute);
}

struct Pair {
  F x;
  F y;
};

template <class T, class Compute>
OPSMITH_INLINE void map(const T* x, const T* y, T* z, int64_t n, bool streamed, Compute compute) {
  produce(
      z, n, streamed, [x, y](int64_t i) OPSMITH_ALWAYS_INLINE { return Pair{load(x + i), load(y + i)}; },
      [x, y](int64_t i, int64_t count)
          OPSMITH_ALWAYS_INLINE { return Pair{load_some(x + i, count), load_some(y + i, count)}; },
      compute);
}

// The sum of term(load(x + i)) over n elements, in four sums that do not wait for one another.
template <class T, class Term>
OPSMITH_INLINE float total(const T* x, int64_t n, Term term) {
  F s0 = zero(), s1 = zero(), s2 = zero(), s3 = zero();
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    s0 = s0 + term(load(x + i));
    s1 = s1 + term(load(x + i + kLanes));
    s2 = s2 + term(load(x + i + 2 * kLanes));
    s3 = s3 + term(load(x + i + 3 * kLanes));
  }
  for (; i + kLanes <= n; i += kLanes) {
    s0 = s0 + term(load(x + i));
  }
  if (i < n) {
    s1 = s1 + lanes_or(term(load_some(x + i, n - i)), n - i, zero());
  }
  return sum((s0 + s1) + (s2 + s3));
}

}  // namespace opsmith::optimized::OPSMITH_ISA
