// How the elements of a dense tensor lie that are reduced into each result: dimensions are put in the order
// in which they lie in memory, and neighbours that are both kept, or both reduced, are merged.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../common/dtypes.h"
#include "../common/resize.h"
#include "../common/strided_iteration.h"

namespace opsmith::optimized {

// How the operand and the result lie; where a dimension is reduced, the result has a stride of 0.
using ReductionLayout = StridedIterator<2>;

// Not inlined: gcc 12 at -O3 would lose how many dimensions coalesce leaves.
[[gnu::noinline]] inline void put_in_order(ReductionLayout& all) {
  all.reorder(0);
  all.coalesce();
}

// Dimensions in the order in which the operand's elements lie in memory.
inline ReductionLayout reduction_layout(const Tensor& self, const Tensor& out, DimSet reduced, bool keepdim) {
  ReductionLayout all;
  for (int d = 0, to = 0; d < self.dim(); ++d) {
    const bool is_reduced = contains(reduced, d);
    all.add(self.sizes()[d], {self.strides()[d], is_reduced ? 0 : out.strides()[to]});
    to += !is_reduced || keepdim ? 1 : 0;
  }
  put_in_order(all);
  return all;
}

struct ReductionParts {
  ReductionLayout kept;     // all but the innermost, if that is kept
  ReductionLayout reduced;  // all but the innermost, if that is reduced
  ReductionLayout::Dimension inner{1, {1, 0}};

  bool is_inner_reduced() const { return inner.stride[1] == 0; }
};

inline ReductionParts parts_of(ReductionLayout all) {
  ReductionParts parts;
  // Runs need neighbouring elements; a dense operand's innermost dimension has them.
  if (all.rank() > 0) {
    parts.inner = all.pop();
  }
  for (size_t d = 0; d < all.rank(); ++d) {
    (all[d].stride[1] == 0 ? parts.reduced : parts.kept).add(all[d].size, all[d].stride);
  }
  return parts;
}

}  // namespace opsmith::optimized
