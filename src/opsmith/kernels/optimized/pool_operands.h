// The operands of simd/pool.cpp. Plain data, since every instruction set's code has it.
#pragma once

#include <cstdint>

namespace opsmith::optimized {

// The largest of some elements, for each of `count` results one after the other.
template <class T>
struct LargestOf {
  const T* const* elements;  // the first result's
  const int64_t* places;     // in the plane, the first result's
  int64_t number;
  // How much further on the elements of each result lie, and how much higher their places are; or null, where
  // the next result's lie `step` elements further on, and their places are `place_step` higher.
  const int64_t* offsets;
  int64_t step;
  int64_t place_step;
  int64_t count;
  T* result;
  int64_t* result_places;
};

}  // namespace opsmith::optimized
