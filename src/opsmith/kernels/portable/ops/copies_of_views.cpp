// The `*_copy` operators: the copy of what a view operator would show. Each body calculates the view's sizes,
// strides and origin; copy_strided moves the elements.
#include <algorithm>
#include <optional>
#include <utility>

#include "../movement.h"
#include "../view_geometry.h"

namespace opsmith::portable::native {
namespace {

using executorch::aten::TensorList;

// A view of a tensor; `offset` counts elements.
struct View {
  Dims sizes;
  Dims strides;
  int64_t offset = 0;

  explicit View(const Tensor& t) : sizes(sizes_of(t)), strides(strides_of(t)) {}
};

// `converts`: as ExecuTorch has it of parts, which may be of another dtype.
void copy_view(KernelRuntimeContext& context, const Tensor& self, const View& view, Tensor& out,
               bool converts = false) {
  if (!(converts && in_executorch()) && !same_dtype(context, self, out)) {
    return;
  }
  if (!resize(context, out, view.sizes) || !one_layout(context, {&out, &self}) || out.numel() == 0) {
    return;
  }
  const int64_t width = self.element_size();
  const Source from{static_cast<const char*>(self.const_data_ptr()) + view.offset * width, view.strides};
  convert_strided(context, view.sizes, self.scalar_type(), from, out.scalar_type(), destination_of(out));
}

// The view without dimension `dim`, at `index` of it. False with the call rejected.
bool select(KernelRuntimeContext& context, int64_t dim, int64_t index, View& view) {
  OPSMITH_CHECK(context, view.sizes.rank != 0, NotFound, false,
                "select() cannot be applied to a 0-dim tensor.");
  const int64_t d = wrap_dim(context, dim, view.sizes.rank);
  if (d < 0) {
    return false;
  }
  const int64_t size = view.sizes[d];
  OPSMITH_CHECK(context, index >= -size && index < size, NotFound, false,
                "select(): index %" PRId64 " out of range for tensor of size %" PRId64
                " at dimension %" PRId64,
                index, size, dim);
  view.offset += (index < 0 ? index + size : index) * view.strides[d];
  view.sizes.erase(d);
  view.strides.erase(d);
  return true;
}

void narrow(View& view, int64_t dim, int64_t start, int64_t length) {
  view.offset += start * view.strides[dim];
  view.sizes[dim] = length;
}

// The parts of `self` along `dim`, each of what sizes(i) says, into the tensors of `out`.
template <class SizeOfPart>
void copy_parts(KernelRuntimeContext& context, const Tensor& self, int64_t dim, TensorList out,
                const SizeOfPart& size_of_part) {
  int64_t start = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    View part(self);
    narrow(part, dim, start, size_of_part(i));
    start += part.sizes[dim];
    Tensor result = out[i];
    copy_view(context, self, part, result, /*converts=*/true);
    if (context.failure_state() != Error::Ok) {
      return;
    }
  }
}

// Drops the dimensions that `drop` says and that have one element.
template <class Drop>
Tensor& squeeze(KernelRuntimeContext& context, const Tensor& self, const Drop& drop, Tensor& out) {
  View view(self);
  for (int64_t i = view.sizes.rank - 1; i >= 0; --i) {
    if (view.sizes[i] == 1 && drop(i)) {
      view.sizes.erase(i);
      view.strides.erase(i);
    }
  }
  copy_view(context, self, view, out);
  return out;
}

Tensor& copy_whole(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  copy_view(context, self, View(self), out);
  return out;
}

Tensor& transpose(KernelRuntimeContext& context, const Tensor& self, int64_t dim0, int64_t dim1,
                  Tensor& out) {
  const int64_t a = wrap_dim(context, dim0, self.dim());
  const int64_t b = a < 0 ? a : wrap_dim(context, dim1, self.dim());
  if (b < 0) {
    return out;
  }
  View view(self);
  std::swap(view.sizes[a], view.sizes[b]);
  std::swap(view.strides[a], view.strides[b]);
  copy_view(context, self, view, out);
  return out;
}

}  // namespace

Tensor& alias_copy_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  return copy_whole(context, self, out);
}

Tensor& detach_copy_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  return copy_whole(context, self, out);
}

