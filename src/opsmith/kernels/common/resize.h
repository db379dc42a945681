// Shapes of results: what operands broadcast to, what a reduction leaves, and giving them to `out`.
#pragma once

#include <cinttypes>
#include <initializer_list>
#include <limits>
#include <optional>

#include "dims.h"

namespace opsmith {

// Gives `out` the sizes; rejects the call where it cannot have them.
inline bool resize_to(KernelRuntimeContext& context, Tensor& out,
                      ArrayRef<executorch::aten::SizesType> sizes) {
  // resize_tensor has logged the sizes: the last message is what a user reads, so it says what to do as well.
  return executorch::runtime::resize_tensor(out, sizes) == Error::Ok ||
         reject(context, Error::InvalidArgument,
                "out has %d dimensions and %" PRId64 " elements, and cannot be resized to the result's shape",
                static_cast<int>(out.dim()), static_cast<int64_t>(out.numel()));
}

inline bool resize(KernelRuntimeContext& context, Tensor& out, const Dims& sizes) {
  executorch::aten::SizesType narrow[kMaxDims];
  constexpr int64_t kMost = std::numeric_limits<executorch::aten::SizesType>::max();
  // PyTorch's Tensors without elements may have any sizes, which the bridge narrows as well.
  const bool is_empty = !in_executorch() && have_elements(sizes, 0);
  for (int64_t i = 0; i < sizes.rank; ++i) {
    OPSMITH_CHECK(context, is_empty || (sizes[i] >= 0 && sizes[i] <= kMost), InvalidArgument, false,
                  "the result's size at dimension %" PRId64 " would be %" PRId64
                  ", and a Tensor's are from 0 to %" PRId64,
                  i, sizes[i], kMost);
    narrow[i] = static_cast<executorch::aten::SizesType>(sizes[i]);
  }
  return resize_to(context, out, {narrow, static_cast<size_t>(sizes.rank)});
}

inline bool resize_like(KernelRuntimeContext& context, Tensor& out, const Tensor& like) {
  return resize_to(context, out, like.sizes());
}

// ExecuTorch's rule for two results of one shape, such as the largest elements and their places: they have
// one before they are resized, too. Rejects the call where that is broken.
inline bool have_one_shape(KernelRuntimeContext& context, const Tensor& a, const Tensor& b) {
  return !in_executorch() || a.sizes() == b.sizes() ||
         reject(context, Error::InvalidArgument,
                "both results must have one shape, however they are resized");
}

// ExecuTorch's rule for operators with a memory format: `out`, which the program has laid out, is contiguous
// or, where that is asked for, channels-last; without one it lies as `self` does. Rejects the call where that
// is broken. PyTorch makes `out` so that it holds.
inline bool lies_as_asked(KernelRuntimeContext& context, const Tensor& self,
                          const std::optional<executorch::aten::MemoryFormat>& format, const Tensor& out) {
  using executorch::aten::MemoryFormat;
  if (!in_executorch()) {
    return true;
  }
  OPSMITH_CHECK(
      context,
      !format.has_value() || *format == MemoryFormat::Contiguous || *format == MemoryFormat::Preserve,
      InvalidArgument, false, "only the contiguous memory format is supported");
  if (format.has_value() && *format == MemoryFormat::Contiguous) {
    OPSMITH_CHECK(context, has_contiguous_order(out), InvalidArgument, false,
                  "out has to be contiguous, as the memory format says");
    return true;
  }
  return one_dim_order(context, {&out, &self});
}

// The shape that the inputs broadcast to: sizes of 1, and dimensions that are missing on the left, stretch.
// Rejects shapes that do not.
inline bool broadcast_sizes(KernelRuntimeContext& context, std::initializer_list<const Tensor*> inputs,
                            Dims& sizes) {
  sizes = Dims();
  for (const Tensor* input : inputs) {
    sizes.rank = std::max<int64_t>(sizes.rank, input->dim());
  }
  if (sizes.rank > kMaxDims) {
    return reject_rank(context, sizes.rank);
  }
  std::fill_n(sizes.value, sizes.rank, 1);
  for (const Tensor* input : inputs) {
    const int64_t shift = sizes.rank - input->dim();
    for (int64_t d = shift; d < sizes.rank; ++d) {
      const int64_t size = input->sizes()[static_cast<size_t>(d - shift)];
      if (sizes[d] == 1) {
        sizes[d] = size;
      }
      OPSMITH_CHECK(context, size == 1 || size == sizes[d], InvalidArgument, false,
                    "The size of tensor a (%" PRId64 ") must match the size of tensor b (%" PRId64
                    ") at non-singleton dimension %" PRId64,
                    sizes[d], size, d);
    }
  }
  return true;
}

// Gives `out` the shape that the inputs broadcast to; rejects shapes that do not, and an out that cannot have
// the shape.
inline bool resize_to_broadcast(KernelRuntimeContext& context, Tensor& out,
                                std::initializer_list<const Tensor*> inputs) {
  Dims sizes;
  return broadcast_sizes(context, inputs, sizes) && resize(context, out, sizes);
}

// The dimensions that are reduced, negative ones counted from the end; none given means all of them. Rejects
// what is out of range or named twice.
inline bool reduced_dims(KernelRuntimeContext& context, const Tensor& self,
                         const executorch::aten::OptionalArrayRef<int64_t>& dims, DimSet& reduced) {
  if (self.dim() > kMaxDims) {
    return reject_rank(context, self.dim());
  }
  reduced = (DimSet{1} << self.dim()) - 1;
  if (!dims.has_value() || dims->empty()) {
    return true;
  }
  DimSet named;
  if (!named_dims(context, *dims, self.dim(), named)) {
    return false;
  }
  reduced &= named;
  return true;
}

inline DimSet every_dim(const Tensor& self) {
  return (DimSet{1} << self.dim()) - 1;
}

inline bool reduced_dim(KernelRuntimeContext& context, const Tensor& self, int64_t dim, DimSet& reduced) {
  return reduced_dims(context, self, IntList(dim), reduced);
}

// The number of elements that go into one result.
inline int64_t reduced_length(const Tensor& self, DimSet reduced) {
  int64_t length = 1;
  for (int64_t d = 0; d < self.dim(); ++d) {
    length *= contains(reduced, d) ? self.sizes()[static_cast<size_t>(d)] : 1;
  }
  return length;
}

// Gives `out` the shape of a result: the reduced dimensions have length 1 (`keepdim`) or are left out.
inline bool resize_to_reduced(KernelRuntimeContext& context, Tensor& out, const Tensor& self, DimSet reduced,
                              bool keepdim) {
  Dims sizes;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!contains(reduced, d)) {
      sizes.push_back(self.sizes()[static_cast<size_t>(d)]);
    } else if (keepdim) {
      sizes.push_back(1);
    }
  }
  return resize(context, out, sizes);
}

}  // namespace opsmith
