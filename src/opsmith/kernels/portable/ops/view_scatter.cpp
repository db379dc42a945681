// select_scatter, slice_scatter and diagonal_scatter: a copy of `self` whose view is overwritten by `src`.
#include <algorithm>
#include <optional>

#include "../movement.h"
#include "../view_geometry.h"

namespace opsmith::portable::native {
namespace {

// Copies `self` to `out` and `src` to the part of it at `origin` with these sizes and strides (of out).
Tensor& overwrite(KernelRuntimeContext& context, const char* name, const Tensor& self, const Tensor& src,
                  const Dims& sizes, const Dims& strides, int64_t origin, Tensor& out) {
  OPSMITH_CHECK(context, sizes_of(src) == sizes, InvalidArgument, out,
                "expected src to have a size equal to the slice of self in %s", name);
  copy_elements(context, self, out);
  const Destination to{static_cast<char*>(out.mutable_data_ptr()) + origin * out.element_size(), strides};
  convert_strided(context, sizes, src.scalar_type(), source_of(src), out.scalar_type(), to);
  return out;
}

bool as_self(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  if (!same_dtype(context, self, out)) {
    return false;
  }
  return resize(context, out, sizes_of(self));
}

}  // namespace

Tensor& select_scatter_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& src, int64_t dim,
                           int64_t index, Tensor& out) {
  OPSMITH_CHECK(context, self.dim() != 0, NotFound, out, "select() cannot be applied to a 0-dim tensor.");
  const int64_t d = wrap_dim(context, dim, self.dim());
  if (d < 0) {
    return out;
  }
  const int64_t size = self.sizes()[d];
  OPSMITH_CHECK(context, index >= -size && index < size, NotFound, out,
                "select(): index %" PRId64 " out of range for tensor of size %" PRId64
                " at dimension %" PRId64,
                index, size, dim);
  if (!as_self(context, self, out)) {
    return out;
  }
  Dims sizes = sizes_of(self);
  Dims strides = strides_of(out);
  const int64_t origin = (index < 0 ? index + size : index) * strides[d];
  sizes.erase(d);
  strides.erase(d);
  return overwrite(context, "select_scatter", self, src, sizes, strides, origin, out);
}

Tensor& slice_scatter_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& src, int64_t dim,
                          std::optional<int64_t> start, std::optional<int64_t> end, int64_t step,
                          Tensor& out) {
  const int64_t d = sliced_dim(context, self, dim, step);
  if (d < 0 || !as_self(context, self, out)) {
    return out;
  }
  Dims sizes = sizes_of(self);
  Dims strides = strides_of(out);
  const int64_t from = slice_bound(start.value_or(0), sizes[d]);
  const int64_t to = std::max(slice_bound(end.value_or(sizes[d]), sizes[d]), from);
  const int64_t origin = from * strides[d];
  sizes[d] = ceil_divided(to - from, step);
  strides[d] = stepped(strides[d], step, sizes[d]);
  return overwrite(context, "slice_scatter", self, src, sizes, strides, origin, out);
}

Tensor& diagonal_scatter_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& src,
                             int64_t offset, int64_t dim1, int64_t dim2, Tensor& out) {
  if (!as_self(context, self, out)) {
    return out;
  }
  Dims sizes = sizes_of(self);
  Dims strides = strides_of(out);
  int64_t origin = 0;
  if (!take_diagonal(context, offset, dim1, dim2, sizes, strides, origin)) {
    return out;
  }
  return overwrite(context, "diagonal_scatter", self, src, sizes, strides, origin, out);
}

}  // namespace opsmith::portable::native
