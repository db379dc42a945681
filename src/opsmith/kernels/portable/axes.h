// A walk through two strided views of the same sizes, in the order in which the second lies in memory: what
// copies and conversions of whole tensors have in common.
#pragma once

#include <algorithm>
#include <cstdint>

#include "geometry.h"

namespace opsmith::portable {

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

// f(from, to, at) with the offsets, in elements, and the coordinates of each place of the walk; in threads of at least `grain` places.
template <class F>
void walk(const PairedAxes& axes, int64_t grain, const F& f) {
  int64_t steps = 1;
  for (int64_t i = 0; i < axes.count; ++i) {
    steps *= axes.axis[i].size;
  }
  parallel(steps, std::max<int64_t>(1, grain), [&](int64_t begin, int64_t end) {
    int64_t at[kMaxRank] = {};
    int64_t rest = begin;
    for (int64_t i = axes.count - 1; i >= 0; --i) {
      at[i] = rest % axes.axis[i].size;
      rest /= axes.axis[i].size;
    }
    for (int64_t step = begin; step < end; ++step) {
      int64_t from = 0;
      int64_t to = 0;
      for (int64_t i = 0; i < axes.count; ++i) {
        from += at[i] * axes.axis[i].from;
        to += at[i] * axes.axis[i].to;
      }
      f(from, to, at);
      for (int64_t i = axes.count - 1; i >= 0 && ++at[i] == axes.axis[i].size; --i) {
        at[i] = 0;
      }
    }
  });
}

// f(at) with the coordinates of each place of `sizes`, in the order of the dimensions; in threads of at least
// `grain` places.
template <class F>
void for_each_place(const Dims& sizes, int64_t grain, const F& f) {
  parallel(sizes.product(), std::max<int64_t>(1, grain), [&](int64_t begin, int64_t end) {
    Dims at = sizes;
    int64_t rest = begin;
    for (int64_t i = sizes.rank - 1; i >= 0; --i) {
      at[i] = rest % sizes[i];
      rest /= sizes[i];
    }
    for (int64_t place = begin; place < end; ++place) {
      f(static_cast<const Dims&>(at));
      for (int64_t i = sizes.rank - 1; i >= 0 && ++at[i] == sizes[i]; --i) {
        at[i] = 0;
      }
    }
  });
}

// Where the place lies in a view, in elements.
inline int64_t offset_of(const Dims& at, const Dims& strides) {
  int64_t offset = 0;
  for (int64_t i = 0; i < at.rank; ++i) {
    offset += at[i] * strides[i];
  }
  return offset;
}

}  // namespace opsmith::portable