Tensor& permute_copy_out(KernelRuntimeContext& context, const Tensor& self, IntList dims, Tensor& out) {
  const int64_t rank = self.dim();
  OPSMITH_CHECK(
      context, static_cast<int64_t>(dims.size()) == rank, InvalidArgument, out,
      "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the "
      "desired ordering of dimensions i.e. input.dim() = %" PRId64 " is not equal to len(dims) = %zu",
      rank, dims.size());
  const View whole(self);
  View view(self);
  bool seen[kMaxDims] = {};
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t d = wrap_dim(context, dims[i], rank);
    if (d < 0) {
      return out;
    }
    OPSMITH_CHECK(context, !seen[d], InvalidArgument, out, "permute(): duplicate dims are not allowed.");
    seen[d] = true;
    view.sizes[i] = whole.sizes[d];
    view.strides[i] = whole.strides[d];
  }
  copy_view(context, self, view, out);
  return out;
}

Tensor& transpose_copy_int_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim0, int64_t dim1,
                               Tensor& out) {
  return transpose(context, self, dim0, dim1, out);
}

Tensor& t_copy_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  OPSMITH_CHECK(context, self.dim() <= 2, InvalidArgument, out,
                "t() expects a tensor with <= 2 dimensions, but self is %" PRId64 "D",
                static_cast<int64_t>(self.dim()));
  return self.dim() < 2 ? copy_whole(context, self, out) : transpose(context, self, 0, 1, out);
}

Tensor& expand_copy_out(KernelRuntimeContext& context, const Tensor& self, IntList size, bool implicit,
                        Tensor& out) {
  OPSMITH_CHECK(context, !implicit || !in_executorch(), InvalidArgument, out,
                "expand: implicit is only for programs that PyTorch traces");
  const int64_t rank = static_cast<int64_t>(size.size());
  const int64_t added = rank - self.dim();
  OPSMITH_CHECK(context, added >= 0 && rank <= kMaxDims, InvalidArgument, out,
                "expand: the number of sizes provided (%" PRId64
                ") must be greater or equal to the number of "
                "dimensions in the tensor (%" PRId64 ")",
                rank, static_cast<int64_t>(self.dim()));
  View view(self);
  for (int64_t i = 0; i < added; ++i) {
    view.sizes.insert(i, 1);
    view.strides.insert(i, 0);
  }
  for (int64_t i = 0; i < rank; ++i) {
    if (size[i] == -1 && i >= added) {
      continue;
    }
    OPSMITH_CHECK(context, size[i] >= 0 && (size[i] == view.sizes[i] || view.sizes[i] == 1), InvalidArgument,
                  out,
                  "The expanded size of the tensor (%" PRId64 ") must match the existing size (%" PRId64
                  ") at non-singleton dimension %" PRId64 ".",
                  size[i], view.sizes[i], i);
    if (view.sizes[i] != size[i]) {
      view.sizes[i] = size[i];
      view.strides[i] = 0;
    }
  }
  copy_view(context, self, view, out);
  return out;
}

// `self` and `out` are contiguous (the manifest says so), so the elements stay as they lie.
Tensor& view_copy_out(KernelRuntimeContext& context, const Tensor& self, IntList size, Tensor& out) {
  OPSMITH_CHECK(context, static_cast<int64_t>(size.size()) <= kMaxDims, NotSupported, out,
                "view: at most %" PRId64 " dimensions", kMaxDims);
  Dims sizes(size);
  int64_t inferred = -1;
  Checked known = 1;
  for (int64_t i = 0; i < sizes.rank; ++i) {
    if (sizes[i] == -1) {
      OPSMITH_CHECK(context, inferred < 0, InvalidArgument, out, "only one dimension can be inferred");
      inferred = i;
    } else {
      OPSMITH_CHECK(context, sizes[i] >= 0, InvalidArgument, out, "invalid shape dimension %" PRId64,
                    sizes[i]);
      known = known * sizes[i];
    }
  }
  const bool is_known = known.fits() && known.value() != 0;
  if (inferred >= 0 && is_known) {
    sizes[inferred] = self.numel() / known.value();
  }
  OPSMITH_CHECK(context, have_elements(sizes, self.numel()) && (inferred < 0 || is_known), InvalidArgument,
                out, "the shape of the view is invalid for input of size %" PRId64,
                static_cast<int64_t>(self.numel()));
  if (!same_dtype(context, self, out) || !are_contiguous(context, {&self, &out})) {
    return out;
  }
  if (resize(context, out, sizes) && self.numel() != 0) {
    std::memcpy(out.mutable_data_ptr(), self.const_data_ptr(), self.nbytes());
  }
  return out;
}

