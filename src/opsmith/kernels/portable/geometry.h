// Sizes, strides and dimensions of lean tensors: what the kernels of this library check and calculate before
// they touch an element. Nothing here knows a dtype.
#pragma once

#include "iteration.h"

#include <cinttypes>
#include <cstdint>
#include <initializer_list>

// Refuses the call with the reason and returns `result` where the condition does not hold.
#define OPSMITH_CHECK(context, condition, error, result, ...) \
  do {                                                        \
    if (!(condition)) {                                       \
      refuse(context, Error::error, __VA_ARGS__);             \
      return result;                                          \
    }                                                         \
  } while (false)

namespace opsmith::portable {

using executorch::aten::ArrayRef;

using IntList = ArrayRef<int64_t>;

constexpr int64_t kMaxRank = kMaxDims;

// One number per dimension: sizes, strides, coordinates.
struct Dims {
  int64_t rank = 0;
  int64_t value[kMaxRank] = {};

  Dims() = default;
  Dims(std::initializer_list<int64_t> values) {
    for (const int64_t each : values) {
      push_back(each);
    }
  }
  explicit Dims(IntList values);

  int64_t& operator[](int64_t i) { return value[i]; }
  int64_t operator[](int64_t i) const { return value[i]; }
  void push_back(int64_t each) { value[rank++] = each; }
  void insert(int64_t at, int64_t each);
  void erase(int64_t at);
  // The product from dimension `begin` up to `end`, which is 1 where there is none.
  int64_t product(int64_t begin, int64_t end) const;
  int64_t product() const { return product(0, rank); }
  IntList list() const { return {value, static_cast<size_t>(rank)}; }
  bool operator==(const Dims& other) const;
};

Dims sizes_of(const Tensor& t);

Dims strides_of(const Tensor& t);

// Strides of a contiguous tensor of these sizes.
Dims contiguous_strides(const Dims& sizes);

// Whether elements lie one after the other in the order of the dimensions, last dimension first.
bool is_contiguous(const Tensor& t);

// Whether the elements of both lie in memory in the same order.
bool same_layout(const Tensor& a, const Tensor& b);

// `dim` counted from the front, or -1 with the call refused. A 0-dim tensor takes 0 and -1, as ATen's does.
int64_t wrap_dim(KernelRuntimeContext& context, int64_t dim, int64_t rank);

// Replaces dimensions `dim1` and `dim2` by their diagonal, as the last dimension, and adds to `origin` where
// it begins. False with the call refused.
bool take_diagonal(KernelRuntimeContext& context, int64_t offset, int64_t dim1, int64_t dim2, Dims& sizes,
                   Dims& strides, int64_t& origin);

// Whether both have one dtype; refuses the call where they have not.
bool same_dtype(KernelRuntimeContext& context, const Tensor& self, const Tensor& out);

// Gives `out` these sizes; refuses where it cannot have them.
bool resize(KernelRuntimeContext& context, Tensor& out, const Dims& sizes);

// A bound of a slice, counted from the front and within [0, size].
inline int64_t slice_bound(int64_t bound, int64_t size) {
  const int64_t wrapped = bound < 0 ? bound + size : bound;
  return wrapped < 0 ? 0 : wrapped > size ? size : wrapped;
}

// Temporary memory for `count` elements, or null with the call refused.
template <class T>
T* allocate(KernelRuntimeContext& context, int64_t count) {
  const auto memory = context.allocate_temp(static_cast<size_t>(count > 0 ? count : 1) * sizeof(T), 64);
  if (!memory.ok()) {
    refuse(context, memory.error(), "no temporary memory for %" PRId64 " elements of %zu bytes", count,
           sizeof(T));
    return nullptr;
  }
  return static_cast<T*>(memory.get());
}

}  // namespace opsmith::portable
