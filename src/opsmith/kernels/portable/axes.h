// A walk through two strided views of the same sizes, in the order in which the second lies in memory: what
// copies and conversions of whole tensors have in common.
#pragma once

#include <cstdint>

#include "geometry.h"

namespace opsmith::portable {

using executorch::runtime::FunctionRef;

// One dimension of both views; strides in elements.
struct PairedAxis {
  int64_t size;
  int64_t from;
  int64_t to;
};

// The dimensions with more than one element, outermost in the destination first, neighbours merged where both
// views are dense across them.
struct PairedAxes {
  int64_t count = 0;
  PairedAxis axis[kMaxRank];

  PairedAxes(const Dims& sizes, const Dims& from, const Dims& to);

  // Takes the innermost dimension away: a single element where there is none.
  PairedAxis pop() { return count == 0 ? PairedAxis{1, 1, 1} : axis[--count]; }
};

// f(from, to, at) with the offsets, in elements, and the coordinates of each place of the walk; in threads of
// at least `grain` places.
void walk(const PairedAxes& axes, int64_t grain, FunctionRef<void(int64_t, int64_t, const int64_t*)> f);

// f(at) with the coordinates of each place of `sizes`, in the order of the dimensions; in threads of at least
// `grain` places.
void for_each_place(const Dims& sizes, int64_t grain, FunctionRef<void(const Dims&)> f);

// Where the place lies in a view, in elements.
inline int64_t offset_of(const Dims& at, const Dims& strides) {
  int64_t offset = 0;
  for (int64_t i = 0; i < at.rank; ++i) {
    offset += at[i] * strides[i];
  }
  return offset;
}

}  // namespace opsmith::portable
