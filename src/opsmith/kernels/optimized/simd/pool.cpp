// Largest elements of windows, for a vector of results at a time.
#include "vector.h"
#include "float_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

// `n` elements, from `at(0)` on.
template <class T, class At>
OPSMITH_INLINE F load_each(const T* p, int64_t n, const At& at) {
  float found[kLanes] = {};
#pragma GCC unroll 16
  for (int64_t i = 0; i < n; ++i) {
    found[i] = widened_one(p[at(i)]);
  }
  return load(found);
}
// `n` elements, `step` from one to the next; `is_last` unless others follow.
template <class T>
OPSMITH_INLINE F load_every(const T* p, int64_t step, int64_t n, bool is_last) {
  if (step == 1) {
    return n == kLanes ? load(p) : load_some(p, n);
  }
  if (step == 2 && n > kLanes / 2) {
    // The element behind the last one may be nobody's.
    return evens(load(p), is_last ? load_some(p + kLanes, 2 * n - 1 - kLanes) : load(p + kLanes));
  }
  return load_each(p, n, [&](int64_t i) { return i * step; });
}

// The results from `at` on, `n` of them.
template <class T>
OPSMITH_INLINE void put(const LargestOf<T>& of, int64_t at, int64_t n) {
  const int64_t* const offsets = of.offsets + at;
  F best = splat(-__builtin_inff());
  F which = zero();
  for (int64_t k = 0; k < of.number; ++k) {
    const T* const elements = of.elements[k];
    const F value = of.offsets != nullptr
                        ? load_each(elements, n, [&](int64_t i) { return offsets[i]; })
                        : load_every(elements + at * of.step, of.step, n, at + n == of.count);
    const F own = splat(static_cast<float>(k));
    // NaN is the largest, and the last one stays.
    which = less(best, value, own, at_most(value, value, which, own));
    best = less(best, value, value, at_most(value, value, best, value));
  }
  alignas(64) float numbers[kLanes];
  store(numbers, which);
  if (n == kLanes) {
    store_exact(of.result + at, best);
  } else {
    store_some(of.result + at, best, n);
  }
  for (int64_t i = 0; i < n; ++i) {
    const int64_t offset = of.offsets != nullptr ? offsets[i] : (at + i) * of.place_step;
    of.result_places[at + i] = of.places[static_cast<int>(numbers[i])] + offset;
  }
}

template <class T>
OPSMITH_INLINE void largest(const LargestOf<T>& of) {
  int64_t at = 0;
  for (; at + kLanes <= of.count; at += kLanes) {
    put(of, at, kLanes);
  }
  if (at < of.count) {
    put(of, at, of.count - at);
  }
}

}  // namespace

void largest_float(const LargestOf<float>& of) {
  largest(of);
}
void largest_bfloat16(const LargestOf<Bfloat16>& of) {
  largest(of);
}
void largest_float16(const LargestOf<Float16>& of) {
  largest(of);
}

}  // namespace opsmith::optimized::OPSMITH_ISA
