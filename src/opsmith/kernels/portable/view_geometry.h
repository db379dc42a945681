// The geometry of views that are copied, and written to.
#pragma once

#include "../common/dims.h"

namespace opsmith::portable {

// The dimension that a slice with the step is taken of, or -1 with the call rejected.
inline int64_t sliced_dim(KernelRuntimeContext& context, const Tensor& self, int64_t dim, int64_t step) {
  OPSMITH_CHECK(context, self.dim() != 0, NotFound, -1, "slice() cannot be applied to a 0-dim tensor.");
  OPSMITH_CHECK(context, step > 0, InvalidArgument, -1, "slice step must be positive");
  return wrap_dim(context, dim, self.dim());
}

// A bound of a slice, counted from the front and within [0, size].
inline int64_t slice_bound(int64_t bound, int64_t size) {
  const int64_t wrapped = bound < 0 ? bound + size : bound;
  return wrapped < 0 ? 0 : wrapped > size ? size : wrapped;
}

// The stride of every `step`-th element, of which there are `count`: of one alone, any.
inline int64_t stepped(int64_t stride, int64_t step, int64_t count) {
  return count > 1 ? stride * step : stride;
}

// Replaces dimensions `dim1` and `dim2` by their diagonal, as the last dimension, and adds to `origin` where
// it begins. False with the call rejected.
inline bool take_diagonal(KernelRuntimeContext& context, int64_t offset, int64_t dim1, int64_t dim2,
                          Dims& sizes, Dims& strides, int64_t& origin) {
  const int64_t a = wrap_dim(context, dim1, sizes.rank);
  const int64_t b = a < 0 ? a : wrap_dim(context, dim2, sizes.rank);
  if (b < 0) {
    return false;
  }
  OPSMITH_CHECK(context, a != b, InvalidArgument, false,
                "diagonal dimensions cannot be identical %" PRId64 ", %" PRId64, dim1, dim2);
  const int64_t along_a = offset < 0 ? sizes[a] + offset : sizes[a];
  const int64_t along_b = offset < 0 ? sizes[b] : sizes[b] - offset;
  const int64_t length = along_a < along_b ? along_a : along_b;
  const int64_t stride = strides[a] + strides[b];
  if (length > 0) {
    origin += offset < 0 ? -offset * strides[a] : offset * strides[b];
  }
  sizes.erase(a > b ? a : b);
  strides.erase(a > b ? a : b);
  sizes.erase(a > b ? b : a);
  strides.erase(a > b ? b : a);
  sizes.push_back(length > 0 ? length : 0);
  strides.push_back(stride);
  return true;
}

}  // namespace opsmith::portable
