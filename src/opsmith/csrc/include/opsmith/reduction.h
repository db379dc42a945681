// The geometry of reductions over strided tensors: which axes stay and which go, merged and ordered so that
// memory is read in order, and walks over their positions. Kernels decide what to do with the elements.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include <ATen/core/TensorBase.h>
#include <ATen/core/ATen_fwd.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/OptionalArrayRef.h>
#include <c10/util/SmallVector.h>

namespace opsmith {

// One axis: its length and, in elements, the stride in the operand and in the result.
struct Axis {
  int64_t size;
  int64_t in;
  int64_t out = 0;
};
using Axes = c10::SmallVector<Axis, 6>;
inline constexpr size_t kMaxAxes = 64;

inline int64_t product_of_sizes(const Axes& axes) {
  int64_t product = 1;
  for (const Axis& axis : axes) {
    product *= axis.size;
  }
  return product;
}

// Joins neighbouring axes that one stride can walk, after dropping those of length 1. Keeps the order of
// positions.
inline void merge_axes(Axes& axes) {
  Axes merged;
  for (const Axis& axis : axes) {
    if (axis.size == 1) {
      continue;
    }
    if (!merged.empty()) {
      Axis& outer = merged.back();
      if (outer.in == axis.in * axis.size && outer.out == axis.out * axis.size) {
        outer = {outer.size * axis.size, axis.in, axis.out};
        continue;
      }
    }
    merged.push_back(axis);
  }
  axes = merged;
}

// Orders axes by falling stride in the operand, so that the last is the densest. Positions change their
// order.
inline void sort_axes(Axes& axes) {
  std::stable_sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.in > b.in; });
}

// Where in the operand and the result a walk stands, in elements.
struct Position {
  int64_t in = 0;
  int64_t out = 0;
};

// Calls visit(position) for positions begin..end-1 of the axes, the last axis running fastest. No template:
// walks lead from row to row, and the rows' loops are what must be compiled for each element type.
inline void walk(const Axes& axes, int64_t begin, int64_t end,
                 c10::function_ref<void(const Position&)> visit) {
  if (begin >= end) {
    return;
  }
  TORCH_CHECK(axes.size() <= kMaxAxes, "A reduction over ", axes.size(),
              " separate axes is not supported: at most ", kMaxAxes, ". Make the tensor contiguous first");
  std::array<int64_t, kMaxAxes> index;
  Position at;
  int64_t rest = begin;
  for (size_t d = axes.size(); d-- > 0;) {
    index[d] = rest % axes[d].size;
    rest /= axes[d].size;
    at.in += index[d] * axes[d].in;
    at.out += index[d] * axes[d].out;
  }
  for (int64_t k = begin; k < end; ++k) {
    visit(at);
    for (size_t d = axes.size(); d-- > 0;) {
      const Axis& axis = axes[d];
      const bool carry = ++index[d] == axis.size;
      const int64_t steps = carry ? 1 - axis.size : 1;
      at.in += steps * axis.in;
      at.out += steps * axis.out;
      if (!carry) {
        break;
      }
      index[d] = 0;
    }
  }
}

// A reduction of `self` over `dims` (negative ones count from the end; none means all, as in ATen's
// structured reductions) into a result that has its shape already, with the reduced dimensions kept as 1 or
// left out.
struct Reduction {
  Axes kept;
  Axes reduced;
  int64_t outputs;  // elements of the result
  int64_t length;   // elements of the operand that go into one element of the result

  Reduction(const at::TensorBase& self, at::OptionalIntArrayRef dims, bool keepdim,
            const at::TensorBase& out) {
    const int64_t rank = self.dim();
    const bool all = !dims.has_value() || dims->empty();
    c10::SmallVector<bool, 6> goes(static_cast<size_t>(rank), all);
    if (!all && rank > 0) {
      for (const int64_t dim : *dims) {
        goes[static_cast<size_t>(dim < 0 ? dim + rank : dim)] = true;
      }
    }
    int64_t out_dim = 0;
    for (int64_t d = 0; d < rank; ++d) {
      const bool has_out_dim = !goes[static_cast<size_t>(d)] || keepdim;
      Axis axis{self.size(d), self.stride(d)};
      if (goes[static_cast<size_t>(d)]) {
        reduced.push_back(axis);
      } else {
        axis.out = out.stride(out_dim);
        kept.push_back(axis);
      }
      out_dim += has_out_dim ? 1 : 0;
    }
    outputs = product_of_sizes(kept);
    length = product_of_sizes(reduced);
  }

  // For results that do not depend on the order in which elements are met: read memory as it lies.
  void order_by_stride() {
    sort_axes(kept);
    sort_axes(reduced);
    merge_axes(kept);
    merge_axes(reduced);
  }
};

}  // namespace opsmith
