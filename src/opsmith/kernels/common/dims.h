// Sizes, strides and dimensions of lean tensors: what kernels check and calculate before they touch an
// element. Nothing here knows a dtype.
#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <initializer_list>

#include "checked_sizes.h"
#include "checks.h"

namespace opsmith {

using executorch::aten::ArrayRef;
using executorch::aten::OptionalArrayRef;
using executorch::aten::Tensor;
using IntList = ArrayRef<int64_t>;

inline constexpr int64_t kMaxDims = executorch::runtime::kTensorDimensionLimit;

// One number per dimension: sizes, strides, coordinates.
struct Dims {
  int64_t rank = 0;
  int64_t value[kMaxDims] = {};

  Dims() = default;
  Dims(std::initializer_list<int64_t> values) { append(values); }
  explicit Dims(IntList values) { append(values); }
  explicit Dims(ArrayRef<int32_t> values) { append(values); }

  int64_t& operator[](int64_t i) { return value[i]; }
  int64_t operator[](int64_t i) const { return value[i]; }

  void push_back(int64_t each) { value[rank++] = each; }
  void insert(int64_t at, int64_t each) {
    std::copy_backward(value + at, value + rank, value + rank + 1);
    value[at] = each;
    ++rank;
  }
  void erase(int64_t at) {
    std::copy(value + at + 1, value + rank, value + at);
    --rank;
  }

  // The product from dimension `begin` up to `end`, which is 1 where there is none.
  int64_t product(int64_t begin, int64_t end) const {
    int64_t product = 1;
    for (int64_t i = begin; i < end; ++i) {
      product *= value[i];
    }
    return product;
  }
  int64_t product() const { return product(0, rank); }

  IntList list() const { return {value, static_cast<size_t>(rank)}; }
  bool operator==(const Dims& other) const {
    return std::equal(value, value + rank, other.value, other.value + other.rank);
  }

 private:
  template <class Values>
  void append(const Values& values) {
    for (const int64_t each : values) {
      push_back(each);
    }
  }
};

// Whether a tensor of these sizes, which may be any numbers, has so many elements.
inline bool have_elements(const Dims& sizes, int64_t numel) {
  Checked product = 1;
  bool is_empty = false;
  for (int64_t i = 0; i < sizes.rank; ++i) {
    if (sizes[i] < 0) {
      return false;
    }
    is_empty = is_empty || sizes[i] == 0;
    product = product * sizes[i];
  }
  return is_empty ? numel == 0 : product == numel;
}

inline Dims sizes_of(const Tensor& t) {
  return Dims(t.sizes());
}
inline Dims strides_of(const Tensor& t) {
  return Dims(t.strides());
}

// Strides of a contiguous tensor of these sizes.
inline Dims contiguous_strides(const Dims& sizes) {
  Dims strides = sizes;
  int64_t stride = 1;
  for (int64_t i = sizes.rank - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= sizes[i] > 1 ? sizes[i] : 1;
  }
  return strides;
}

// Along dimension `d` of `rank`, to which the tensor broadcasts: 0 where it is stretched.
inline int64_t broadcast_stride(const Tensor& t, int64_t d, int64_t rank) {
  const int64_t own = d - rank + t.dim();
  return own < 0 || t.sizes()[static_cast<size_t>(own)] == 1 ? 0 : t.strides()[static_cast<size_t>(own)];
}

// Whether an index has one offset in both; dimensions of size 1 have no say.
inline bool same_layout(const Tensor& a, const Tensor& b) {
  if (a.dim() != b.dim()) {
    return false;
  }
  for (size_t i = 0; i < static_cast<size_t>(a.dim()); ++i) {
    if (a.sizes()[i] != b.sizes()[i] || (a.sizes()[i] > 1 && a.strides()[i] != b.strides()[i])) {
      return false;
    }
  }
  return true;
}

// Whether elements lie one after the other in the order of the dimensions, last dimension first.
inline bool is_contiguous(const Tensor& t) {
  int64_t expected = 1;
  for (size_t i = static_cast<size_t>(t.dim()); i-- > 0 && expected != 0;) {
    if (t.sizes()[i] > 1 && t.strides()[i] != expected) {
      return false;
    }
    expected *= t.sizes()[i];
  }
  return true;
}

// As ExecuTorch knows them by their dim order: 0, 1, 2, ..., and with dimension 1 innermost.
inline bool has_contiguous_order(const Tensor& t) {
  const auto order = t.dim_order();
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != i) {
      return false;
    }
  }
  return true;
}
inline bool has_channels_last_order(const Tensor& t) {
  const auto order = t.dim_order();
  if ((order.size() != 4 && order.size() != 5) || order[0] != 0 || order[order.size() - 1] != 1) {
    return false;
  }
  for (size_t i = 1; i + 1 < order.size(); ++i) {
    if (order[i] != i + 1) {
      return false;
    }
  }
  return true;
}

