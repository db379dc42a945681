// The geometry of reductions over strided tensors: which dimensions stay and which go, ordered and coalesced
// so that memory is read in order. Kernels decide what to do with the elements.
#pragma once

#include <cstdint>

#include <ATen/core/TensorBase.h>
#include <ATen/core/ATen_fwd.h>
#include <c10/util/Exception.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/OptionalArrayRef.h>
#include <c10/util/SmallVector.h>

#include <opsmith/strided_iterator.h>

namespace opsmith {

// Where the operand and the result lie, which are the two views of these dimensions.
inline constexpr size_t kIn = 0, kOut = 1;
inline constexpr int64_t kMaxReductionDims = 64;
using ReductionDims = StridedIterator<2, kMaxReductionDims>;

// Calls visit(offsets) for positions begin..end-1, the last dimension running fastest. No template: what is
// called for each position is a row, and the rows' loops are what must be compiled for each element type.
inline void for_each_position(const ReductionDims& dims, int64_t begin, int64_t end,
                              c10::function_ref<void(const ReductionDims::Offsets&)> visit) {
  dims.for_each(begin, end,
                [&](const ReductionDims::Offsets& at, const ReductionDims::Index&) { visit(at); });
}

// A reduction of `self` over `dims` (negative ones count from the end; none means all, as in ATen's
// structured reductions) into a result that has its shape already, with the reduced dimensions kept as 1 or
// left out.
struct Reduction {
  ReductionDims kept;
  ReductionDims reduced;
  int64_t outputs;  // elements of the result
  int64_t length;   // elements of the operand that go into one element of the result

  Reduction(const at::TensorBase& self, at::OptionalIntArrayRef dims, bool keepdim,
            const at::TensorBase& out) {
    const int64_t rank = self.dim();
    TORCH_CHECK(rank <= kMaxReductionDims, "only tensors with up to ", kMaxReductionDims,
                " dims are supported");
    const bool all = !dims.has_value() || dims->empty();
    c10::SmallVector<bool, 6> goes(static_cast<size_t>(rank), all);
    if (!all && rank > 0) {
      for (const int64_t dim : *dims) {
        goes[static_cast<size_t>(dim < 0 ? dim + rank : dim)] = true;
      }
    }
    int64_t out_dim = 0;
    for (int64_t d = 0; d < rank; ++d) {
      const bool is_reduced = goes[static_cast<size_t>(d)];
      if (is_reduced) {
        reduced.add(self.size(d), {self.stride(d), 0});
      } else {
        kept.add(self.size(d), {self.stride(d), out.stride(out_dim)});
      }
      out_dim += !is_reduced || keepdim ? 1 : 0;
    }
    outputs = kept.numel();
    length = reduced.numel();
  }

  // For results that do not depend on the order in which elements are met: read memory as it lies.
  void order_by_stride() {
    for (ReductionDims* dims : {&kept, &reduced}) {
      dims->reorder(kIn);
      dims->coalesce();
    }
  }
};

}  // namespace opsmith