Tensor& slice_copy_tensor_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim,
                              std::optional<int64_t> start, std::optional<int64_t> end, int64_t step,
                              Tensor& out) {
  const int64_t d = sliced_dim(context, self, dim, step);
  if (d < 0) {
    return out;
  }
  View view(self);
  const int64_t size = view.sizes[d];
  const int64_t from = slice_bound(start.value_or(0), size);
  const int64_t to = std::max(slice_bound(end.value_or(size), size), from);
  narrow(view, d, from, ceil_divided(to - from, step));
  view.strides[d] = stepped(view.strides[d], step, view.sizes[d]);
  copy_view(context, self, view, out);
  return out;
}

Tensor& narrow_copy_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, int64_t start,
                        int64_t length, Tensor& out) {
  OPSMITH_CHECK(context, self.dim() > 0, InvalidArgument, out,
                "narrow() cannot be applied to a 0-dim tensor.");
  const int64_t d = wrap_dim(context, dim, self.dim());
  if (d < 0) {
    return out;
  }
  View view(self);
  const int64_t size = view.sizes[d];
  OPSMITH_CHECK(context, length >= 0, InvalidArgument, out, "narrow(): length must be non-negative.");
  OPSMITH_CHECK(context, start >= -size && start <= size, NotFound, out,
                "start out of range (expected to be in range of [%" PRId64 ", %" PRId64 "], but got %" PRId64
                ")",
                -size, size, start);
  const int64_t from = start < 0 ? start + size : start;
  OPSMITH_CHECK(context, length <= size - from, InvalidArgument, out,
                "start (%" PRId64 ") + length (%" PRId64 ") exceeds dimension size (%" PRId64 ").", start,
                length, size);
  narrow(view, d, from, length);
  copy_view(context, self, view, out);
  return out;
}

Tensor& lift_fresh_copy_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  return copy_whole(context, self, out);
}

Tensor& select_copy_int_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, int64_t index,
                            Tensor& out) {
  View view(self);
  if (select(context, dim, index, view)) {
    copy_view(context, self, view, out);
  }
  return out;
}

Tensor& squeeze_copy_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  return squeeze(context, self, [](int64_t) { return true; }, out);
}

Tensor& squeeze_copy_dim_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, Tensor& out) {
  const int64_t d = wrap_dim(context, dim, self.dim());
  return d < 0 ? out : squeeze(context, self, [d](int64_t i) { return i == d; }, out);
}

Tensor& squeeze_copy_dims_out(KernelRuntimeContext& context, const Tensor& self, IntList dims, Tensor& out) {
  DimSet named;
  if (!named_dims(context, dims, self.dim(), named)) {
    return out;
  }
  return squeeze(context, self, [named](int64_t i) { return contains(named, i); }, out);
}

Tensor& unsqueeze_copy_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, Tensor& out) {
  const int64_t d = wrap_dim(context, dim, self.dim() + 1);
  if (d < 0) {
    return out;
  }
  OPSMITH_CHECK(context, self.dim() < kMaxDims, NotSupported, out,
                "unsqueeze: at most %" PRId64 " dimensions", kMaxDims);
  View view(self);
  view.sizes.insert(d, 1);
  view.strides.insert(d, 1);
  copy_view(context, self, view, out);
  return out;
}

Tensor& diagonal_copy_out(KernelRuntimeContext& context, const Tensor& self, int64_t offset, int64_t dim1,
                          int64_t dim2, Tensor& out) {
  View view(self);
  if (take_diagonal(context, offset, dim1, dim2, view.sizes, view.strides, view.offset)) {
    copy_view(context, self, view, out);
  }
  return out;
}