// ExecuTorch's rule, where ATen goes by strides: the Tensors of out's rank, `out` first, are all contiguous
// or all channels-last. Rejects the call where that is broken.
inline bool one_layout(KernelRuntimeContext& context, std::initializer_list<const Tensor*> tensors,
                       bool stretched_too = true) {
  if (!in_executorch()) {
    return true;
  }
  const Tensor& out = **tensors.begin();
  bool contiguous = true;
  bool channels_last = true;
  for (const Tensor* each : tensors) {
    if (each->dim() == out.dim() && (stretched_too || each->numel() == out.numel())) {
      contiguous = contiguous && has_contiguous_order(*each);
      channels_last = channels_last && has_channels_last_order(*each);
    }
  }
  return contiguous || channels_last ||
         reject(context, Error::InvalidArgument,
                "the Tensors have different dim orders: all have to be contiguous, or all channels-last");
}

// The same of operands that broadcast: those that are stretched to out's shape have no say.
inline bool one_dim_order(KernelRuntimeContext& context, std::initializer_list<const Tensor*> tensors) {
  return one_layout(context, tensors, /*stretched_too=*/false);
}

// For kernels that go through elements as they lie, which the bridge and ExecuTorch's keys hand nothing else:
// rejects what is not contiguous all the same.
inline bool are_contiguous(KernelRuntimeContext& context, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* each : tensors) {
    OPSMITH_CHECK(context, is_contiguous(*each), InvalidArgument, false,
                  "every Tensor has to be contiguous, and one of %d dimensions is not",
                  static_cast<int>(each->dim()));
  }
  return true;
}

inline bool reject_rank(KernelRuntimeContext& context, int64_t rank) {
  return reject(context, Error::InvalidArgument,
                "Tensors of %" PRId64 " dimensions are not supported: at most %" PRId64, rank, kMaxDims);
}

// `dim` counted from the front, or -1 with the call rejected. A 0-dim tensor takes 0 and -1, as ATen's does.
inline int64_t wrap_dim(KernelRuntimeContext& context, int64_t dim, int64_t rank) {
  const int64_t range = rank == 0 ? 1 : rank;
  OPSMITH_CHECK(context, dim >= -range && dim < range, NotFound, -1,
                "Dimension out of range (expected to be in range of [%" PRId64 ", %" PRId64
                "], but got %" PRId64 ")",
                -range, range - 1, dim);
  return dim < 0 ? dim + range : dim;
}

// A set of dimensions, one bit each.
using DimSet = uint32_t;

inline bool contains(DimSet dims, int64_t dim) {
  return (dims >> dim & 1u) != 0;
}

// Those that the list names, each once. False with the call rejected.
inline bool named_dims(KernelRuntimeContext& context, IntList dims, int64_t rank, DimSet& named) {
  named = 0;
  for (const int64_t given : dims) {
    const int64_t dim = wrap_dim(context, given, rank);
    if (dim < 0) {
      return false;
    }
    OPSMITH_CHECK(context, !contains(named, dim), InvalidArgument, false,
                  "dim %" PRId64 " appears multiple times in the list of dims", dim);
    named |= DimSet{1} << dim;
  }
  return true;
}

}  // namespace opsmith
