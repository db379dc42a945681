// Largest elements of windows, for a vector of results at a time.
#include "vector.h"
#include "float_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

// Every step-th element, of which there are `lanes`.
template <class T>
OPSMITH_INLINE F load_every(const T* p, int64_t step, int64_t lanes) {
  if (step == 1) {
    return lanes >= kLanes ? load(p) : load_some(p, lanes);
  }
  float found[kLanes] = {};
  for (int64_t i = 0; i < least(lanes, kLanes); ++i) {
    found[i] = widened_one(p[i * step]);
  }
  return load(found);
}

template <class T>
OPSMITH_INLINE void largest(const LargestOf<T>& of) {
  for (int64_t at = 0; at < of.count; at += kLanes) {
    const int64_t lanes = of.count - at;
    F best = splat(-__builtin_inff());
    F which = zero();
    for (int64_t k = 0; k < of.number; ++k) {
      const F value = load_every(of.elements[k] + at * of.step, of.step, lanes);
      const F own = splat(static_cast<float>(k));
      // NaN is the largest, and the last one stays.
      which = less(best, value, own, at_most(value, value, which, own));
      best = less(best, value, value, at_most(value, value, best, value));
    }
    alignas(64) float numbers[kLanes];
    store(numbers, which);
    if (lanes >= kLanes) {
      store_exact(of.result + at, best);
    } else {
      store_some(of.result + at, best, lanes);
    }
    for (int64_t i = 0; i < least(lanes, kLanes); ++i) {
      of.result_places[at + i] = of.places[static_cast<int>(numbers[i])] + (at + i) * of.place_step;
    }
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
