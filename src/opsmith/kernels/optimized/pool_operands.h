// The operands of simd/pool.cpp. Plain data, since every instruction set's code has it.
#pragma once

#include <cstdint>

namespace opsmith::optimized {

// The largest of some elements, for each of `count` results one after the other: the next result's lie `step`
// elements further on, and their places in the plane are `place_step` higher.
template <class T>
struct LargestOf {
  const T* const* elements;  // the first result's
  const int64_t* places;     // in the plane, the first result's
  int64_t number;
  int64_t step;
  int64_t place_step;
  int64_t count;
  T* result;
  int64_t* result_places;
};

}  // namespace opsmith::optimized