Tensor& unfold_copy_out(KernelRuntimeContext& context, const Tensor& self, int64_t dimension, int64_t size,
                        int64_t step, Tensor& out) {
  const int64_t d = wrap_dim(context, dimension, self.dim());
  if (d < 0) {
    return out;
  }
  View view(self);
  const int64_t extent = self.dim() == 0 ? 1 : view.sizes[d];
  OPSMITH_CHECK(context, size >= 0 && size <= extent, InvalidArgument, out,
                "maximum size for tensor at dimension %" PRId64 " is %" PRId64 " but size is %" PRId64, d,
                extent, size);
  OPSMITH_CHECK(context, step > 0, InvalidArgument, out, "step is %" PRId64 " but must be > 0", step);
  OPSMITH_CHECK(context, self.dim() < kMaxDims, NotSupported, out, "unfold: at most %" PRId64 " dimensions",
                kMaxDims);
  view.strides.push_back(self.dim() == 0 ? 1 : view.strides[d]);
  if (self.dim() != 0) {
    view.sizes[d] = (extent - size) / step + 1;
    view.strides[d] = stepped(view.strides[d], step, view.sizes[d]);
  }
  view.sizes.push_back(size);
  copy_view(context, self, view, out);
  return out;
}

void split_copy_tensor_out(KernelRuntimeContext& context, const Tensor& self, int64_t split_size, int64_t dim,
                           TensorList out) {
  OPSMITH_CHECK(context, self.dim() != 0, InvalidArgument, ,
                "split expects at least a 1-dimensional tensor, but self is 0-dim");
  const int64_t d = wrap_dim(context, dim, self.dim());
  if (d < 0) {
    return;
  }
  const int64_t size = self.sizes()[d];
  OPSMITH_CHECK(
      context, split_size > 0 || (split_size == 0 && size == 0), InvalidArgument, ,
      "split expects split_size be non-negative, and 0 only for a dimension of size 0, but got %" PRId64
      " and %" PRId64,
      split_size, size);
  const int64_t parts = split_size == 0 ? 1 : std::max<int64_t>(ceil_divided(size, split_size), 1);
  OPSMITH_CHECK(context, static_cast<int64_t>(out.size()) == parts, InvalidArgument, ,
                "split_copy: out has %zu tensors, and there are %" PRId64 " parts", out.size(), parts);
  copy_parts(context, self, d, out,
             [&](size_t i) { return std::min(split_size, size - static_cast<int64_t>(i) * split_size); });
}

void split_with_sizes_copy_out(KernelRuntimeContext& context, const Tensor& self, IntList split_sizes,
                               int64_t dim, TensorList out) {
  OPSMITH_CHECK(context, self.dim() != 0, InvalidArgument, ,
                "split_with_sizes expects at least a 1-dimensional tensor");
  const int64_t d = wrap_dim(context, dim, self.dim());
  if (d < 0) {
    return;
  }
  Checked total = 0;
  for (const int64_t size : split_sizes) {
    OPSMITH_CHECK(context, size >= 0, InvalidArgument, ,
                  "split_with_sizes expects split_sizes have only non-negative entries, but got %" PRId64,
                  size);
    total = total + size;
  }
  OPSMITH_CHECK(
      context, total == int64_t{self.sizes()[d]}, InvalidArgument, ,
      "split_with_sizes expects split_sizes to sum exactly to %d (input tensor's size at dimension %" PRId64
      "), but they sum to %" PRId64,
      static_cast<int>(self.sizes()[d]), dim, total.value());
  OPSMITH_CHECK(context, out.size() == split_sizes.size(), InvalidArgument, ,
                "split_with_sizes_copy: out has %zu tensors, and there are %zu parts", out.size(),
                split_sizes.size());
  copy_parts(context, self, d, out, [&](size_t i) { return split_sizes[i]; });
}

void unbind_copy_int_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, TensorList out) {
  OPSMITH_CHECK(context, self.dim() != 0, InvalidArgument, , "unbind: self is a 0-dim tensor");
  const int64_t d = wrap_dim(context, dim, self.dim());
  if (d < 0) {
    return;
  }
  OPSMITH_CHECK(context, static_cast<int64_t>(out.size()) == self.sizes()[d], InvalidArgument, ,
                "unbind_copy: out has %zu tensors, and dimension %" PRId64 " has size %d", out.size(), d,
                static_cast<int>(self.sizes()[d]));
  for (size_t i = 0; i < out.size() && context.failure_state() == Error::Ok; ++i) {
    Tensor result = out[i];
    View view(self);
    if (select(context, d, static_cast<int64_t>(i), view)) {
      copy_view(context, self, view, result, /*converts=*/true);
    }
  }
}

}  // namespace opsmith::portable::native
